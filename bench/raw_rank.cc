#include "bench/raw_rank.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "bench/statistics.h"
#include "ring/base/error.h"

namespace rondo::bench {
namespace {

constexpr double kMeetSeconds = 10;      // processes may share a busy core; a lost one is seen by its parent at once
constexpr timeval kSetupTimeout{5, 0};   // accept and the first bytes of a connection
constexpr int kExchangesPerBatch = 100;  // some 300 us: far above the clock's resolution
constexpr uint64_t kExchangeBytes = 8;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void fail(const char* what) {
  throw Exception(ErrorCode::kSystem, fmt::format("raw TCP measurement: {}: {}", what, std::strerror(errno)));
}

struct Hello {
  uint64_t token;
  uint64_t index;
};

void set_congestion(int fd, const std::string& congestion) {
  const auto length = static_cast<socklen_t>(congestion.size());
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(), length) != 0) fail("TCP_CONGESTION");
}

void set_streaming(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) fail("TCP_NODELAY");
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) fail("O_NONBLOCK");
}

// True if the call failed only because nothing can move now.
bool would_block(ssize_t moved) { return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

}  // namespace

RawRank::RawRank(int rank, Descriptor listener, std::vector<uint16_t> ports, uint64_t buffer_bytes, RawMeeting* meeting)
    : rank_(rank),
      world_(static_cast<int>(ports.size())),
      listener_(std::move(listener)),
      ports_(std::move(ports)),
      buffer_(buffer_bytes, std::byte{1}),
      meeting_(meeting) {
  setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &kSetupTimeout, sizeof(kSetupTimeout));
}

void RawRank::meet() {
  const uint64_t all = ++meetings_ * static_cast<uint64_t>(world_);
  meeting_->arrived.fetch_add(1, std::memory_order_acq_rel);
  const double deadline = now() + kMeetSeconds;
  while (meeting_->arrived.load(std::memory_order_acquire) < all) {
    if (meeting_->failed.load(std::memory_order_relaxed) || now() > deadline) {
      errno = ETIMEDOUT;
      fail("waiting for the other ranks");
    }
    sched_yield();
  }
}

Descriptor RawRank::dial(uint16_t port, const std::string& congestion, int index) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) fail("socket");
  set_congestion(fd.get(), congestion);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fail("connect");
  const Hello hello{meeting_->token, static_cast<uint64_t>(index)};
  if (send(fd.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) fail("send");
  return fd;
}

std::pair<int, Descriptor> RawRank::accept_one(const std::string& congestion) {
  while (true) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() < 0) fail("accept");
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kSetupTimeout, sizeof(kSetupTimeout));
    Hello hello{};
    const bool ours = recv(fd.get(), &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello) &&
                      hello.token == meeting_->token && hello.index < 64;
    if (!ours) continue;
    set_congestion(fd.get(), congestion);
    return {static_cast<int>(hello.index), std::move(fd)};
  }
}

RawRank::Connections RawRank::connect(const std::string& congestion, int connections) {
  Connections out;
  const bool duplex = world_ == 2;
  const bool dials = !duplex || rank_ == 0;
  const bool accepts = !duplex || rank_ == 1;
  if (dials) {
    const uint16_t next = ports_[static_cast<size_t>((rank_ + 1) % world_)];
    for (int i = 0; i < connections; ++i) {
      out.owned.push_back(dial(next, congestion, i));
      out.outgoing.push_back(out.owned.back().get());
    }
  }
  if (accepts) {
    out.incoming.resize(static_cast<size_t>(connections));
    for (int i = 0; i < connections; ++i) {
      auto [index, fd] = accept_one(congestion);
      out.incoming.at(static_cast<size_t>(index)) = fd.get();
      out.owned.push_back(std::move(fd));
    }
  }
  if (duplex && rank_ == 0) out.incoming = out.outgoing;
  if (duplex && rank_ == 1) out.outgoing = out.incoming;
  for (const Descriptor& fd : out.owned) set_streaming(fd.get());
  return out;
}

std::vector<RawRank::Flow> RawRank::flows(const std::vector<int>& fds, uint64_t shift) const {
  std::vector<Flow> out;
  const uint64_t share = buffer_.size() / fds.size();
  auto* begin = const_cast<std::byte*>(buffer_.data());
  for (size_t i = 0; i < fds.size(); ++i) out.push_back({fds[i], begin + i * share, share, shift % share, 0, 0});
  return out;
}

double RawRank::drive(std::vector<Flow> sending, std::vector<Flow> receiving, const RawSetting& setting, double start,
                      double end) const {
  const auto advance = [&](Flow& flow, Direction direction) {
    if (flow.left == 0) flow.left = std::min(setting.transfer_bytes, flow.size - flow.at);
    const bool cached = direction == Direction::kReceive && setting.half_in_cache && flow.at < flow.size / 2;
    std::byte* const memory = flow.begin + (cached ? flow.at % setting.transfer_bytes : flow.at);
    if (cached) flow.left = std::min(flow.left, setting.transfer_bytes - flow.at % setting.transfer_bytes);
    const ssize_t moved = direction == Direction::kSend ? send(flow.fd, memory, flow.left, MSG_NOSIGNAL)
                                                        : recv(flow.fd, memory, flow.left, 0);
    if (moved == 0 || (moved < 0 && !would_block(moved))) fail("a connection broke");
    if (moved < 0) return false;
    flow.moved += static_cast<uint64_t>(moved);
    flow.left -= static_cast<uint64_t>(moved);
    flow.at = (flow.at + static_cast<uint64_t>(moved)) % flow.size;
    return true;
  };
  std::vector<pollfd> waits;
  for (const Flow& flow : sending) waits.push_back({flow.fd, POLLOUT, 0});
  for (const Flow& flow : receiving) waits.push_back({flow.fd, POLLIN, 0});
  const auto received = [&] {
    uint64_t bytes = 0;
    for (const Flow& flow : receiving) bytes += flow.moved;
    return static_cast<double>(bytes);
  };
  // In lock step a flow waits at the end of a transfer until all others have ended theirs.
  const auto slowest = [&] {
    uint64_t moved = UINT64_MAX;
    for (const Flow& flow : sending) moved = std::min(moved, flow.moved);
    for (const Flow& flow : receiving) moved = std::min(moved, flow.moved);
    return moved;
  };
  const bool lock_step = setting.driving == Driving::kLockStep;
  const bool sleeps = setting.driving == Driving::kPoll || setting.driving == Driving::kTwoThreads;
  double start_bytes = -1, started = 0, time = now();
  for (; time < end; time = now()) {
    if (start_bytes < 0 && time >= start) {
      start_bytes = received();
      started = time;
    }
    const uint64_t bound = lock_step ? (slowest() / setting.transfer_bytes + 1) * setting.transfer_bytes : UINT64_MAX;
    bool moved = false;
    for (Flow& flow : sending) moved = (flow.moved < bound && advance(flow, Direction::kSend)) || moved;
    for (Flow& flow : receiving) moved = (flow.moved < bound && advance(flow, Direction::kReceive)) || moved;
    if (!moved && sleeps) poll(waits.data(), waits.size(), 1);
  }
  return start_bytes < 0 ? 0 : (received() - start_bytes) / (time - started);
}

double RawRank::stream_gbps(const RawSetting& setting, double seconds) {
  const Connections connections = connect(setting.congestion, setting.connections);
  const std::vector<Flow> sending = flows(connections.outgoing, 0);
  const std::vector<Flow> receiving = flows(connections.incoming, buffer_.size() / 2);
  meet();
  const double start = now() + seconds / 3;
  const double end = start + seconds;
  double rate = 0;
  if (setting.driving == Driving::kTwoThreads) {
    std::exception_ptr failure;
    std::thread sender([&] {
      try {
        drive(sending, {}, setting, start, end);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    try {
      rate = drive({}, receiving, setting, start, end);
    } catch (...) {
      sender.join();
      throw;
    }
    sender.join();
    if (failure) std::rethrow_exception(failure);
  } else {
    rate = drive(sending, receiving, setting, start, end);
  }
  meet();  // nobody closes while another still transfers
  return rate / 1e9;
}

double RawRank::exchange_us(const std::string& congestion, double seconds) {
  const Connections connections = connect(congestion, 1);
  const int out = connections.outgoing[0];
  const int in = connections.incoming[0];
  const auto exchange = [&] {
    std::byte message[kExchangeBytes] = {};
    if (send(out, message, sizeof(message), MSG_NOSIGNAL) != sizeof(message)) fail("send");
    for (size_t have = 0; have < sizeof(message);) {
      const ssize_t got = recv(in, message + have, sizeof(message) - have, 0);
      if (got == 0 || (got < 0 && !would_block(got))) fail("a connection broke");
      if (got > 0) have += static_cast<size_t>(got);
    }
  };
  // All ranks make the same number of batches: rank 0 decides, and says so where they meet between two of them. On a
  // busy host a batch may take a second, so time ends the measurement, not a count.
  meeting_->enough = false;
  const double end = now() + seconds;
  std::vector<double> batch_us;
  for (int batch = -1;; ++batch) {  // the first one warms up
    meet();
    if (meeting_->enough.load(std::memory_order_acquire)) break;
    const double start = now();
    for (int i = 0; i < kExchangesPerBatch; ++i) exchange();
    const double stop = now();
    if (batch >= 0) batch_us.push_back((stop - start) * 1e6 / kExchangesPerBatch);
    if (rank_ == 0 && stop > end && batch >= 0) meeting_->enough.store(true, std::memory_order_release);
  }
  return median(batch_us);
}

}  // namespace rondo::bench
