#include "transport/sleeper.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "ring/base/system_error.h"

namespace rondo {
namespace {

// The sleep of a thread that nobody can ring: as long as a wake-up takes on a busy machine.
constexpr std::chrono::milliseconds kNap{1};

// At most a minute, so that deadlines far away do not overflow; a sleep may end for no reason.
timespec time_until(std::chrono::steady_clock::time_point deadline) {
  using namespace std::chrono_literals;
  const auto left = std::clamp<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now(), 0ns, 60s);
  return {left / 1s, (left % 1s).count()};
}

}  // namespace

// One socket pair that a thread sleeps on. Owned by Sleepers::all_, and lent for one sleep at a time.
struct Sleeper {
  uint32_t number = 0;
  Descriptor socket;    // of which a forked child has none
  int bell = -1;        // the other end, which the table of sockets owns
  bool broken = false;  // somebody has closed its socket, whose number may be another file's by now: not lent again
};

// The owner of a socket may have gone to sleep before its number was known here: then its rings got lost, and the last
// line makes up for them.
bool SleeperSockets::add(uint32_t number, Descriptor socket) {
  if (number == 0 || number > kMost || numbers_[number].load() != 0) return false;
  const int known = socket.get();
  owned_.push_back(std::move(socket));
  numbers_[number].store(known, std::memory_order_seq_cst);
  ring(number);
  return true;
}

// A full socket or a closed one is no failure: the sleeper has bytes to wake it, or is gone.
void SleeperSockets::ring(uint32_t number) const {
  const int socket = number <= kMost ? numbers_[number].load(std::memory_order_seq_cst) : 0;
  const char byte = 1;
  if (socket != 0) static_cast<void>(!::send(socket, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

Sleepers::Sleepers() : sockets_(std::make_shared<SleeperSockets>()), sockets_view_(sockets_) { make(); }
Sleepers::~Sleepers() = default;

// Requires the lock, or that nobody else knows this object.
void Sleepers::make() {
  int ends[2];
  std::vector<Descriptor> owned = own_all(2, [&]() -> std::span<const int> {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0) return ends;
    throw Exception(system_error("socketpair", errno));
  });
  free_.reserve(all_.size() + 1);
  const uint32_t number = ++numbers_;
  const int bell = owned[1].get();
  auto sleeper = std::make_unique<Sleeper>(Sleeper{number, std::move(owned[0]), bell});
  sockets_->add(number, std::move(owned[1]));
  if (announce_) announce_(number, bell);
  all_.push_back(std::move(sleeper));
  free_.push_back(all_.back().get());
}

void Sleepers::announce_to(Announce announce) {
  std::lock_guard lock(mutex_);
  announce_ = std::move(announce);
  if (!announce_) return;
  for (const auto& sleeper : all_) announce_(sleeper->number, sleeper->bell);
}

// nullptr: none is free, and no other can be had.
Sleeper* Sleepers::lend() noexcept {
  std::lock_guard lock(mutex_);
  try {
    if (free_.empty() && numbers_ < SleeperSockets::kMost) make();
  } catch (...) {  // its number is lost
  }
  if (free_.empty()) return nullptr;
  Sleeper* const sleeper = free_.back();
  free_.pop_back();
  return sleeper;
}

// free_ has room for all (make()), so this does not allocate: it runs in destructors.
void Sleepers::give_back(Sleeper* sleeper) {
  std::lock_guard lock(mutex_);
  free_.push_back(sleeper);
}

// A broken sleeper is not lent again; all_ keeps it, so its number is not used a second time.
Sleep::~Sleep() {
  if (sleeper_ != nullptr && !sleeper_->broken) sleepers_.give_back(sleeper_);
}

uint32_t Sleep::number() const { return sleeper_ != nullptr ? sleeper_->number : 0; }

// One ppoll() of the sleeper's socket and `watched`. Two descriptors need no allocation: most sleeps have one doorbell.
Error Sleep::wait(std::span<const int> watched, std::chrono::steady_clock::time_point deadline) {
  if (sleeper_ == nullptr) deadline = std::min(deadline, std::chrono::steady_clock::now() + kNap);
  pollfd few[2];
  std::vector<pollfd> many;
  if (watched.size() >= std::size(few)) many.resize(watched.size() + 1);
  pollfd* const all = many.empty() ? few : many.data();
  all[0] = {sleeper_ != nullptr ? sleeper_->socket.get() : -1, POLLIN, 0};
  for (size_t i = 0; i < watched.size(); ++i) all[i + 1] = {watched[i], POLLIN, 0};
  const nfds_t count = watched.size() + 1;
  const timespec longest = time_until(deadline);
  const int ready = ::ppoll(all, count, &longest, nullptr);
  if (ready < 0 && errno != EINTR) return system_error("ppoll", errno);
  if (ready <= 0) return {};
  for (nfds_t i = 0; i < count; ++i) {
    if ((all[i].revents & POLLNVAL) != 0) return broken("ppoll", EBADF);
  }
  // What is left keeps the next sleep short, so that no process that floods it keeps the sleeper here.
  char bytes[4096];
  if (all[0].revents != 0 && ::recv(all[0].fd, bytes, sizeof bytes, MSG_DONTWAIT) < 0 && errno != EAGAIN) {
    return broken("recv", errno);
  }
  return {};
}

Error Sleep::broken(const char* what, int number) {
  if (sleeper_ != nullptr) sleeper_->broken = true;
  return system_error(what, number);
}

}  // namespace rondo
