#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/device/device_call.h"

namespace rondo::testing {

// Ranks whose lanes meet in tests of the protocol (kernels/device/call_lane.h), and their calls on blocks of uint32.
// Odd calls: every rank adds its block of all inputs, and writes it to all outputs. Even ones: what a rank has in its
// first block goes around the ring, by messages: block k of the output comes from the rank k places before.
class LaneCalls {
 public:
  struct Rank {
    std::unique_ptr<DeviceControl> control = std::make_unique<DeviceControl>();
    CallStatus status = {};
    std::vector<uint32_t> memory;  // blocks of the input, then of the output
    std::vector<uint32_t> slots = std::vector<uint32_t>(kMessageSlots * kSlotBytes / 4);
    std::vector<DeviceWindow> windows;
  };
  static constexpr uint64_t kSlotBytes = 4096;

  // count: elements of a block.
  LaneCalls(uint32_t world, uint32_t count) : world_(world), count_(count), ranks_(world) {
    for (Rank& rank : ranks_) rank.memory.resize(size_t{2} * world * count);
    for (Rank& rank : ranks_) {
      for (Rank& other : ranks_) rank.windows.push_back({other.memory.data(), 4 * other.memory.size()});
    }
  }
  Rank& of(uint32_t rank) { return ranks_[rank]; }
  uint32_t* block(uint32_t rank, uint32_t index) { return &ranks_[rank].memory[size_t{index} * count_]; }
  uint32_t world() const { return world_; }
  static uint32_t input_of(uint32_t rank, uint32_t number, uint32_t block) { return number * 100 + rank * 10 + block; }
  uint32_t output_of(uint32_t rank, uint32_t number, uint32_t block) const {
    if (number % 2 == 0) return input_of((rank + world_ - block) % world_, number, 0);
    uint32_t sum = 0;
    for (uint32_t r = 0; r < world_; ++r) sum += input_of(r, number, block);
    return sum;
  }

  DeviceCall make(uint32_t rank, uint32_t number) {
    DeviceCall call = {};
    for (uint32_t r = 0; r < world_; ++r) call.controls[r] = ranks_[r].control.get();
    call.windows = ranks_[rank].windows.data();
    call.window_count = 1;
    call.status = &ranks_[rank].status;
    call.arrivals = ranks_[rank].slots.data();
    call.departures = ranks_[(rank + 1) % world_].slots.data();
    call.slot_bytes = kSlotBytes;
    call.limit_ns = 60'000'000'000;
    call.card = {7, {0, 0, 0, 0}, {0, 0, uint64_t{4} * world_ * count_, 0}};
    call.messages = number % 2 == 1 ? 0 : world_ - 1;
    call.number = number;
    call.rank = static_cast<uint8_t>(rank);
    call.world = static_cast<uint8_t>(world_);
    call.dtype = static_cast<uint8_t>(DType::kUint32);
    const auto others = static_cast<uint16_t>((1u << world_) - 1 - (1u << rank));
    add(call, {CallStep::kSignal, 0, others, 0, 0});
    add(call, {CallStep::kAwait, 0, others, 0, 0});
    if (number % 2 == 0) return add_messages(call), call;
    std::vector<CallRef> refs;
    for (uint32_t r = 0; r < world_; ++r) refs.push_back(block_of(rank, r, CallRef::kInput));
    for (uint32_t r = 0; r < world_; ++r) refs.push_back(block_of(rank, r, CallRef::kOutput));
    add_pass(call, refs, world_);
    add(call, {CallStep::kSignal, 1, others, 0, 0});
    add(call, {CallStep::kAwait, 1, others, 0, 0});
    return call;
  }

 private:
  // Block `own` of a rank's buffer, for the rank `own`.
  CallRef block_of(uint32_t own, uint32_t rank, CallRef::Place place) {
    const uint32_t index = (place == CallRef::kOutput ? world_ : 0) + own;
    if (rank == own) return {reinterpret_cast<uintptr_t>(block(rank, index)), 0, 0, CallRef::kAddress};
    return {uint64_t{4} * own * count_, 0, static_cast<uint8_t>(rank), static_cast<uint8_t>(place)};
  }
  static void add(DeviceCall& call, const CallStep& step) { call.steps[call.step_count++] = step; }
  void add_pass(DeviceCall& call, const std::vector<CallRef>& refs, size_t sources) const {
    uint16_t passes = 0, first = 0;
    for (uint32_t s = 0; s < call.step_count; ++s) passes += call.steps[s].kind == CallStep::kPass;
    if (passes > 0) {
      const CallPass& last = call.passes[passes - 1];
      first = static_cast<uint16_t>(last.first_ref + last.source_count + last.target_count);
    }
    std::copy(refs.begin(), refs.end(), call.refs + first);
    call.passes[passes] = {count_, 0, first, static_cast<uint8_t>(sources), static_cast<uint8_t>(refs.size() - sources),
                           0};
    add(call, {CallStep::kPass, 0, 0, 0, passes});
  }
  void add_messages(DeviceCall& call) {
    const auto next = static_cast<uint16_t>(1u << (call.rank + 1u) % world_);
    const auto before = static_cast<uint16_t>(1u << (call.rank + world_ - 1) % world_);
    const auto own = [&](uint32_t index) {
      return CallRef{reinterpret_cast<uintptr_t>(block(call.rank, index)), 0, 0, CallRef::kAddress};
    };
    for (uint16_t k = 0; k < world_; ++k) {
      const bool comes = k > 0, goes = k + 1u < world_;
      std::vector<CallRef> refs{comes ? CallRef{k - 1u, 0, 0, CallRef::kArrival} : own(0), own(world_ + k)};
      if (goes) refs.push_back({k, 0, 0, CallRef::kDeparture});
      if (comes) add(call, {CallStep::kAwait, 4, before, k, 0});
      if (goes && k >= kMessageSlots) {
        add(call, {CallStep::kAwait, 5, next, static_cast<uint16_t>(k + 1 - kMessageSlots), 0});
      }
      add_pass(call, refs, 1);
      if (goes) add(call, {CallStep::kSignal, 4, next, static_cast<uint16_t>(k + 1), 0});
      if (comes) add(call, {CallStep::kSignal, 5, before, k, 0});
    }
  }

  const uint32_t world_, count_;
  std::vector<Rank> ranks_;
};

}  // namespace rondo::testing
