// The simulated network: Kernel's half of it, and Socket.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/simulation/kernel.h"

namespace rondo::testing::sim {
namespace {

constexpr Time kResend = 200 * kMillisecond;
constexpr size_t kBacklog = 4096;

}  // namespace

Time Kernel::delay(int from, int to) {
  const Time least = from == to ? network.local_latency : network.latency;
  Time taken = least + static_cast<Time>(machine.random().below(static_cast<uint64_t>(least) + 1));
  if (from != to && network.lost_percent > 0 && machine.random().chance(network.lost_percent)) taken += kResend;
  return taken;
}

void Kernel::send(int from, int to, std::function<void()> arrive) {
  machine.after(delay(from, to), [this, from, to, arrive = std::move(arrive)]() mutable {
    if (!has_power(from) && from != to) return;
    if (!has_power(to)) return;
    if (is_blocked(from, to)) {
      stalled_[{from, to}].push_back(std::move(arrive));
    } else {
      arrive();
    }
  });
}

// TCP sends again at times that double, so it may take as long again as the outage lasted; a second at most here.
void Kernel::unblock(int from, int to) {
  blocked_.erase({from, to});
  const auto waiting = stalled_.find({from, to});
  if (waiting == stalled_.end()) return;
  const Time later = static_cast<Time>(machine.random().below(kSecond));
  machine.after(later, [this, from, to, all = std::move(waiting->second)]() mutable {
    for (auto& arrive : all) {
      if (is_blocked(from, to)) {
        stalled_[{from, to}].push_back(std::move(arrive));
      } else {
        arrive();
      }
    }
  });
  stalled_.erase(waiting);
}

void Kernel::silence_connections(int one, int other) {
  for (Socket* const socket : sockets_between(one, other)) socket->silent_ = true;
}

void Kernel::forget_connection(int one, int other) {
  std::vector<Socket*> all = sockets_between(one, other);
  std::erase_if(all, [](const Socket* socket) { return !socket->connected() || socket->closed_; });
  if (all.empty()) return;
  Socket* const socket = all[machine.random().below(all.size())];
  socket->silent_ = true;
  if (const auto end = socket->other_.lock()) end->silent_ = true;
}

std::vector<Socket*> Kernel::sockets_between(int one, int other) {
  std::vector<Socket*> found;
  for (const auto& weak : sockets_) {
    const auto socket = weak.lock();
    if (!socket) continue;
    const int own = socket->process.host;
    if ((own == one && socket->other_host_ == other) || (own == other && socket->other_host_ == one)) {
      found.push_back(socket.get());
    }
  }
  return found;
}

void Kernel::reject(int from, int to, bool rejects) {
  if (rejects) {
    rejected_.insert({from, to});
  } else {
    rejected_.erase({from, to});
  }
}

void Kernel::lose_power(int host) { dark_.insert(host); }

std::shared_ptr<Socket> Kernel::make_socket(Process& of) {
  auto made = std::make_shared<Socket>(*this, of);
  made->self = made;
  sockets_.push_back(made);
  return made;
}

// --- Socket

short Socket::events() {
  switch (state_) {
    case State::kNew:
      return POLLOUT | POLLHUP;
    case State::kListening:
      return backlog_.empty() ? 0 : POLLIN;
    case State::kConnecting:
      return 0;
    case State::kFailed:
      return POLLIN | POLLOUT | POLLERR | POLLHUP;
    case State::kConnected:
      break;
  }
  int now = 0;
  if (taken_ < unread_.size() || end_came_ || error_ != 0 || reset_) now |= POLLIN;
  if (end_came_ || reset_) now |= POLLRDHUP;
  if (error_ != 0) now |= POLLERR;
  if (reset_ || (end_came_ && end_sent_)) now |= POLLHUP;
  if (reset_ || written_ - consumed_ < kernel_.network.buffer_bytes) {
    now |= POLLOUT;
  } else {
    wants_room_ = true;
  }
  return static_cast<short>(now);
}

int Socket::bind(Endpoint4 address) {
  const int host = process.host;
  const bool own =
      address.address == 0 || (address.address >> 24) == 127 || address.address == Kernel::address_of(host);
  if (!own) return static_cast<int>(fail(EADDRNOTAVAIL));
  if (address.port == 0) {
    uint16_t& next = kernel_.next_port_[host];
    address.port = next = static_cast<uint16_t>(next < 20'000 || next > 60'000 ? 20'000 : next + 1);
  }
  for (const auto& [key, listener] : kernel_.listeners_) {
    if (key.first == host && key.second.port == address.port &&
        (key.second.address == address.address || key.second.address == 0 || address.address == 0)) {
      return static_cast<int>(fail(EADDRINUSE));
    }
  }
  own_ = address;
  return 0;
}

int Socket::listen() {
  state_ = State::kListening;
  kernel_.listeners_[{process.host, own_}] = this;
  return 0;
}

std::shared_ptr<Socket> Socket::accept() {
  if (state_ != State::kListening) return fail(EINVAL), nullptr;
  if (backlog_.empty()) return fail(EAGAIN), nullptr;
  auto first = std::move(backlog_.front());
  backlog_.pop_front();
  return first;
}

int Socket::connect(Endpoint4 to) {
  if (state_ != State::kNew) return static_cast<int>(fail(state_ == State::kConnecting ? EALREADY : EISCONN));
  if (to.address == 0) to.address = 0x7f000001;
  if (own_.port == 0 && bind({(to.address >> 24) == 127 ? to.address : Kernel::address_of(process.host), 0}) != 0) {
    return -1;
  }
  peer_ = to;
  other_host_ = Kernel::host_of(to.address, process.host);
  state_ = State::kConnecting;
  dial(0);
  return static_cast<int>(fail(EINPROGRESS));
}

// A SYN, again after 1, 3, 7, ... s.
void Socket::dial(int attempt) {
  const int from = process.host, to = other_host_;
  const auto weak = self;
  if (attempt > 6) return fail_connecting(ETIMEDOUT);
  kernel_.machine.after(kSecond << attempt, [weak, attempt] {
    const auto socket = weak.lock();
    if (socket && socket->state_ == State::kConnecting) socket->dial(attempt + 1);
  });
  if (!kernel_.carries(from, to)) return;
  kernel_.machine.after(kernel_.delay(from, to), [this, weak, from, to] {
    const auto dialer = weak.lock();
    if (!dialer || dialer->state_ != State::kConnecting || !kernel_.carries(from, to)) return;
    Socket* listener = nullptr;
    for (const Endpoint4& where : {peer_, Endpoint4{0, peer_.port}}) {
      const auto found = kernel_.listeners_.find({to, where});
      if (found != kernel_.listeners_.end()) listener = found->second;
    }
    const bool refused = listener == nullptr || kernel_.rejected_.count({from, to}) != 0;
    if (!refused && listener->backlog_.size() >= kBacklog) return;
    std::shared_ptr<Socket> made;
    if (!refused) {
      made = kernel_.make_socket(listener->process);
      made->own_ = {peer_.address, peer_.port};
      made->peer_ = own_;
      made->other_host_ = from;
      made->establish(dialer);
      listener->backlog_.push_back(made);
      listener->turned_readable();
    }
    kernel_.send(to, from, [weak, made, refused] {
      const auto answered = weak.lock();
      if (!answered || answered->state_ != State::kConnecting) {
        if (made) made->broken(ECONNRESET);
        return;
      }
      if (refused) return answered->fail_connecting(ECONNREFUSED);
      answered->establish(made);
      answered->turned_writable();
    });
  });
}

void Socket::establish(std::shared_ptr<Socket> other) {
  state_ = State::kConnected;
  other_ = other;
  progress_at_ = heard_at_ = kernel_.machine.now();
}

void Socket::fail_connecting(int number) {
  state_ = State::kFailed;
  error_ = number;
  turned_writable();
  turned_readable();
}

int Socket::take_error() { return std::exchange(error_, 0); }

// What this end sends arrives in order.
void Socket::to_peer(std::function<void(Socket&)> what) {
  if (silent_) return;
  Time arrival = kernel_.machine.now() + kernel_.delay(process.host, other_host_);
  if (!sent_.empty()) arrival = std::max(arrival, sent_.back().first);
  sent_.emplace_back(arrival, std::move(what));
  if (sent_.size() == 1) deliver_later();
}

void Socket::deliver_later() {
  kernel_.machine.at(sent_.front().first, [kept = self.lock()] { kept->deliver(); });
}

void Socket::deliver() {
  const int from = process.host, to = other_host_;
  if (silent_ || !kernel_.has_power(from) || !kernel_.has_power(to)) return sent_.clear();
  if (kernel_.is_blocked(from, to)) {
    kernel_.stalled_[{from, to}].push_back([kept = self.lock()] { kept->deliver(); });
    return;
  }
  while (!sent_.empty() && sent_.front().first <= kernel_.machine.now()) {
    const auto what = std::move(sent_.front().second);
    sent_.pop_front();
    if (const auto other = other_.lock()) what(*other);
  }
  if (!sent_.empty()) deliver_later();
}

long Socket::write(const char* source, size_t size) {
  if (state_ == State::kFailed && error_ != 0) return fail(take_error());
  if (state_ != State::kConnected) return fail(state_ == State::kConnecting ? EAGAIN : ENOTCONN);
  if (error_ != 0) return fail(take_error());
  if (reset_ || end_sent_) return fail(EPIPE);
  const uint64_t used = written_ - consumed_;
  const size_t most = kernel_.network.buffer_bytes;
  if (size == 0) return 0;
  if (used >= most) {
    wants_room_ = true;
    return fail(EAGAIN);
  }
  // All that fits, as Linux does; what arrives at a time is another matter.
  const size_t moved = std::min<size_t>(size, most - used);
  if (moved < size) wants_room_ = true;
  if (written_ == acknowledged_) progress_at_ = kernel_.machine.now();
  written_ += moved;
  Random& random = kernel_.machine.random();
  for (size_t begin = 0; begin < moved;) {
    const size_t part = random.below(4) == 0 ? 1 + random.below(moved - begin) : moved - begin;
    to_peer([bytes = std::string(source + begin, part)](Socket& other) { other.arrive(bytes, false); });
    begin += part;
  }
  return static_cast<long>(moved);
}

void Socket::arrive(std::string bytes, bool end) {
  if (closed_) return send_reset();
  if (reset_) return;
  heard_at_ = kernel_.machine.now();
  unread_ += bytes;
  end_came_ |= end;
  turned_readable();
  const uint64_t got = bytes.size();
  to_peer([got](Socket& other) {  // the acknowledgment
    other.acknowledged_ += got;
    other.progress_at_ = other.heard_at_ = other.kernel_.machine.now();
  });
}

long Socket::read(char* target, size_t size) {
  if (state_ == State::kFailed && error_ != 0) return fail(take_error());
  if (state_ != State::kConnected) return fail(ENOTCONN);
  size_t there = unread_.size() - taken_;
  if (there == 0) {
    if (error_ != 0) return fail(take_error());
    return end_came_ || reset_ ? 0 : fail(EAGAIN);
  }
  there = std::min(there, size);
  std::memcpy(target, unread_.data() + taken_, there);
  taken_ += there;
  if (taken_ == unread_.size()) unread_.clear(), taken_ = 0;
  to_peer([there](Socket& other) {  // the window
    other.consumed_ += there;
    if (std::exchange(other.wants_room_, false)) other.turned_writable();
  });
  return static_cast<long>(there);
}

int Socket::shut_down_writing() {
  if (state_ != State::kConnected) return static_cast<int>(fail(ENOTCONN));
  if (end_sent_ || reset_) return 0;
  end_sent_ = true;
  to_peer([](Socket& other) { other.arrive({}, true); });
  return 0;
}

void Socket::send_reset() {
  to_peer([](Socket& other) { other.broken(ECONNRESET); });
}

void Socket::broken(int number) {
  if (reset_ || closed_) return;
  reset_ = true;
  error_ = number;
  turned_readable();
  turned_writable();
}

// By its process, or because that has ended. Bytes that it has not read are an error to the peer.
void Socket::close() {
  if (state_ == State::kListening) {
    kernel_.listeners_.erase({process.host, own_});
    for (const auto& waiting : std::exchange(backlog_, {})) waiting->close();
  }
  if (state_ == State::kConnecting) state_ = State::kFailed;
  if (state_ != State::kConnected || closed_) return;
  closed_ = true;
  // Kept until what it has sent has arrived.
  const auto kept = self.lock();
  kernel_.machine.after(600 * kSecond, [kept] {});
  if (reset_) return;
  if (taken_ < unread_.size()) {
    send_reset();
  } else if (!end_sent_) {
    end_sent_ = true;
    to_peer([](Socket& other) { other.arrive({}, true); });
  }
}

}  // namespace rondo::testing::sim
