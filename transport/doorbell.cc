#include "transport/doorbell.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "ring/base/system_error.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// Events taken by one epoll_wait; more stay for the next. They carry no information: the sleeper looks at
// everything it drives when it wakes.
constexpr int kEventsAtOnce = 16;
// Reads of a shared doorbell's socket at one wake, so that a process that floods it cannot keep the sleeper.
constexpr int kReadsAtOnce = 16;

[[noreturn]] void throw_system(const char* what) { throw Exception(system_error(what, errno)); }

bool watch_edges(int epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

// Edge triggered: every write is an event of its own, so an eventfd's counter need never be read back. False: errno.
bool watch_bell(int epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = descriptor;
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

Doorbell::Doorbell()
    : epoll_(epoll_create1(EPOLL_CLOEXEC), Descriptor::InChild::kInherited), watches_(std::make_shared<Watches>()) {
  if (!epoll_.valid()) throw_system("epoll_create1");
  event_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), Descriptor::InChild::kInherited);
  if (!event_.valid()) throw_system("eventfd");
  if (!watch_bell(epoll_.get(), event_.get())) throw_system("epoll_ctl");
  watches_->epoll = epoll_.get();
}

Doorbell::~Doorbell() {
  std::lock_guard lock(watches_->mutex);
  watches_->epoll = -1;
}

std::shared_ptr<void> Doorbell::watch(int descriptor) {
  {
    std::lock_guard lock(watches_->mutex);
    watches_->descriptors.reserve(watches_->descriptors.size() + 1);
    if (!watches_->relaxed.load(std::memory_order_relaxed) && !watch_edges(epoll_.get(), descriptor)) {
      throw_system("epoll_ctl");
    }
    watches_->descriptors.push_back(descriptor);
  }
  // Without the lock: where there is no memory for it, it forgets the descriptor at once.
  return {nullptr, [watches = watches_, descriptor](void*) { watches->forget(descriptor); }};
}

void Doorbell::relax() {
  std::lock_guard lock(watches_->mutex);
  if (armed_->load(std::memory_order_seq_cst) != 0 || watches_->relaxed.load(std::memory_order_relaxed)) return;
  for (const int descriptor : watches_->descriptors) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  watches_->relaxed.store(true);
}

void Doorbell::ring() {
  if (armed_->load(std::memory_order_seq_cst) == 0) return;
  if (armed_->exchange(0, std::memory_order_seq_cst) == 0) return;
  if (bell_.valid()) {
    const char byte = 1;
    [[maybe_unused]] const ssize_t sent = send(bell_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    return;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof one);
}

void Doorbell::arm() {
  armed_->store(1, std::memory_order_seq_cst);
  if (watches_->relaxed.load()) watches_->resume();
}

void Doorbell::disarm() { armed_->store(0, std::memory_order_relaxed); }

void Doorbell::share(std::atomic<uint32_t>* flag, std::shared_ptr<void> memory) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) throw_system("socketpair");
  std::vector<Descriptor> owned = own_all(ends);
  event_ = std::move(owned[0]);  // the eventfd is closed, and with it its place in the epoll set
  bell_ = std::move(owned[1]);
  if (!watch_bell(epoll_.get(), event_.get())) throw_system("epoll_ctl");
  armed_ = flag;
  memory_ = std::move(memory);
}

// Reads the bytes that rang a shared doorbell. A socket holds a few hundred: a full one would ring no more.
void Doorbell::take_rings(const epoll_event* events, int count) const {
  if (!bell_.valid()) return;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd != event_.get()) continue;
    char bytes[4096];
    int reads = 0;
    while (reads < kReadsAtOnce && recv(event_.get(), bytes, sizeof bytes, MSG_DONTWAIT) == sizeof bytes) ++reads;
    if (reads < kReadsAtOnce) continue;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, event_.get(), nullptr);  // what is left is an event again
    static_cast<void>(watch_bell(epoll_.get(), event_.get()));
  }
}

Error Doorbell::wait(std::chrono::steady_clock::time_point deadline) {
  epoll_event events[kEventsAtOnce];
  const int count = epoll_wait(epoll_.get(), events, kEventsAtOnce, milliseconds_until(deadline));
  const int number = errno;
  disarm();
  if (count < 0 && number != EINTR) return system_error("epoll_wait", number);
  take_rings(events, count);
  return {};
}

void Doorbell::drain() {
  epoll_event events[kEventsAtOnce];
  take_rings(events, epoll_wait(epoll_.get(), events, kEventsAtOnce, 0));
  disarm();
}

}  // namespace rondo
