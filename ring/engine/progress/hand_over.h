#pragma once

#include <atomic>
#include <cstdint>

namespace rondo {

// The orders of the stores by which threads hand over what is under way: each side stores, then loads what the other
// stores. tests/engine/hand_over_test runs the interleavings of a few threads over them, and weakens each in turn.
// Other stores are followed by an exchange before what matters is loaded.
struct HandOverOrders {
  static constexpr std::memory_order kRelease = std::memory_order_seq_cst;      // of a lease
  static constexpr std::memory_order kMiss = std::memory_order_seq_cst;         // of a flow, before a sleep
  static constexpr std::memory_order kDrop = std::memory_order_seq_cst;         // of a flow from the worker's list
  static constexpr std::memory_order kGiveUp = std::memory_order_seq_cst;       // of the watch
  static constexpr std::memory_order kSoundAsleep = std::memory_order_seq_cst;  // of the worker's thread
};

// A flow as threads see it: its lease, and whether something is under way. Any thread, unless said otherwise.
template <template <typename> class Atomic, typename Orders>
class BasicFlowState {
 public:
  bool try_acquire() { return !held_.exchange(true); }
  // True: a sleeper could not watch the flow meanwhile, and something is under way: Worker::look_again(). By the
  // holder.
  bool release() {
    held_.store(false, Orders::kRelease);
    return missed_.load() && missed_.exchange(false) && under_way();
  }
  bool held() const { return held_.load(); }
  // A thread calls it that is about to sleep. False: another has the lease, and its release() will say so, since this
  // one has said that it missed the flow before it tried again.
  bool try_acquire_before_sleep() {
    if (try_acquire()) return true;
    miss();
    return try_acquire();
  }
  // The holder sleeps with the lease: sleepers that were to be rung for the flow are not any more. Then it looks for
  // threads that wait for operations that it has ended.
  void miss() { missed_.store(true, Orders::kMiss); }

  // There is something in the flow's queue, or not any more. By the holder of that queue's lock.
  void submitted(bool any) { submitted_.store(any); }
  bool submitted() const { return submitted_.load(); }
  // So many operations more, or fewer, are under way. By the holder of the lease; what was submitted is counted first,
  // and then not submitted any more.
  void count(int change) { count_.store(count_.load(std::memory_order_relaxed) + change, std::memory_order_release); }
  bool under_way() const { return submitted_.load() || count_.load() > 0; }
  // Nothing is under way of what was counted before the last holder gave the lease back: who counts an operation gives
  // the lease back, and then asks what the worker does.
  bool idle() const {
    static_cast<void>(held_.load());
    return !under_way();
  }

  // The worker has it in its list. Changed under the worker's lock.
  bool listed(std::memory_order order = std::memory_order_seq_cst) const { return listed_.load(order); }
  void list(bool listed) { listed_.store(listed); }
  // False: it is not idle, and stays. First it is not listed, then the second look: who starts an operation counts it,
  // gives the lease back, and then asks whether the flow is listed.
  bool drop_if_idle() {
    if (!idle()) return false;
    listed_.store(false, Orders::kDrop);
    if (idle()) return true;
    list(true);
    return false;
  }

 private:
  Atomic<bool> held_{false};
  Atomic<bool> missed_{false};  // a sleeper may not be rung for this flow
  Atomic<bool> submitted_{false};
  Atomic<int> count_{0};
  Atomic<bool> listed_{false};
};

// Who of a join looks after the flows that no thread waits for. Any thread.
template <template <typename> class Atomic, typename Orders>
class BasicWatchState {
 public:
  // The watch: one thread has it at a time. False: another has it.
  bool take() {
    auto nobody = Holder::kNobody;
    return holder_.load(std::memory_order_relaxed) == nobody && holder_.compare_exchange_strong(nobody, Holder::kAwake);
  }
  // Afterwards the thread looks whether a flow is under way, and wakes the worker's thread if left().
  void give_up() { holder_.store(Holder::kNobody, Orders::kGiveUp); }
  // Its holder is about to sleep, and is rung for all flows. Afterwards it looks whether another flow was listed.
  void fall_asleep() { holder_.store(Holder::kAsleep); }
  void wake() { holder_.store(Holder::kAwake); }
  bool asleep() const { return holder_.load() == Holder::kAsleep; }
  bool nobody() const { return holder_.load() == Holder::kNobody; }

  // The worker's thread is about to sleep until it is rung, or does so no more. First it says so, then it looks: who
  // gives up the watch, or leaves an operation, reads it afterwards.
  void sound_asleep(bool asleep) { sound_asleep_.store(asleep, Orders::kSoundAsleep); }
  // Nobody looks after the flows: the thread must be rung.
  bool left() const { return sound_asleep_.load() && nobody(); }

 private:
  enum class Holder : uint8_t { kNobody, kAwake, kAsleep };
  Atomic<Holder> holder_{Holder::kNobody};
  Atomic<bool> sound_asleep_{false};
};

using FlowState = BasicFlowState<std::atomic, HandOverOrders>;
using WatchState = BasicWatchState<std::atomic, HandOverOrders>;

}  // namespace rondo
