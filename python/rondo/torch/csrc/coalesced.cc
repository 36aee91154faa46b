// Several collectives as one call of torch.

#include "csrc/run.h"

namespace rondo_torch {

using c10d::OpType;

namespace {

// torch 2.9 has no type of its own for it.
template <typename Type>
constexpr Type reduce_scatter_coalesced_type() {
  if constexpr (requires { Type::REDUCE_SCATTER_TENSOR_COALESCED; }) {
    return Type::REDUCE_SCATTER_TENSOR_COALESCED;
  } else {
    return Type::COALESCED;
  }
}

}  // namespace

WorkPointer RondoBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const InStream place = place_of(tensors.empty() ? at::Tensor() : tensors[0], options.asyncOp);
  std::vector<Block> blocks;
  std::vector<rondo_tensor_t> list;
  double scalar = 1;
  rondo_op_t op = RONDO_SUM;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, "all_reduce_coalesced");
    const Reduction how = reduction(options.reduceOp, tensor.scalar_type());
    const Block& block = blocks.emplace_back(tensor, Access::kUpdate, "all_reduce_coalesced");
    list.push_back({block.data(), block.data(), block.items() * how.elements.per_item, how.elements.dtype});
    scalar = how.scalar;
    op = how.op;
  }
  const rondo_options_t limits = call_options(options.timeout, scalar);
  auto start = [&](rondo_work_t* work) {
    if (work == nullptr) return rondo_all_reduce_many(comm_, list.data(), list.size(), op, &limits);
    return rondo_all_reduce_many_async(comm_, list.data(), list.size(), op, &limits, work);
  };
  auto after = [blocks] {
    for (const Block& block : blocks) block.write_back();
  };
  return run({OpType::ALLREDUCE_COALESCED, "rondo:all_reduce", tensors, after}, tensors, options.asyncOp, start);
}

WorkPointer RondoBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "rondo all_gather_into_tensor_coalesced: ", outputs.size(),
                    " outputs and ", inputs.size(), " inputs; there must be as many");
  return run_as_group(OpType::COALESCED, "rondo:_all_gather_base", inputs, options.asyncOp, [&] {
    for (size_t i = 0; i < inputs.size(); ++i) _allgather_base(outputs[i], inputs[i], options);
  });
}

WorkPointer RondoBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_), "rondo all_gather_coalesced: ", outputs.size(),
                    " output lists; one a rank is needed, ", size_);
  for (const Tensors& list : outputs) {
    TORCH_CHECK_VALUE(list.size() == inputs.size(), "rondo all_gather_coalesced: an output list has ", list.size(),
                      " tensors, and there are ", inputs.size(), " inputs");
  }
  return run_as_group(OpType::ALLGATHER_COALESCED, "rondo:all_gather", inputs, options.asyncOp, [&] {
    for (size_t i = 0; i < inputs.size(); ++i) {
      TensorLists of_one(1);
      for (const Tensors& list : outputs) of_one[0].push_back(list[i]);
      Tensors input{inputs[i]};
      allgather(of_one, input, options);
    }
  });
}

WorkPointer RondoBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "rondo reduce_scatter_tensor_coalesced: ", outputs.size(),
                    " outputs and ", inputs.size(), " inputs; there must be as many");
  return run_as_group(reduce_scatter_coalesced_type<OpType>(), "rondo:_reduce_scatter_base", inputs, options.asyncOp,
                      [&] {
                        for (size_t i = 0; i < inputs.size(); ++i) _reduce_scatter_base(outputs[i], inputs[i], options);
                      });
}

}  // namespace rondo_torch
