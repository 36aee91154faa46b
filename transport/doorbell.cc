#include "transport/doorbell.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ring/base/descriptor.h"
#include "ring/base/system_error.h"

namespace rondo {
namespace {

// Events taken at a time; more stay for the next sleep. They carry no information: the sleeper looks at everything it
// drives when it wakes.
constexpr int kEventsAtOnce = 16;

[[noreturn]] void throw_system(const char* what) { throw Exception(system_error(what, errno)); }

// Edge triggered: a socket that stays readable, since its flow has no landing posted yet, must not end every sleep.
bool watch_edges(const Descriptor& epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

}  // namespace

// The descriptors of a doorbell, shared with its links, which may outlive it.
struct Doorbell::Watches {
  std::mutex mutex;
  Descriptor epoll;  // not valid: nothing was watched yet, or the doorbell is gone
  std::vector<int> descriptors;
  std::atomic<bool> relaxed{false};  // they are not in the epoll set; written under the lock

  // Called while armed: edges that came before are reported at once by EPOLL_CTL_ADD.
  void resume() {
    std::lock_guard lock(mutex);
    if (!relaxed.load(std::memory_order_relaxed)) return;
    // Should the kernel have no room any more, a sleeper looks again within 20 ms (Watch::sleep).
    for (const int descriptor : descriptors) watch_edges(epoll, descriptor);
    relaxed.store(false);
  }
  // The kernel takes a closed descriptor out of the set by itself, but not while a forked child has a copy.
  void forget(int descriptor) {
    std::lock_guard lock(mutex);
    descriptors.erase(std::find(descriptors.begin(), descriptors.end(), descriptor));
    if (epoll.valid() && !relaxed.load(std::memory_order_relaxed)) {
      epoll_ctl(epoll.get(), EPOLL_CTL_DEL, descriptor, nullptr);
    }
  }
};

Doorbell::Doorbell(std::shared_ptr<Sleepers> sleepers)
    : sleepers_(std::move(sleepers)), watches_(std::make_shared<Watches>()) {}

// A link that is closed later finds no epoll set in forget().
Doorbell::~Doorbell() {
  std::lock_guard lock(watches_->mutex);
  watches_->epoll.reset();
}

std::shared_ptr<void> Doorbell::watch(int descriptor) {
  {
    std::lock_guard lock(watches_->mutex);
    Descriptor& epoll = watches_->epoll;
    if (!epoll.valid())
      epoll = Descriptor([&] { return epoll_create1(EPOLL_CLOEXEC); }, Descriptor::InChild::kInherited);
    if (!epoll.valid()) throw_system("epoll_create1");
    watches_->descriptors.reserve(watches_->descriptors.size() + 1);
    if (!watches_->relaxed.load(std::memory_order_relaxed) && !watch_edges(epoll, descriptor)) {
      throw_system("epoll_ctl");
    }
    watches_->descriptors.push_back(descriptor);
  }
  // Without the lock: where there is no memory for it, it forgets the descriptor at once.
  return {nullptr, [watches = watches_, descriptor](void*) { watches->forget(descriptor); }};
}

// A thread that sleeps, or is about to, has armed the flag under the lease: then the descriptors stay watched.
void Doorbell::relax() {
  std::lock_guard lock(watches_->mutex);
  if (armed_->load(std::memory_order_seq_cst) != 0 || watches_->relaxed.load(std::memory_order_relaxed)) return;
  for (const int descriptor : watches_->descriptors) {
    epoll_ctl(watches_->epoll.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  }
  watches_->relaxed.store(true);
}

void Doorbell::arm(const Sleep& sleep) {
  armed_->store(sleep.number(), std::memory_order_seq_cst);
  if (watches_->relaxed.load()) watches_->resume();
}

// Relaxed, since nothing is published by it. A ringer that still sees the number sends a byte, which ends a later sleep
// early.
void Doorbell::disarm(const Sleep& sleep) {
  uint32_t armed = sleep.number();
  armed_->compare_exchange_strong(armed, 0, std::memory_order_relaxed);
}

int Doorbell::descriptor() const {
  std::lock_guard lock(watches_->mutex);
  return watches_->epoll.get();
}

void Doorbell::take_events() {
  epoll_event events[kEventsAtOnce];
  if (const int watched = descriptor(); watched >= 0) static_cast<void>(epoll_wait(watched, events, kEventsAtOnce, 0));
}

void Doorbell::share(std::atomic<uint32_t>* flag, std::shared_ptr<const void> memory) {
  armed_ = flag;
  memory_ = std::move(memory);
}

std::shared_ptr<Bell> Doorbell::bell() const {
  auto bell = std::make_shared<Bell>();
  bell->connect(armed_, sleepers_->sockets(), memory_);
  return bell;
}

}  // namespace rondo
