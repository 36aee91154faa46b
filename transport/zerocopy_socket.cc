#include "transport/zerocopy_socket.h"

#include <fmt/format.h>
#include <linux/errqueue.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "ring/base/check.h"
#include "transport/socket_options.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// So many sends in a row that were copied, or refused, are no accident (a packet capture, another connection that has
// pinned all that the limit allows).
constexpr uint32_t kMostInVain = 8;
// A card has sent what it was given within microseconds, behind a full queue within milliseconds.
constexpr std::chrono::milliseconds kMostWait{50};
constexpr std::chrono::microseconds kNap{50};

constexpr int kMostParts = 8;  // of a ByteStream::write()
// Of a link over a longer way, the slices that it may hold (1.25 MiB by default) are less than the kernel would have on
// its way (4 MiB), so that sending from memory would be slower there.
constexpr uint32_t kLongestRoundTripUs = 1000;
// A receiver acknowledges at once what is more than one segment; its segments may be a few bytes larger than ours.
constexpr size_t kTailSegments = 2;

uint32_t round_trip_us(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return UINT32_MAX;
  return info.tcpi_min_rtt;
}

size_t tail_of(int socket) {
  int segment = 0;
  socklen_t size = sizeof segment;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &segment, &size) != 0) return 0;
  return kTailSegments * static_cast<size_t>(segment);
}

// The bytes [begin, end) of `parts`, into `some`, which has room for as many. How many parts those are.
int cut(const iovec* parts, int count, size_t begin, size_t end, iovec* some) {
  int taken = 0;
  size_t at = 0;
  for (int i = 0; i < count; ++i) {
    const size_t from = std::clamp(begin, at, at + parts[i].iov_len);
    const size_t to = std::clamp(end, at, at + parts[i].iov_len);
    if (from < to) some[taken++] = {static_cast<std::byte*>(parts[i].iov_base) + (from - at), to - from};
    at += parts[i].iov_len;
  }
  return taken;
}

struct Notification {
  uint32_t first = 0;
  uint32_t last = 0;
  ZerocopyLedger::How how = ZerocopyLedger::How::kFromMemory;
};

std::optional<Notification> notification_in(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    const bool v4 = part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR;
    const bool v6 = part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR;
    if (!v4 && !v6) continue;
    sock_extended_err what;
    std::memcpy(&what, CMSG_DATA(part), sizeof what);
    if (what.ee_errno != 0 || what.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
    const bool copied = (what.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0;
    return Notification{what.ee_info, what.ee_data,
                        copied ? ZerocopyLedger::How::kCopied : ZerocopyLedger::How::kFromMemory};
  }
  return std::nullopt;
}

size_t bytes_of(const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

}  // namespace

bool enable_zerocopy(int socket, const ZerocopyUse& use, const Logger& log, const std::string& peer) {
  if (use.least_bytes == 0 || (!use.always && stays_on_host(socket))) return false;
  if (const uint32_t us = round_trip_us(socket); !use.always && us > kLongestRoundTripUs) {
    if (log.shows(LogLevel::kInfo)) log.info(fmt::format("no MSG_ZEROCOPY to {}: a round trip takes {} us", peer, us));
    return false;
  }
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0) return true;
  if (log.shows(LogLevel::kInfo))
    log.info(fmt::format("no MSG_ZEROCOPY to {}: setting SO_ZEROCOPY: {}", peer, std::strerror(errno)));
  return false;
}

ZerocopySocket::ZerocopySocket(Descriptor socket, std::string peer, const ZerocopyUse& use, const Logger& log,
                               std::shared_ptr<void> watch)
    : SocketStream(std::move(socket), std::move(peer), std::move(watch)),
      use_(use),
      log_(log),
      tail_(tail_of(descriptor())) {}

ZerocopySocket::~ZerocopySocket() { stop(); }

long ZerocopySocket::write(const iovec* parts, int count) {
  const size_t bytes = bytes_of(parts, count);
  const bool large = bytes >= use_.least_bytes && (bytes >= 2 * tail_ || use_.always);
  const bool from_memory = large && in_use_ && !ledger_.full();
  const long moved = from_memory ? write_from_memory(parts, count, bytes) : SocketStream::write(parts, count);
  if (moved > 0) position_ += static_cast<uint64_t>(moved);
  return moved;
}

// All but the tail from memory, then the tail, by another call. MSG_EOR: or else the kernel adds the tail to a packet
// that it has yet to send, and holds that one's memory until the whole of it is acknowledged.
long ZerocopySocket::write_from_memory(const iovec* parts, int count, size_t bytes) {
  if (!error().ok()) return -1;
  const size_t front = bytes - std::min(tail_, bytes / 2);
  iovec some[kMostParts];
  const long moved = transmit(some, cut(parts, count, 0, front, some), MSG_ZEROCOPY | MSG_EOR);
  if (moved == -ENOBUFS || moved == -EFAULT) {
    // While others are pending, they may be what has used the limits up.
    if (ledger_.empty() && ++refused_in_a_row_ == kMostInVain) {
      give_up("it refuses such sends (its limits: ulimit -l, net.core.optmem_max)");
    }
    return SocketStream::write(parts, count);
  }
  if (moved < 0) return fail("writing to", static_cast<int>(-moved));
  refused_in_a_row_ = 0;
  if (moved > 0) ledger_.sent(position_);
  if (front == bytes || static_cast<size_t>(moved) < front) return moved;
  const long more = SocketStream::write(some, cut(parts, count, front, bytes, some));
  return more < 0 ? moved : moved + more;  // the next call will say what is wrong
}

void ZerocopySocket::reap() {
  while (!ledger_.empty() && take_notification()) {
  }
  if (in_use_ && !use_.always && ledger_.copied_in_a_row() >= kMostInVain) give_up("it copies all the same");
}

// False: there is none now.
bool ZerocopySocket::take_notification() {
  alignas(cmsghdr) char control[128];  // the notification, and the address of an error that is none
  msghdr message{};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  while (::recvmsg(descriptor(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return false;
  }
  const std::optional<Notification> what = notification_in(message);
  if (what) {
    RONDO_CHECK(ledger_.completed(what->first, what->last, what->how),
                "the kernel notifies of a send that is not pending");
  }
  return true;
}

void ZerocopySocket::give_up(const char* why) {
  in_use_ = false;
  if (log_.shows(LogLevel::kInfo))
    log_.info(fmt::format("the kernel has no use for MSG_ZEROCOPY to {}: {}; copying from now on", peer(), why));
}

void ZerocopySocket::stop() {
  if (::getpid() != pid_) return;  // a forked child, whose copy of the socket is closed (Descriptor)
  reap();
  if (ledger_.empty() || std::exchange(stopped_, true)) return;
  in_use_ = false;
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;  // a reset, which drops the queue; notifications can still be read
  ::connect(descriptor(), &nowhere, sizeof nowhere);
  const auto deadline = Clock::now() + kMostWait;
  while (true) {
    reap();
    if (ledger_.empty() || Clock::now() >= deadline) return;
    std::this_thread::sleep_for(kNap);  // poll() returns at once on a socket without a connection
  }
}

}  // namespace rondo
