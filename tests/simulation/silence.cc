// What a socket finds out by itself of a host that says nothing any more, as Linux does.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/simulation/kernel.h"

namespace rondo::testing::sim {

void Socket::set_option(int level, int option, int value) {
  if (level == SOL_SOCKET && option == SO_KEEPALIVE) silence_.probes = value != 0;
  if (level != IPPROTO_TCP) return;
  if (option == TCP_KEEPIDLE) silence_.idle = value * kSecond;
  if (option == TCP_KEEPINTVL) silence_.interval = value * kSecond;
  if (option == TCP_KEEPCNT) silence_.most_probes = value;
  if (option == TCP_USER_TIMEOUT) silence_.limit = value * kMillisecond;
  if (!std::exchange(silence_.looks, silence_.probes || silence_.limit > 0) && silence_.looks) look_for_silence();
}

// Once a second.
void Socket::look_for_silence() {
  kernel_.machine.after(kSecond, [weak = self] {
    const auto socket = weak.lock();
    if (!socket || socket->closed_ || socket->reset_) return;
    if (socket->is_cut_off()) return socket->broken(ETIMEDOUT);
    socket->look_for_silence();
  });
}

// What was sent is not acknowledged for too long; or, while nothing is under way, probes are not.
bool Socket::is_cut_off() {
  Silence& silence = silence_;
  const Time now = kernel_.machine.now();
  const bool under_way = unacknowledged() > 0;
  if (under_way && silence.limit > 0 && now - progress_at_ > silence.limit) return true;
  if (!silence.probes || under_way || now - heard_at_ < silence.idle) {
    silence.sent = 0;
    return false;
  }
  if (silence.sent > 0 && now - silence.sent_at < silence.interval) return false;
  const bool late = silence.limit > 0 ? now - heard_at_ >= silence.limit : silence.sent >= silence.most_probes;
  if (silence.sent > 0 && late) return true;
  ++silence.sent;
  silence.sent_at = now;
  const int from = process.host, to = other_host_;
  const auto other = other_.lock();
  const bool answered = !silent_ && other && !other->silent_ && kernel_.carries(from, to) && kernel_.carries(to, from);
  if (answered) heard_at_ = now;
  return false;
}

}  // namespace rondo::testing::sim
