#include "transport/socket.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace rondo {
namespace {

bool empty(const iovec* parts, int count) {
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len != 0) return false;
  }
  return true;
}

// The peer's process or its host is gone, rather than something on this side.
bool means_peer_gone(int number) {
  return number == ECONNRESET || number == EPIPE || number == ETIMEDOUT || number == EHOSTUNREACH ||
         number == ENETUNREACH || number == ECONNABORTED;
}

}  // namespace

SocketStream::SocketStream(Descriptor socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

long SocketStream::read(const iovec* parts, int count) {
  if (!error_.ok()) return -1;
  if (empty(parts, count)) return 0;  // readv's 0 would look like the end
  while (true) {
    const ssize_t moved = ::readv(socket_.get(), parts, count);
    if (moved > 0) return moved;
    if (moved == 0) {
      error_ = {ErrorCode::kPeerLost, fmt::format("{} closed the connection", peer_), {}};
      return -1;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return fail("reading from", errno);
  }
}

long SocketStream::write(const iovec* parts, int count) {
  if (!error_.ok()) return -1;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(count);
  while (true) {
    const ssize_t moved = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved >= 0) return moved;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return fail("writing to", errno);
  }
}

long SocketStream::fail(const char* action, int number) {
  error_ = {means_peer_gone(number) ? ErrorCode::kPeerLost : ErrorCode::kNetwork,
            fmt::format("{} {}: {}", action, peer_, std::strerror(number)),
            {}};
  return -1;
}

}  // namespace rondo
