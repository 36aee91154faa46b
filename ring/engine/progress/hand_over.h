#pragma once

#include <atomic>
#include <cstdint>

namespace rondo {

// Memory orders of the stores by which threads hand over what is under way. Each side stores its own word, then
// loads the word of the other side. With sequential consistency at least one of the two sees the other's store.
// A weaker store could be delayed behind the load: both would see nothing, and both would sleep.
//
// tests/engine/hand_over_test runs the interleavings of a few threads over these templates, and weakens each
// order in turn. Stores without an entry here are followed by an atomic exchange before the load that matters.
struct HandOverOrders {
  // The lease is given back, then missed_ is loaded.
  static constexpr std::memory_order kRelease = std::memory_order_seq_cst;
  // missed_ is set, then the lease is tried once more.
  static constexpr std::memory_order kMiss = std::memory_order_seq_cst;
  // listed_ is cleared, then the flow is looked at.
  static constexpr std::memory_order kDrop = std::memory_order_seq_cst;
  // The watch is given up, then the flows are looked at.
  static constexpr std::memory_order kGiveUp = std::memory_order_seq_cst;
  // The sleep is announced, then the flows are looked at.
  static constexpr std::memory_order kSoundAsleep = std::memory_order_seq_cst;
};

// A flow as threads see it: its lease, and whether operations are under way. Any thread may call it, unless a
// comment names the holder of the lease.
template <template <typename> class Atomic, typename Orders>
class BasicFlowState {
 public:
  // Takes the lease if it is free. The exchange acquires what the last holder wrote: links, runs and operations
  // need no other synchronization.
  bool try_acquire() { return !held_.exchange(true); }
  // Gives the lease back; by its holder. True if a thread fell asleep without being rung for this flow
  // (miss()), and something is under way. The caller must then call Worker::look_again(), or the flow would
  // stand still.
  bool release() {
    held_.store(false, Orders::kRelease);
    return missed_.load() && missed_.exchange(false) && under_way();
  }
  bool held() const { return held_.load(); }
  // By a thread that is about to sleep. If the lease is taken, it sets missed_ and tries again: the holder may
  // have given the lease back before it could see missed_. False: the holder's release() will see it.
  bool try_acquire_before_sleep() {
    if (try_acquire()) return true;
    miss();
    return try_acquire();
  }
  // The doorbell of a flow holds one sleeper's number. Whoever arms it replaces that of a sleeper before, who
  // is not rung for this flow any more; missed_ makes release() ask for another look. The store also orders the
  // ends of operations before the look for threads that wait for them (Flow::arm_own).
  void miss() { missed_.store(true, Orders::kMiss); }

  // There is something in the flow's queue, or nothing any more. By the holder of that queue's lock.
  void submitted(bool any) { submitted_.store(any); }
  bool submitted() const { return submitted_.load(); }
  // So many operations more, or fewer, are under way. The holder of the lease alone writes it, so no exchange
  // is needed. An operation that is taken from the queue is counted before submitted() becomes false: at no
  // time it is in neither.
  void count(int change) { count_.store(count_.load(std::memory_order_relaxed) + change, std::memory_order_release); }
  bool under_way() const { return submitted_.load() || count_.load() > 0; }
  // Nothing is under way. The load of held_ acquires what the last holder of the lease stored, its counts
  // included. A thread that starts an operation counts it, gives the lease back, and then asks whether the flow
  // is listed.
  bool idle() const {
    static_cast<void>(held_.load());
    return !under_way();
  }

  // The worker has it in its list. Changed under the worker's lock.
  bool listed(std::memory_order order = std::memory_order_seq_cst) const { return listed_.load(order); }
  // By the worker, under its lock.
  void list(bool listed) { listed_.store(listed); }
  // Takes the flow from the worker's list if it is idle; under the worker's lock. False: it stays. listed_ is
  // cleared before the second look, and a thread that starts an operation counts it before it loads listed_. So
  // either this sees the operation, or that thread lists the flow again.
  bool drop_if_idle() {
    if (!idle()) return false;
    listed_.store(false, Orders::kDrop);
    if (idle()) return true;
    list(true);
    return false;
  }

 private:
  Atomic<bool> held_{false};
  Atomic<bool> missed_{false};  // a sleeper may exist that is not rung for this flow
  Atomic<bool> submitted_{false};
  Atomic<int> count_{0};
  Atomic<bool> listed_{false};
};

// Which thread of a join has the watch: it moves the flows that no thread waits on. Any thread may call it.
template <template <typename> class Atomic, typename Orders>
class BasicWatchState {
 public:
  // Takes the watch. False: another thread has it. The load before the exchange spares the cache line where one
  // has.
  bool take() {
    auto nobody = Holder::kNobody;
    return holder_.load(std::memory_order_relaxed) == nobody && holder_.compare_exchange_strong(nobody, Holder::kAwake);
  }
  // Afterwards the caller looks whether a flow is under way. If one is, and left() holds, it wakes the worker's
  // thread.
  void give_up() { holder_.store(Holder::kNobody, Orders::kGiveUp); }
  // The holder is about to sleep, and is rung for all flows that it knows. Afterwards it looks whether another
  // flow was listed meanwhile.
  void fall_asleep() { holder_.store(Holder::kAsleep); }
  void wake() { holder_.store(Holder::kAwake); }
  bool asleep() const { return holder_.load() == Holder::kAsleep; }
  bool nobody() const { return holder_.load() == Holder::kNobody; }

  // The worker's thread is about to sleep until it is rung, instead of until its next look; or it is awake
  // again. It stores this, then looks at the flows. A thread that gives up the watch, or leaves an operation,
  // does that first and then loads this word.
  void sound_asleep(bool asleep) { sound_asleep_.store(asleep, Orders::kSoundAsleep); }
  // No thread looks after the flows: the worker's thread must be rung.
  bool left() const { return sound_asleep_.load() && nobody(); }

 private:
  enum class Holder : uint8_t { kNobody, kAwake, kAsleep };
  Atomic<Holder> holder_{Holder::kNobody};
  Atomic<bool> sound_asleep_{false};
};

using FlowState = BasicFlowState<std::atomic, HandOverOrders>;
using WatchState = BasicWatchState<std::atomic, HandOverOrders>;

}  // namespace rondo
