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

#include "ring/base/error.h"

namespace rondo {
namespace {

// Events taken by one epoll_wait; more stay for the next. They carry no information: whoever sleeps here looks at
// everything it drives when it wakes.
constexpr int kEventsAtOnce = 16;

[[noreturn]] void throw_system(const char* what) {
  throw Exception(ErrorCode::kSystem, std::string(what) + " failed: " + std::strerror(errno) +
                                          (errno == EMFILE ? " (raise the limit on open files: ulimit -n)" : ""));
}

void watch_edges(int epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;  // and EPOLLERR always: MSG_ZEROCOPY's notifications
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) throw_system("epoll_ctl");
}

int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

}  // namespace

Doorbell::Doorbell() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
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
}

Doorbell::~Doorbell() {
  close(event_);
  close(epoll_);
}

void Doorbell::watch(int descriptor) { watch_edges(epoll_, descriptor); }

void Doorbell::ring() {
  if (armed_->load(std::memory_order_seq_cst) == 0) return;
  if (armed_->exchange(0, std::memory_order_seq_cst) == 0) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof one);
}

void Doorbell::arm() { armed_->store(1, std::memory_order_seq_cst); }

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
