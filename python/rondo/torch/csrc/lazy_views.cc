// Lazy conjugates and negatives in torch.distributed's calls. Before a backend sees such a tensor torch puts a clone in
// its place, which is right for what is read: what is received goes to the clone, and is lost. Groups of this backend
// get the tensors themselves (Block copies them); other groups' calls stay as they are.

#include <ATen/native/MathBitsFallback.h>
#include <torch/library.h>

#include <optional>
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

// The device of the first tensor among the values, which may be lists, and lists of lists.
std::optional<c10::DeviceType> device_in(c10::ArrayRef<c10::IValue> values) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device().type();
    if (!value.isList()) continue;
    if (const auto found = device_in(value.toListRef())) return found;
  }
  return std::nullopt;
}

// A group may have another backend for each device, and none for some.
bool of_this_backend(const c10::FunctionSchema& call, const Stack& stack) {
  const auto group = call.argumentIndexWithName("process_group");
  TORCH_CHECK(group, "rondo: torch's call ", call.name(), " has no process group");
  const auto given = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - call.arguments().size());
  const c10::DeviceType device = device_in(given).value_or(at::kCPU);
  const auto process_group = given[static_cast<size_t>(*group)].toCustomClass<c10d::ProcessGroup>();
  return process_group->getBackend(device)->getBackendName() == "rondo";
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
