#include "transport/tcp/data_sockets.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/tcp/socket.h"

namespace rondo {

struct DataSockets::Facts : tcp_info {};

// The descriptor's number is not enough as a key: the kernel gives it to another socket once it is closed.
std::shared_ptr<void> DataSockets::add(const Key& key, int socket) {
  uint64_t number = 0;
  {
    std::lock_guard lock(shared_->mutex);
    number = shared_->next++;
    Socket& added = shared_->sockets[number];
    added.key = key;
    added.descriptor = socket;
  }
  // Without the lock: where there is no memory for it, it forgets the socket at once.
  return {nullptr, [shared = shared_, number](void*) {
            std::lock_guard hold(shared->mutex);
            shared->sockets.erase(number);
          }};
}

// A peer's rate is the sum over its sockets. `best` remembers the highest that the kernel or this has measured:
// slowest() compares with it.
std::vector<DataSockets::Failure> DataSockets::look(int64_t now_ms) {
  const auto passed_ms = static_cast<uint64_t>(std::max<int64_t>(now_ms - looked_at_ms_, 1));
  looked_at_ms_ = now_ms;
  for (auto& [peer, rate] : rates_) {
    rate.busy = false;
    rate.rate.bytes_per_second = 0;
  }
  std::vector<Failure> failures;
  std::lock_guard lock(shared_->mutex);
  for (auto& [number, socket] : shared_->sockets) {
    Facts facts{};
    if (!ask(socket, facts)) continue;
    Rate& rate = rates_[socket.key.peer];
    rate.rate.peer = socket.key.peer;
    rate.rate.bytes_per_second += (facts.tcpi_bytes_acked - socket.acknowledged) * 1000 / passed_ms;
    rate.rate.best = std::max<uint64_t>(rate.rate.best, facts.tcpi_delivery_rate);
    rate.busy |= facts.tcpi_unacked > 0 || facts.tcpi_notsent_bytes > 0;
    if (stuck(socket, facts, now_ms) && !socket.failed) {
      socket.failed = true;
      end_soon(socket);
      const double seconds = static_cast<double>(now_ms - socket.stuck_since_ms) * 1e-3;
      failures.push_back(
          {socket.key, fmt::format("no byte was acknowledged for {:.3g} s {}", seconds, way_of(socket, facts))});
    }
    socket.acknowledged = facts.tcpi_bytes_acked;
  }
  for (auto& [peer, rate] : rates_) rate.rate.best = std::max(rate.rate.best, rate.rate.bytes_per_second);
  return failures;
}

// False: it is no TCP socket, or was closed by another part of the process.
bool DataSockets::ask(const Socket& socket, Facts& facts) {
  socklen_t size = sizeof(tcp_info);
  return ::getsockopt(socket.descriptor, IPPROTO_TCP, TCP_INFO, &facts, &size) == 0;
}

// Small packets of the control connection may pass where large ones vanish: the size is the first thing to try.
std::string DataSockets::way_of(const Socket& socket, const Facts& facts) {
  const std::string from = bound_host(socket.descriptor), to = peer_host(socket.descriptor);
  return fmt::format(
      "on the way from {} to {}, in packets of {} bytes of data; if smaller ones pass, a link between "
      "them has a smaller MTU: try ping -M do -s {} {}",
      from, to, facts.tcpi_snd_mss, facts.tcpi_snd_mss, to);
}

// Bytes that wait for a receiver that does not read are not under way: its kernel has acknowledged all that was sent.
bool DataSockets::anything_under_way(uint64_t communicator) const {
  std::lock_guard lock(shared_->mutex);
  return std::any_of(shared_->sockets.begin(), shared_->sockets.end(), [&](const auto& entry) {
    Facts facts{};
    return entry.second.key.communicator == communicator && ask(entry.second, facts) && facts.tcpi_unacked > 0;
  });
}

// Bytes are under way, were sent again, and the peer has acknowledged none since the last look: the path is gone, or
// the host. A receiver that does not read acknowledges what its window takes, and then nothing is under way.
bool DataSockets::stuck(Socket& socket, const Facts& facts, int64_t now_ms) const {
  const bool waits =
      facts.tcpi_unacked > 0 && facts.tcpi_retransmits > 0 && facts.tcpi_bytes_acked == socket.acknowledged;
  if (!waits) {
    socket.stuck_since_ms = -1;
    return false;
  }
  if (socket.stuck_since_ms < 0) socket.stuck_since_ms = now_ms;
  return patience_ms_ > 0 && now_ms - socket.stuck_since_ms >= patience_ms_;
}

// TCP ends the connection at its next try, so the link has an error. Setting the option only now spares connections
// that are merely slow. A peer that has left is a failure only for a rank that waits for what it sent.
void DataSockets::end_soon(const Socket& socket) const {
  const int milliseconds = static_cast<int>(std::min<int64_t>(patience_ms_, INT32_MAX));
  ::setsockopt(socket.descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

// peer -1: nothing was under way at the last look.
LinkRate DataSockets::slowest() const {
  LinkRate slowest;
  for (const auto& [peer, rate] : rates_) {
    if (rate.busy && (slowest.peer < 0 || rate.rate.share() < slowest.share())) slowest = rate.rate;
  }
  return slowest;
}

}  // namespace rondo
