#include "ring/engine/device/stream_batch.h"

#include "ring/base/caught.h"

namespace rondo {
namespace {

// Whether the second all_reduce belongs to the list that the first one is in.
bool run_together(const Call& first, const Call& second) {
  return first.collective == Collective::kAllReduce && second.collective == Collective::kAllReduce &&
         first.op == second.op && first.op != Op::kPremulSum && first.options.stream == second.options.stream &&
         first.options.algorithm == second.options.algorithm && first.options.timeout == second.options.timeout;
}

}  // namespace

void StreamBatch::add(const Call& call) {
  Item item{call, {}, {}, {}, {}};
  const auto keep = [](std::span<const uint64_t>& given, std::vector<uint64_t>& kept) {
    kept.assign(given.begin(), given.end());
    given = kept;
  };
  keep(item.call.input_counts, item.input_counts);
  keep(item.call.output_counts, item.output_counts);
  keep(item.call.input_displacements, item.input_displacements);
  keep(item.call.output_displacements, item.output_displacements);
  items_.push_back(std::move(item));
}

void StreamBatch::add(std::span<const TensorRef> tensors, Op op, const CallOptions& options) {
  for (const TensorRef& tensor : tensors) add(all_reduce_of(tensor, op, options));
}

std::vector<StreamBatch::Run> StreamBatch::runs() const {
  std::vector<Run> runs;
  for (size_t first = 0, end = 0; first < items_.size(); first = end) {
    end = first + 1;
    while (end < items_.size() && run_together(items_[first].call, items_[end].call)) ++end;
    runs.push_back(Run(items_).subspan(first, end - first));
  }
  return runs;
}

std::vector<TensorRef> StreamBatch::tensors_of(Run run) {
  std::vector<TensorRef> tensors;
  for (const Item& item : run) {
    tensors.push_back({item.call.input, item.call.output, item.call.count, item.call.dtype});
  }
  return tensors;
}

void StreamBatch::check(CommunicatorState& group) const {
  for (const Item& item : items_) group.device().check(item.call);
  for (const auto& message : messages_) group.device().check(*message);
  for (const Run run : runs()) {
    if (run.size() > 1) group.lists().parts(tensors_of(run), run.front().call.op, run.front().call.options);
  }
}

void StreamBatch::enqueue_collectives(DeviceSide& device, std::vector<std::shared_ptr<Operation>>& operations) const {
  for (const Run run : runs()) {
    const Call& call = run.front().call;
    // Alone it is the same call as outside, so that ranks need not group it alike.
    operations.push_back(run.size() == 1 ? device.start(call)
                                         : device.start_list(tensors_of(run), call.op, call.options));
  }
}

void StreamBatch::enqueue_messages(DeviceSide& device, bool sends) const {
  for (const auto& message : messages_) {
    if (message->sends() == sends) device.enqueue(*message);
  }
}

std::vector<std::shared_ptr<Operation>> StreamBatch::enqueue(DeviceSide& device) const {
  std::vector<std::shared_ptr<Operation>> operations(messages_.begin(), messages_.end());
  try {
    enqueue_messages(device, true);
    enqueue_collectives(device, operations);
    enqueue_messages(device, false);
  } catch (...) {
    abandon(caught());
    throw;
  }
  return operations;
}

void StreamBatch::abandon(const Error& error) const {
  for (const auto& message : messages_) message->abandon(error);
}

}  // namespace rondo
