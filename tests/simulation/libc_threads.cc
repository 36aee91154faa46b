// Threads, the clock, chance, and who and where a process is.
#include <arpa/inet.h>
#include <bits/atomic_futex.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <random>
#include <string>

#include "tests/simulation/libc.h"

namespace rondo::testing::sim {
namespace {

constexpr int kCores = 64;  // of a host

bool recursive(const pthread_mutex_t* mutex) { return (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE; }

}  // namespace

// --- threads

RONDO_REPLACES(int, pthread_create, pthread_t* thread, const pthread_attr_t* how, void* (*body)(void*),
               void* argument) {
  RONDO_REAL(pthread_create);
  if (!simulated()) return real(thread, how, body, argument);
  *thread = reinterpret_cast<pthread_t>(machine().start_thread(body, argument));
  return 0;
}
RONDO_REPLACES(int, pthread_join, pthread_t thread, void** result) {
  RONDO_REAL(pthread_join);
  if (!simulated()) return real(thread, result);
  machine().join(reinterpret_cast<Fiber*>(thread));
  return 0;
}
RONDO_REPLACES(int, pthread_detach, pthread_t thread) {
  RONDO_REAL(pthread_detach);
  return simulated() ? 0 : real(thread);
}
RONDO_REPLACES(pthread_t, pthread_self) {
  RONDO_REAL(pthread_self);
  return simulated() ? reinterpret_cast<pthread_t>(Machine::thread()) : real();
}
RONDO_REPLACES(int, pthread_setname_np, pthread_t thread, const char* name) {
  RONDO_REAL(pthread_setname_np);
  return simulated() ? 0 : real(thread, name);
}
RONDO_REPLACES(int, pthread_mutex_lock, pthread_mutex_t* mutex) {
  RONDO_REAL(pthread_mutex_lock);
  if (!simulated()) return real(mutex);
  locks().lock(mutex, recursive(mutex));
  return 0;
}
RONDO_REPLACES(int, pthread_mutex_trylock, pthread_mutex_t* mutex) {
  RONDO_REAL(pthread_mutex_trylock);
  if (!simulated()) return real(mutex);
  return locks().try_lock(mutex, recursive(mutex)) ? 0 : EBUSY;
}
RONDO_REPLACES(int, pthread_mutex_unlock, pthread_mutex_t* mutex) {
  RONDO_REAL(pthread_mutex_unlock);
  if (!simulated()) return real(mutex);
  locks().unlock(mutex);
  return 0;
}
RONDO_REPLACES(int, pthread_cond_wait, pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const real = version_of(&pthread_cond_wait_here, "pthread_cond_wait", "GLIBC_2.3.2");
  if (!simulated()) return real(condition, mutex);
  locks().wait(condition, mutex, kNever);
  return 0;
}
// Both clocks say the same here.
RONDO_REPLACES(int, pthread_cond_timedwait, pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  static auto* const real = version_of(&pthread_cond_timedwait_here, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!simulated()) return real(condition, mutex, until);
  return locks().wait(condition, mutex, nanoseconds(*until)) ? 0 : ETIMEDOUT;
}
RONDO_REPLACES(int, pthread_cond_clockwait, pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
               const timespec* until) {
  RONDO_REAL(pthread_cond_clockwait);
  if (!simulated()) return real(condition, mutex, clock, until);
  return locks().wait(condition, mutex, nanoseconds(*until)) ? 0 : ETIMEDOUT;
}
RONDO_REPLACES(int, pthread_cond_signal, pthread_cond_t* condition) {
  static auto* const real = version_of(&pthread_cond_signal_here, "pthread_cond_signal", "GLIBC_2.3.2");
  if (!simulated()) return real(condition);
  locks().notify(condition, false);
  return 0;
}
RONDO_REPLACES(int, pthread_cond_broadcast, pthread_cond_t* condition) {
  static auto* const real = version_of(&pthread_cond_broadcast_here, "pthread_cond_broadcast", "GLIBC_2.3.2");
  if (!simulated()) return real(condition);
  locks().notify(condition, true);
  return 0;
}
RONDO_REPLACES(int, sched_yield) {
  RONDO_REAL(sched_yield);
  if (!simulated()) return real();
  machine().yield();
  return 0;
}
RONDO_REPLACES(int, sched_getaffinity, pid_t thread, size_t size, cpu_set_t* cores) {
  RONDO_REAL(sched_getaffinity);
  if (!simulated()) return real(thread, size, cores);
  std::memset(cores, 0, size);
  for (size_t i = 0; i < kCores; ++i) CPU_SET_S(i, size, cores);
  return 0;
}
RONDO_REPLACES(int, sched_setaffinity, pid_t thread, size_t size, const cpu_set_t* cores) {
  RONDO_REAL(sched_setaffinity);
  return simulated() ? 0 : real(thread, size, cores);
}
RONDO_REPLACES(int, sched_getcpu) {
  RONDO_REAL(sched_getcpu);
  return simulated() ? 0 : real();
}

// --- time and chance

RONDO_REPLACES(int, clock_gettime, clockid_t clock, timespec* now) {
  RONDO_REAL(clock_gettime);
  if (!simulated()) return real(clock, now);
  Time time = machine().look_at_clock();
  // The wall clock jumps by an hour at nearly every look, back and forth.
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time += time / kMillisecond % 3 * 3'600 * kSecond;
  *now = {time / kSecond, time % kSecond};
  return 0;
}
RONDO_REPLACES(int, nanosleep, const timespec* time, timespec* left) {
  RONDO_REAL(nanosleep);
  if (!simulated()) return real(time, left);
  machine().wait([] { return false; }, machine().now() + nanoseconds(*time));
  return 0;
}
RONDO_REPLACES(int, clock_nanosleep, clockid_t clock, int flags, const timespec* time, timespec* left) {
  RONDO_REAL(clock_nanosleep);
  if (!simulated()) return real(clock, flags, time, left);
  const Time begin = (flags & TIMER_ABSTIME) != 0 ? 0 : machine().now();
  machine().wait([] { return false; }, begin + nanoseconds(*time));
  return 0;
}
RONDO_REPLACES(ssize_t, getrandom, void* bytes, size_t size, unsigned flags) {
  RONDO_REAL(getrandom);
  if (!simulated()) return real(bytes, size, flags);
  for (size_t i = 0; i < size; ++i)
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(machine().random().next());
  return static_cast<ssize_t>(size);
}

// --- who and where

RONDO_REPLACES(pid_t, getpid) {
  RONDO_REAL(getpid);
  return simulated() ? Machine::process()->pid : real();
}
RONDO_REPLACES(int, gethostname, char* name, size_t size) {
  RONDO_REAL(gethostname);
  if (!simulated()) return real(name, size);
  const std::string text = "h" + std::to_string(Machine::process()->host);
  std::strncpy(name, text.c_str(), size);
  return 0;
}
RONDO_REPLACES(int, stat, const char* path, struct stat* facts) {
  RONDO_REAL(stat);
  const int result = real(path, facts);
  if (simulated() && std::strcmp(path, "/proc/thread-self/ns/net") == 0) {
    facts->st_ino = 77'000 + static_cast<ino_t>(Machine::process()->host);
  }
  return result;
}
RONDO_REPLACES(int, fstat, int descriptor, struct stat* facts) {
  RONDO_REAL(fstat);
  if (!simulated(descriptor)) return real(descriptor, facts);
  if (!kernel().find(descriptor)) return -1;
  *facts = {};
  facts->st_ino = static_cast<ino_t>(descriptor);
  facts->st_mode = S_IFSOCK;
  return 0;
}
RONDO_REPLACES(int, getrlimit, int resource, rlimit* limit) {
  RONDO_REAL(getrlimit);
  if (!simulated()) return real(resource, limit);
  *limit = {100'000, 100'000};
  return 0;
}
RONDO_REPLACES(long, syscall, long number, ...) {
  va_list list;
  va_start(list, number);
  std::array<long, 6> a{};
  for (long& one : a) one = va_arg(list, long);
  va_end(list);
  RONDO_REAL(syscall);
  if (!simulated() || number != SYS_pidfd_open) return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  Process* const watched = machine().find(static_cast<int>(a[0]));
  if (watched == nullptr || watched->ended) return File::fail(ESRCH);
  auto made = std::make_shared<ProcessFile>(*Machine::process(), *watched);
  watched->on_end.push_back([weak = std::weak_ptr(made)] {
    if (const auto file = weak.lock()) file->turned_readable();
  });
  return kernel().add(std::move(made));
}

struct Interfaces {
  ifaddrs entries[2]{};
  sockaddr_in addresses[2]{};
  char names[2][8]{};
};
RONDO_REPLACES(int, getifaddrs, ifaddrs** list) {
  RONDO_REAL(getifaddrs);
  if (!simulated()) return real(list);
  auto* const made = new Interfaces;
  const uint32_t known[] = {0x7f000001, Kernel::address_of(Machine::process()->host)};
  for (size_t i = 0; i < 2; ++i) {
    made->addresses[i].sin_family = AF_INET;
    made->addresses[i].sin_addr.s_addr = htonl(known[i]);
    std::strcpy(made->names[i], i == 0 ? "lo" : "eth0");
    made->entries[i].ifa_next = i == 0 ? &made->entries[1] : nullptr;
    made->entries[i].ifa_name = made->names[i];
    made->entries[i].ifa_flags = IFF_UP;
    made->entries[i].ifa_addr = reinterpret_cast<sockaddr*>(&made->addresses[i]);
  }
  *list = made->entries;
  return 0;
}
RONDO_REPLACES(void, freeifaddrs, ifaddrs* list) {
  RONDO_REAL(freeifaddrs);
  if (!simulated()) return real(list);
  delete reinterpret_cast<Interfaces*>(list);
}

}  // namespace rondo::testing::sim

// std::future sleeps on a word, which these simulate.
namespace std {

__attribute__((visibility("default"))) bool __atomic_futex_unsigned_base::_M_futex_wait_until(
    unsigned* word, unsigned value, bool has_timeout, chrono::seconds s, chrono::nanoseconds ns) {
  using rondo::testing::sim::Machine;
  const auto deadline =
      has_timeout ? s.count() * rondo::testing::sim::kSecond + ns.count() : rondo::testing::sim::kNever;
  return Machine::current()->wait([word, value] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; }, deadline);
}
__attribute__((visibility("default"))) void __atomic_futex_unsigned_base::_M_futex_notify_all(unsigned*) {
  using rondo::testing::sim::Machine;
  if (Machine::current() != nullptr) Machine::current()->changed(*Machine::process());
}
__attribute__((visibility("default"))) random_device::result_type random_device::_M_getval() {
  using rondo::testing::sim::Machine;
  return Machine::current() != nullptr ? static_cast<unsigned>(Machine::current()->random().next()) : 4;
}

}  // namespace std
