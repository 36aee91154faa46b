#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/random.h"

namespace rondo::testing::sim {

using Time = int64_t;  // nanoseconds of the simulated clock
inline constexpr Time kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr Time kNever = INT64_MAX;

struct Fiber;
class Machine;

// A simulated process: threads, and an end.
struct Process {
  Machine* machine = nullptr;
  int pid = 0;
  int host = 0;
  bool ended = false;
  Time stopped_until = 0;     // SIGSTOP: none of its threads runs before
  std::vector<Fiber*> held;   // could run, but for that
  std::set<Fiber*> sleeping;  // wait for something of this process that may change, with a condition
  bool changed = false;       // since they looked
  int threads = 0;
  std::vector<std::function<void()>> on_end;  // what the kernel closes
};

// The clock, the threads of all processes, and what happens at a time. One of them runs at a time, on a stack of its
// own; it is left where it waits, and at points that the seed picks. The same seed gives the same run.
class Machine {
 public:
  explicit Machine(uint64_t seed);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // The one that runs now, with the process and the thread; null outside of run(), and while events happen.
  static Machine* current();
  static Process* process();
  static Fiber* thread();

  Random& random() { return random_; }
  Time now() const { return now_; }
  uint64_t steps() const { return steps_; }  // threads resumed, and events: where a fault can be put
  // A number of what has happened so far: equal runs have equal ones.
  uint64_t digest() const { return digest_; }

  Process& spawn(int host, std::function<void()> main);
  Process* find(int pid);
  // Ends it like SIGKILL and exit(): no thread of it runs any more, and the kernel closes what it had.
  void end(Process& process);
  void stop(Process& process, Time until);

  void at(Time time, std::function<void()> event);
  void after(Time delay, std::function<void()> event) { at(now_ + delay, std::move(event)); }

  // before(step): before each step. Ends when no process lives, or at that time; false: some live still.
  bool run(const std::function<void(uint64_t step)>& before, Time until);
  std::string living() const;

  // --- for the thread that runs
  // Until `ready`, which looks at things of this process, or the deadline. True: it is ready.
  bool wait(std::function<bool()> ready, Time deadline);
  void yield();
  // Others may run here; the clock goes on.
  void point();
  Time look_at_clock() { return now_ += kClockCost; }
  // A condition of the process's threads may have become true.
  void changed(Process& process);

  Fiber* start_thread(void* (*body)(void*), void* argument);
  bool join(Fiber* thread);
  void detach(Fiber*) {}

 private:
  static constexpr Time kClockCost = 50;

  void resume(Fiber& fiber);
  void leave();  // to run(), until resumed
  void make_ready(Fiber& fiber);
  void look_at(Process& process);
  void wake(Fiber& fiber, bool ready);
  Fiber* next_fiber();

  Random random_;
  Time now_ = 1'700'000'000 * kSecond;
  uint64_t steps_ = 0, digest_ = 0, order_ = 0;
  int next_pid_ = 1000;
  std::map<int, std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> ready_;
  std::vector<Process*> changed_;
  std::map<std::pair<Time, uint64_t>, Fiber*> deadlines_;  // by time and number
  std::map<std::pair<Time, uint64_t>, std::function<void()>> events_;
  int alive_ = 0;
};

// Mutexes and condition variables of the threads, by their addresses.
class Locks {
 public:
  void lock(void* mutex, bool recursive);
  bool try_lock(void* mutex, bool recursive);
  void unlock(void* mutex);
  // True: notified.
  bool wait(void* condition, void* mutex, Time deadline);
  void notify(void* condition, bool all);

 private:
  struct Held {
    Fiber* by = nullptr;
    Process* of = nullptr;
    int times = 0;
    int wanted = 0;
  };
  struct Waiter {
    Process* of = nullptr;
    bool notified = false;
  };
  static bool taken(const Held& held);

  std::map<void*, Held> held_;
  std::map<void*, std::deque<Waiter*>> waiting_;
};

Locks& locks();

}  // namespace rondo::testing::sim
