#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "ring/engine/progress/wait_policy.h"
#include "ring/engine/run/lane_run.h"
#include "transport/doorbell.h"

namespace rondo {

// Threads that move lanes of one operation beside its engine, where a rank has cores to spare: a thread sends or
// receives some 4 GB/s (it copies, and folds), which is less than a fast network card does. Nothing rests on them: the
// engine moves every lane that no other thread moves right now, so a thread that is late or asleep costs time only.
//
// A thread holds a lane for one pass at a time; a thread that finds it held goes on to the next. A helper polls while
// its lanes move and for the usual time afterwards, then sleeps until the engine has moved one of them, or the next
// operation begins. begin(), end(), pass() and quietly() are the engine's, under its lease.
class LaneCrew {
 public:
  // threads: at most lanes - 1. bell: rung when a lane has ended, or cannot go on. Throws Exception(kSystem) if a
  // thread cannot be started.
  LaneCrew(uint32_t lanes, uint32_t threads, WaitPolicy policy, std::shared_ptr<Doorbell> bell);
  ~LaneCrew();  // waits for passes under way
  LaneCrew(const LaneCrew&) = delete;
  LaneCrew& operator=(const LaneCrew&) = delete;

  // From here on helpers move these lanes, at most as many as the crew was made for; they and what they are bound to
  // must stay until end() has returned.
  void begin(std::span<LaneRun> lanes);
  // No helper touches the lanes any more when this returns (a pass of one is waited for). Also if none had begun.
  void end();
  bool active() const { return count_ > 0; }

  struct Progress {
    bool moved = false;  // or another thread is at it
    bool done = true;    // all lanes
  };
  // Moves each lane that no helper holds. Throws what a helper's pass threw.
  Progress pass(LaneRun::Landing landing);

  // Calls `action` while no helper is in a pass.
  template <typename Action>
  auto quietly(Action action) {
    const Stillness still(*this);
    return action();
  }

 private:
  struct alignas(64) Slot {
    std::atomic<bool> held{false};
    // Of the holder:
    LaneRun* lane = nullptr;
    std::exception_ptr thrown;
  };
  struct Stillness {
    explicit Stillness(LaneCrew& crew) : crew_(crew) { crew_.hold_all(); }
    ~Stillness() { crew_.release_all(); }
    LaneCrew& crew_;
  };

  void help(uint32_t helper);
  bool move_own(uint32_t helper, bool& left);
  void work(uint32_t helper);
  void call_helpers();
  void stop();
  void hold_all();
  void release_all();
  static bool try_hold(Slot& slot) {
    return !slot.held.load(std::memory_order_relaxed) && !slot.held.exchange(true, std::memory_order_acquire);
  }
  static void release(Slot& slot) { slot.held.store(false, std::memory_order_release); }
  // 0: the engine's.
  uint32_t owner_of(uint32_t lane) const { return lane % (static_cast<uint32_t>(threads_.size()) + 1); }

  WaitPolicy policy_;
  std::shared_ptr<Doorbell> bell_;  // shared with the engine, which may be gone first
  std::vector<Slot> slots_;         // by lane
  uint32_t count_ = 0;              // lanes of the operation under way; the engine's

  // No mutex: a forked child destroys this too, and must not wait for what a thread held that it does not have.
  std::atomic<uint32_t> calls_{0};
  std::atomic<uint32_t> asleep_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;  // thread i is helper i + 1
};

}  // namespace rondo
