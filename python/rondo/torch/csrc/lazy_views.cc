// Lazy conjugates and negatives in torch.distributed's calls. Before a backend sees such a tensor torch puts a clone in
// its place, which is right for what is read: what is received goes to the clone, and is lost. Groups of this backend
// get the tensors themselves (Block copies them); other groups' calls stay as they are.

#include <ATen/native/MathBitsFallback.h>
#include <torch/library.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace rondo_torch {

namespace {

using Stack = torch::jit::Stack;

struct Conjugates final : at::native::MathOpFallback {
  Conjugates() : MathOpFallback(c10::DispatchKey::Conjugate, "conjugate") {}
  bool is_bit_set(const at::Tensor& tensor) override { return tensor.is_conj(); }
};

struct Negatives final : at::native::MathOpFallback {
  Negatives() : MathOpFallback(c10::DispatchKey::Negative, "negation") {}
  bool is_bit_set(const at::Tensor& tensor) override { return tensor.is_neg(); }
};

bool of_this_backend(const c10::FunctionSchema& call, const Stack& stack) {
  const auto group = call.argumentIndexWithName("process_group");
  TORCH_CHECK(group, "rondo: torch's call ", call.name(), " has no process group");
  const c10::IValue& given = stack[stack.size() - call.arguments().size() + static_cast<size_t>(*group)];
  return given.toCustomClass<c10d::ProcessGroup>()->getBackend(at::kCPU)->getBackendName() == "rondo";
}

template <typename Fallback>
void call_with_lazy_views(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  Fallback fallback;
  if (!of_this_backend(op.schema(), *stack)) return fallback.fallback_impl(op, keys, stack);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, fallback.key), stack);
}

template <typename Fallback>
void register_calls(torch::Library& library) {
  for (const char* call : {"_allgather_base_", "_reduce_scatter_base_", "allgather_", "allgather_coalesced_",
                           "allgather_into_tensor_coalesced_", "allreduce_", "allreduce_coalesced_", "alltoall_",
                           "alltoall_base_", "broadcast_", "gather_", "recv_", "recv_any_source_", "reduce_",
                           "reduce_scatter_", "reduce_scatter_tensor_coalesced_", "scatter_", "send"}) {
    library.impl(call, torch::CppFunction::makeFromBoxedFunction<&call_with_lazy_views<Fallback>>());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(c10d, Conjugate, library) { register_calls<Conjugates>(library); }

TORCH_LIBRARY_IMPL(c10d, Negative, library) { register_calls<Negatives>(library); }

}  // namespace rondo_torch
