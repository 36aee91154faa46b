#include "transport/doorbell.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "rondo/error.h"

namespace rondo {
namespace {

// Events taken by one epoll_wait; more stay for the next. They carry no information: the sleeper looks at
// everything it drives when it wakes.
constexpr int kEventsAtOnce = 16;

[[noreturn]] void throw_system(const char* what) {
  throw Exception(ErrorCode::kSystem, std::string(what) + " failed: " + std::strerror(errno) +
                                          (errno == EMFILE ? " (raise the limit on open files: ulimit -n)" : ""));
}

bool watch_edges(int epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

}  // namespace

struct Doorbell::Watches {
  std::mutex mutex;
  int epoll = -1;  // -1: the doorbell is gone
  std::vector<int> descriptors;
  std::atomic<bool> relaxed{false};  // they are not in the epoll set; written under the lock

  void resume() {
    std::lock_guard lock(mutex);
    if (!relaxed.load(std::memory_order_relaxed)) return;
    // Should the kernel have no room any more, a sleeper looks again within 20 ms (ProgressEngine::rest).
    for (const int descriptor : descriptors) watch_edges(epoll, descriptor);
    relaxed.store(false);
  }
  void forget(int descriptor) {
    std::lock_guard lock(mutex);
    descriptors.erase(std::find(descriptors.begin(), descriptors.end(), descriptor));
    if (epoll >= 0 && !relaxed.load(std::memory_order_relaxed)) epoll_ctl(epoll, EPOLL_CTL_DEL, descriptor, nullptr);
  }
};

Doorbell::Doorbell() : epoll_(epoll_create1(EPOLL_CLOEXEC)), watches_(std::make_shared<Watches>()) {
  if (epoll_ < 0) throw_system("epoll_create1");
  event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_ < 0) {
    const int error = errno;
    close(epoll_);
    errno = error;
    throw_system("eventfd");
  }
  // Edge triggered: every write is an event of its own, so the counter need never be read back.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &event);
  watches_->epoll = epoll_;
}

Doorbell::~Doorbell() {
  {
    std::lock_guard lock(watches_->mutex);
    watches_->epoll = -1;
  }
  close(event_);
  close(epoll_);
}

std::shared_ptr<void> Doorbell::watch(int descriptor) {
  std::lock_guard lock(watches_->mutex);
  if (!watches_->relaxed.load(std::memory_order_relaxed) && !watch_edges(epoll_, descriptor)) throw_system("epoll_ctl");
  watches_->descriptors.push_back(descriptor);
  return {nullptr, [watches = watches_, descriptor](void*) { watches->forget(descriptor); }};
}

void Doorbell::relax() {
  std::lock_guard lock(watches_->mutex);
  if (armed_->load(std::memory_order_seq_cst) != 0 || watches_->relaxed.load(std::memory_order_relaxed)) return;
  for (const int descriptor : watches_->descriptors) epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
  watches_->relaxed.store(true);
}

void Doorbell::ring() {
  if (armed_->load(std::memory_order_seq_cst) == 0) return;
  if (armed_->exchange(0, std::memory_order_seq_cst) == 0) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof one);
}

void Doorbell::arm() {
  armed_->store(1, std::memory_order_seq_cst);
  if (watches_->relaxed.load()) watches_->resume();
}

void Doorbell::disarm() { armed_->store(0, std::memory_order_relaxed); }

void Doorbell::share(std::atomic<uint32_t>* flag, std::shared_ptr<void> memory) {
  armed_ = flag;
  memory_ = std::move(memory);
}

void Doorbell::wait(std::chrono::steady_clock::time_point deadline) {
  epoll_event events[kEventsAtOnce];
  // EINTR is a spurious wake: the caller looks again.
  epoll_wait(epoll_, events, kEventsAtOnce, milliseconds_until(deadline));
  disarm();
}

void Doorbell::drain() {
  epoll_event events[kEventsAtOnce];
  epoll_wait(epoll_, events, kEventsAtOnce, 0);
  disarm();
}

}  // namespace rondo
