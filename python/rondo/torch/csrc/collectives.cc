// Collectives on one tensor a rank.

#include "csrc/run.h"

namespace rondo_torch {

using c10d::OpType;

WorkPointer RondoBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options, rondo_wire_format_t wire) {
  at::Tensor& tensor = only(tensors, "all_reduce");
  if (!options.asyncOp && allreduce_as_it_lies(tensor, options.reduceOp, options.timeout, wire)) return nullptr;
  if (tensor.layout() == at::kSparse && wire == RONDO_WIRE_NONE) return allreduce_sparse(tensors, options);
  const InStream place = place_of(tensor, options.asyncOp);
  check_tensor(tensor, "all_reduce");
  const Reduction how = reduction(options.reduceOp, tensor.scalar_type());
  const Block block(tensor, Access::kUpdate, "all_reduce");
  const rondo_options_t limits = all_reduce_options(options.timeout, how.scalar, wire);
  const rondo_call_t call = rondo_even(RONDO_ALL_REDUCE, block.data(), block.data(),
                                       block.items() * how.elements.per_item, how.elements.dtype, how.op, -1, &limits);
  return run({OpType::ALLREDUCE, "rondo:all_reduce", {tensor}, after(block, block)}, tensors, options.asyncOp,
             collective(call));
}

// The objects of a Work would show in the time of a small all_reduce.
bool RondoBackend::allreduce_as_it_lies(at::Tensor& tensor, const c10d::ReduceOp& op, std::chrono::milliseconds timeout,
                                        rondo_wire_format_t wire) {
  const bool lies_well =
      tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided && lies_in_order(tensor);
  if (!lies_well || groups_here() || profiled()) return false;
  const Reduction how = reduction(op, tensor.scalar_type());
  const rondo_options_t limits = all_reduce_options(timeout, how.scalar, wire);
  const uint64_t count = static_cast<uint64_t>(tensor.numel()) * how.elements.per_item;
  void* data = tensor.data_ptr();
  Use use(*this);
  sequence_number_.fetch_add(1, std::memory_order_relaxed);
  check(rondo_all_reduce(comm_, data, data, count, how.elements.dtype, how.op, &limits));
  return true;
}

WorkPointer RondoBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor& tensor = only(tensors, "reduce");
  const InStream place = place_of(tensor, options.asyncOp);
  check_tensor(tensor, "reduce");
  check_root(options.rootRank, "reduce");
  const Reduction how = reduction(options.reduceOp, tensor.scalar_type());
  const int root = static_cast<int>(options.rootRank);
  const Block block(tensor, root == rank_ ? Access::kUpdate : Access::kRead, "reduce");
  const rondo_options_t limits = call_options(options.timeout, how.scalar);
  void* output = root == rank_ ? block.data() : nullptr;
  const rondo_call_t call = rondo_even(RONDO_REDUCE, block.data(), output, block.items() * how.elements.per_item,
                                       how.elements.dtype, how.op, root, &limits);
  return run({OpType::REDUCE, "rondo:reduce", {tensor}, after(block, block)}, tensors, options.asyncOp,
             collective(call));
}

WorkPointer RondoBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = only(tensors, "broadcast");
  const InStream place = place_of(tensor, options.asyncOp);
  check_tensor(tensor, "broadcast");
  check_root(options.rootRank, "broadcast");
  const Elements elements = elements_moved(tensor.scalar_type());
  const int root = static_cast<int>(options.rootRank);
  const Block block(tensor, root == rank_ ? Access::kRead : Access::kWrite, "broadcast");
  const rondo_options_t limits = call_options(options.timeout);
  const rondo_call_t call = rondo_even(RONDO_BROADCAST, block.data(), block.data(), block.items() * elements.per_item,
                                       elements.dtype, RONDO_SUM, root, &limits);
  return run({OpType::BROADCAST, "rondo:broadcast", {tensor}, after(block, block)}, tensors, options.asyncOp,
             collective(call));
}

WorkPointer RondoBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options,
                                          rondo_wire_format_t wire) {
  const InStream place = place_of(output, options.asyncOp);
  check_tensor(output, "all_gather_into_tensor");
  check_tensor(input, "all_gather_into_tensor");
  check_same_type(output, input, "all_gather_into_tensor");
  TORCH_CHECK_VALUE(output.numel() == input.numel() * size_, "rondo all_gather_into_tensor: the output has ",
                    output.numel(), " elements; it needs the input's ", input.numel(), " times ", size_, " ranks");
  const Elements elements = elements_moved(input.scalar_type());
  const Block source(input, Access::kRead, "all_gather_into_tensor");
  const Block target(output, Access::kWrite, "all_gather_into_tensor");
  const rondo_options_t limits = call_options(options.timeout, 1, wire);
  const rondo_call_t call = rondo_even(RONDO_ALL_GATHER, source.data(), target.data(),
                                       source.items() * elements.per_item, elements.dtype, RONDO_SUM, -1, &limits);
  return run({OpType::_ALLGATHER_BASE, "rondo:_all_gather_base", {output}, after(source, target)}, {input},
             options.asyncOp, collective(call));
}

WorkPointer RondoBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options, rondo_wire_format_t wire) {
  const InStream place = place_of(output, options.asyncOp);
  check_tensor(output, "reduce_scatter_tensor");
  check_tensor(input, "reduce_scatter_tensor");
  check_same_type(output, input, "reduce_scatter_tensor");
  TORCH_CHECK_VALUE(input.numel() == output.numel() * size_, "rondo reduce_scatter_tensor: the input has ",
                    input.numel(), " elements; it needs the output's ", output.numel(), " times ", size_, " ranks");
  const Reduction how = reduction(options.reduceOp, input.scalar_type());
  const Block source(input, Access::kRead, "reduce_scatter_tensor");
  const Block target(output, Access::kWrite, "reduce_scatter_tensor");
  const rondo_options_t limits = call_options(options.timeout, how.scalar, wire);
  const rondo_call_t call = rondo_even(RONDO_REDUCE_SCATTER, source.data(), target.data(),
                                       target.items() * how.elements.per_item, how.elements.dtype, how.op, -1, &limits);
  return run({OpType::_REDUCE_SCATTER_BASE, "rondo:_reduce_scatter_base", {output}, after(source, target)}, {input},
             options.asyncOp, collective(call));
}

WorkPointer RondoBackend::barrier(const c10d::BarrierOptions& options) {
  const InStream place = place_on(options.device.value_or(at::kCPU), options.asyncOp);
  const bool waits = InStream::here() && !options.asyncOp;
  const rondo_options_t limits = call_options(options.timeout);
  rondo_call_t call = RONDO_CALL_INIT;
  call.collective = RONDO_BARRIER;
  call.options = &limits;
  WorkPointer work =
      run({OpType::BARRIER, "rondo:barrier", {}, nullptr, true}, {}, options.asyncOp || waits, collective(call));
  if (!waits) return work;
  work->wait();
  return nullptr;
}

}  // namespace rondo_torch
