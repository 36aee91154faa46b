#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "ring/engine/device/stream_plans.h"

namespace rondo::testing {

// Ranks whose lanes meet in tests of the protocol (kernels/device/call_lane.h), and their calls on blocks of uint32, as
// the engine makes them, of the forms given in turn, from call 1 on.
class LaneCalls {
 public:
  // An all_reduce over the memory of all, which would have two slices if it were staged; one of two slices, where the
  // buffers of odd ranks are staged; the same, whose slices ranks learn when they meet; an all_gather of the first
  // block around the ring, by messages; an all_reduce of the first elements by posts.
  enum Form { kSum, kStaged, kUneven, kGather, kPosts };
  static constexpr size_t kForms = 5;
  struct Rank {
    std::unique_ptr<DeviceControl> control = std::make_unique<DeviceControl>();
    CallStatus status = {};
    std::vector<uint32_t> memory;  // blocks of the input, then of the output; then a slice of each of them
    std::vector<uint32_t> slots = std::vector<uint32_t>(kMessageSlots * kSlotBytes / 4);
    std::vector<uint64_t> posts;
    std::vector<DeviceWindow> windows;
    DeviceCall calls[kForms];
  };
  static constexpr uint64_t kSlotBytes = 4096, kPostBytes = 256;

  // count: elements of a block, whole lines of 64 bytes. posted: elements of an all_reduce by posts.
  LaneCalls(uint32_t world, uint32_t count, std::vector<Form> forms, uint32_t posted)
      : world_(world),
        count_(count),
        slice_(std::max(16u, count * 2 / 3 / 16 * 16)),
        posted_(posted),
        forms_(std::move(forms)),
        ranks_(world) {
    for (Rank& rank : ranks_) {
      rank.memory.resize(size_t{4} * world * count);
      rank.posts.resize(post_room(world) / sizeof(uint64_t));
    }
    for (uint32_t rank = 0; rank < world; ++rank) {
      for (Rank& other : ranks_) ranks_[rank].windows.push_back({other.memory.data(), 4 * other.memory.size()});
      for (const Form form : {kSum, kStaged, kUneven, kGather, kPosts}) bind(rank, form);
    }
  }
  Form form_of(uint32_t number) const { return forms_[(number - 1) % forms_.size()]; }
  Rank& of(uint32_t rank) { return ranks_[rank]; }
  uint32_t* block(uint32_t rank, uint32_t index) { return &ranks_[rank].memory[size_t{index} * count_]; }
  static uint32_t input_of(uint32_t rank, uint32_t number, uint32_t block) { return number * 100 + rank * 10 + block; }
  // Where a slice of a block of the input, then of the output, is staged.
  uint32_t* staged(uint32_t rank, uint32_t index) { return block(rank, 2 * world_) + size_t{index} * slice_; }
  // Elements of the output.
  uint32_t outputs_of(uint32_t number) const { return form_of(number) == kPosts ? posted_ : world_ * count_; }
  uint32_t output_of(uint32_t number, uint32_t block) const {
    if (form_of(number) == kGather) return input_of(block, number, 0);
    uint32_t sum = 0;
    for (uint32_t r = 0; r < world_; ++r) sum += input_of(r, number, block);
    return sum;
  }

  DeviceCall make(uint32_t rank, uint32_t number) {
    DeviceCall call = ranks_[rank].calls[form_of(number)];
    call.number = number;
    return call;
  }
  // What lanes run: elements of a fold, which is a sum or a copy of bytes.
  static uint64_t count_of(const DeviceFold& fold) { return fold.fold == kCopies ? fold.count / 4 : fold.count; }

 private:
  void bind(uint32_t rank, Form form) {
    const bool reduces = form != kGather;
    std::vector<int> order(world_);
    std::iota(order.begin(), order.end(), 0);
    Topology topology;
    topology.host.assign(world_, 0);
    topology.island.assign(world_, 0);
    StreamPlans plans(static_cast<int>(rank), topology, order);
    Call what;
    what.collective = reduces ? Collective::kAllReduce : Collective::kAllGather;
    what.input = block(rank, 0);
    what.output = block(rank, world_);
    what.count = form == kPosts ? posted_ : form == kGather ? count_ : uint64_t{world_} * count_;
    what.dtype = DType::kUint32;
    const Algorithm algorithm = !reduces || world_ == 1 ? Algorithm::kRing
                                : form == kPosts        ? Algorithm::kDirect
                                                        : Algorithm::kRegistered;
    const StreamPlans::Entry& plan = plans.get(what.collective, algorithm, -1);
    const bool is_staged = (form == kStaged || form == kUneven) && rank % 2 == 1;
    const auto place = [&](uint32_t index) {
      uint32_t* const data = block(rank, index);
      uint32_t* const slices = staged(rank, index);
      return BufferPlace{.data = reinterpret_cast<std::byte*>(data),
                         .offset = 4 * static_cast<uint64_t>((is_staged ? slices : data) - block(rank, 0)),
                         .staged = is_staged ? reinterpret_cast<std::byte*>(slices) : nullptr};
    };
    DeviceCall& call = ranks_[rank].calls[form];
    call = {};
    call.slice = form == kGather || form == kPosts ? count_ : slice_;
    std::ranges::fill(call.prints, uint64_t{7} + form);
    bind_program(check_call(what, static_cast<int>(rank), static_cast<int>(world_)), plan.plan, plan.program,
                 plan.touched, place(0), place(world_), call);
    call.uneven = form == kUneven;
    for (uint32_t r = 0; r < world_; ++r) {
      call.controls[r] = ranks_[r].control.get();
      call.posts[r] = ranks_[r].posts.data();
    }
    call.post_bytes = kPostBytes;
    call.windows = ranks_[rank].windows.data();
    call.window_count = 1;
    call.status = &ranks_[rank].status;
    call.arrivals = ranks_[rank].slots.data();
    if (plan.program.to >= 0) call.departures = ranks_[static_cast<size_t>(plan.program.to)].slots.data();
    call.slot_bytes = kSlotBytes;
    call.limit_ns = 60'000'000'000;
    call.messages = plan.most_messages;
    call.rank = static_cast<uint8_t>(rank);
    call.world = static_cast<uint8_t>(world_);
  }

  const uint32_t world_, count_, slice_, posted_;
  const std::vector<Form> forms_;
  std::vector<Rank> ranks_;
};

}  // namespace rondo::testing
