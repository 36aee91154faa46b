#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ring/engine/device/device_side.h"

namespace rondo {

// Calls on streams that a batch collects, until all of them are put into their streams. One thread at a time.
class StreamBatch {
 public:
  // The call has been checked (DeviceSide::check). Counts and displacements are copied.
  void add(const Call& call);
  // The all_reduces of a list.
  void add(std::span<const TensorRef> tensors, Op op, const CallOptions& options);
  void add(std::shared_ptr<StreamCall> message) { messages_.push_back(std::move(message)); }
  size_t size() const { return items_.size() + messages_.size(); }

  // Throws Exception(kInvalid) where all_reduces that run together overlap, and where memory has been given back since
  // its call: nothing is in a stream then.
  void check(CommunicatorState& group) const;
  // Sends first, receives last, and in between collectives in their order; so no stream waits for a message before this
  // rank has sent its own. Consecutive all_reduces of one stream, operation, algorithm and timeout are one list
  // (kPremulSum: each by itself). Throws Exception: some of them may be in their streams.
  std::vector<std::shared_ptr<Operation>> enqueue(DeviceSide& device) const;
  // Ends messages that have not begun.
  void abandon(const Error& error) const;

 private:
  struct Item {
    Call call;
    // What call's spans refer to: moving a vector keeps its elements in their place.
    std::vector<uint64_t> input_counts, output_counts, input_displacements, output_displacements;
  };
  using Run = std::span<const Item>;

  std::vector<Run> runs() const;
  void enqueue_messages(DeviceSide& device, bool sends) const;
  void enqueue_collectives(DeviceSide& device, std::vector<std::shared_ptr<Operation>>& operations) const;
  static std::vector<TensorRef> tensors_of(Run run);

  std::vector<Item> items_;
  std::vector<std::shared_ptr<StreamCall>> messages_;
};

}  // namespace rondo
