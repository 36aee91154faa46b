// Proves that each ordering by which kernels of a call meet (kernels/device/call_lane.h) is needed, and that all of
// them suffice. Every lane of every rank is a thread, which pauses at random; the ranks make calls of several plans on
// the memory of all, with messages among them. Under the thread sanitizer --weaken=none is clean, and each
// --weaken=ORDERING of main() makes it report a race (exit code 66).
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device/host_lane.h"

namespace rondo {
namespace {

constexpr uint32_t kRanks = 3, kLanes = 2, kCalls = 150, kCount = 96;

struct WeakAcquire : CallOrders {
  static constexpr std::memory_order kAcquire = std::memory_order_relaxed;
};
struct WeakRelease : CallOrders {
  static constexpr std::memory_order kRelease = std::memory_order_relaxed;
};
struct WeakLeft : CallOrders {
  static constexpr std::memory_order kLeft = std::memory_order_relaxed;
};

// What a lane runs on: passes of a test's own, whose accesses the sanitizer sees.
struct Runs {
  void run(const DeviceFold& fold) {
    for (uint64_t i = 0; i < fold.count; ++i) {
      uint32_t sum = 0;
      for (int s = 0; s < fold.source_count; ++s) sum += static_cast<const uint32_t*>(fold.sources[s])[i];
      for (int t = 0; t < fold.target_count; ++t) static_cast<uint32_t*>(fold.targets[t])[i] = sum;
      if (i % 16 == 0) pause();
    }
  }
  void pause() {
    random = random * 1664525 + 1013904223;
    if (random >> 30 == 0) std::this_thread::yield();
  }
  uint32_t random;
};

struct Rank {
  std::unique_ptr<DeviceControl> control = std::make_unique<DeviceControl>();
  CallStatus status = {};
  std::vector<uint32_t> memory = std::vector<uint32_t>(2 * kRanks * kCount);  // input, output
  std::vector<uint32_t> slots = std::vector<uint32_t>(kMessageSlots * 1024);
  std::vector<DeviceWindow> windows = std::vector<DeviceWindow>(kRanks);
};

class Group {
 public:
  // Odd calls: every rank adds its share of all inputs and writes it to all outputs. Even ones: what a rank has goes
  // around the ring, by messages.
  void make_call(uint32_t rank, uint32_t number) {
    DeviceCall& call = calls_[rank][number % 2];
    for (uint32_t r = 0; r < kRanks; ++r) call.controls[r] = ranks_[r].control.get();
    Rank& own = ranks_[rank];
    for (uint32_t r = 0; r < kRanks; ++r) own.windows[r] = {ranks_[r].memory.data(), 8 * kRanks * kCount};
    call.windows = own.windows.data();
    call.window_count = 1;
    call.status = &own.status;
    call.arrivals = own.slots.data();
    call.departures = ranks_[(rank + 1) % kRanks].slots.data();
    call.slot_bytes = 4096;
    call.limit_ns = 60'000'000'000;
    call.card = {7, {0, 0, 0, 0}, {0, 0, 4 * kRanks * kCount, 0}};
    call.messages = number % 2 == 1 ? 0 : kRanks - 1;
    call.rank = static_cast<uint8_t>(rank);
    call.world = kRanks;
    call.dtype = static_cast<uint8_t>(DType::kUint32);
    call_ = &call;
    const uint16_t others = static_cast<uint16_t>((1u << kRanks) - 1 - (1u << rank));
    add({CallStep::kSignal, 0, others, 0, 0});
    add({CallStep::kAwait, 0, others, 0, 0});
    if (number % 2 == 1) {
      std::vector<CallRef> refs;
      for (uint32_t r = 0; r < kRanks; ++r) refs.push_back(block_of(r, rank, CallRef::kInput));
      for (uint32_t r = 0; r < kRanks; ++r) refs.push_back(block_of(r, rank, CallRef::kOutput));
      add_pass(refs, kRanks);
      add({CallStep::kSignal, 1, others, 0, 0});
      add({CallStep::kAwait, 1, others, 0, 0});
    } else {
      add_messages(rank);
    }
  }

  template <class Orders>
  bool run() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const uint32_t number : {1, 2}) make_call(rank, number);
    }
    std::vector<std::thread> threads;
    std::atomic<bool> right{true};
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        for (uint32_t number = 1; number <= kCalls && right.load(std::memory_order_relaxed); ++number) {
          if (!run_rank<Orders>(rank, number)) right = false;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return right;
  }

 private:
  // Block `own` of a rank's buffer, for the rank `own`.
  CallRef block_of(uint32_t rank, uint32_t own, CallRef::Place place) {
    const uint32_t first = (place == CallRef::kOutput ? kRanks : 0) + own;
    if (rank == own)
      return {reinterpret_cast<uintptr_t>(&ranks_[rank].memory[first * kCount]), 0, 0, CallRef::kAddress};
    return {4 * own * kCount, 0, static_cast<uint8_t>(rank), static_cast<uint8_t>(place)};
  }
  void add(const CallStep& step) { call_->steps[call_->step_count++] = step; }
  void add_pass(const std::vector<CallRef>& refs, size_t sources) {
    uint16_t passes = 0, first = 0;
    for (uint32_t s = 0; s < call_->step_count; ++s) passes += call_->steps[s].kind == CallStep::kPass;
    if (passes > 0) {
      const CallPass& last = call_->passes[passes - 1];
      first = static_cast<uint16_t>(last.first_ref + last.source_count + last.target_count);
    }
    std::copy(refs.begin(), refs.end(), call_->refs + first);
    call_->passes[passes] = {
        kCount, 0, first, static_cast<uint8_t>(sources), static_cast<uint8_t>(refs.size() - sources), 0};
    add({CallStep::kPass, 0, 0, 0, passes});
  }
  // Block k of the output comes from the rank k places before, over all ranks between.
  void add_messages(uint32_t rank) {
    const auto next = static_cast<uint16_t>(1u << (rank + 1) % kRanks);
    const auto before = static_cast<uint16_t>(1u << (rank + kRanks - 1) % kRanks);
    const CallRef input = {reinterpret_cast<uintptr_t>(ranks_[rank].memory.data()), 0, 0, CallRef::kAddress};
    for (uint16_t k = 0; k < kRanks; ++k) {
      const bool comes = k > 0, goes = k + 1u < kRanks;
      std::vector<CallRef> refs{comes ? CallRef{k - 1u, 0, 0, CallRef::kArrival} : input};
      refs.push_back({input.offset + 4 * (kRanks + k) * kCount, 0, 0, CallRef::kAddress});
      if (goes) refs.push_back({k, 0, 0, CallRef::kDeparture});
      if (comes) add({CallStep::kAwait, 4, before, k, 0});
      if (goes && k >= kMessageSlots) {
        add({CallStep::kAwait, 5, next, static_cast<uint16_t>(k + 1 - kMessageSlots), 0});
      }
      add_pass(refs, 1);
      if (goes) add({CallStep::kSignal, 4, next, static_cast<uint16_t>(k + 1), 0});
      if (comes) add({CallStep::kSignal, 5, before, k, 0});
    }
  }

  template <class Orders>
  bool run_rank(uint32_t rank, uint32_t number) {
    Rank& own = ranks_[rank];
    DeviceCall call = calls_[rank][number % 2];
    call.number = number;
    for (uint32_t i = 0; i < kRanks * kCount; ++i) own.memory[i] = number * 100 + rank * 10 + i / kCount;
    std::vector<std::thread> lanes;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      lanes.emplace_back([&, lane] {
        Runs runs{number * 97 + rank * 31 + lane};
        run_host_lane<Orders>(call, runs, lane, kLanes);
      });
    }
    // The host looks at the word alone: what the threads' ends order, it does not know.
    while (std::atomic_ref<uint32_t>(own.status.passed).load(std::memory_order_acquire) != number) {
      std::this_thread::yield();
    }
    bool right = own.status.failure == 0;
    for (uint32_t i = 0; i < kRanks * kCount; ++i) {
      const uint32_t block = i / kCount, from = (rank + kRanks - block) % kRanks;
      const uint32_t expected = number % 2 == 1 ? 3 * number * 100 + 30 + 3 * block : number * 100 + from * 10;
      right = right && own.memory[kRanks * kCount + i] == expected;
    }
    for (std::thread& lane : lanes) lane.join();
    return right;
  }

  Rank ranks_[kRanks];
  DeviceCall calls_[kRanks][2] = {};  // of even numbers, and of odd ones
  DeviceCall* call_ = nullptr;
};

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) {
  const std::string weakened = argc == 2 ? std::string(argv[1]).substr(std::strlen("--weaken=")) : "";
  const auto group = std::make_unique<rondo::Group>();
  bool right = false;
  if (weakened == "none") right = group->run<rondo::CallOrders>();
  if (weakened == "acquire") right = group->run<rondo::WeakAcquire>();
  if (weakened == "release") right = group->run<rondo::WeakRelease>();
  if (weakened == "left") right = group->run<rondo::WeakLeft>();
  if (!right) std::fprintf(stderr, "%s: a wrong result, or no such ordering\n", weakened.c_str());
  return right ? 0 : 1;
}
