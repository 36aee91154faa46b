// torch.ops.rondo: collectives as operators of torch, which cost less than torch.distributed's calls and go through
// torch.compile. They have no derivatives: inference is what they are for.

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <string_view>

#include "csrc/backend.h"
#include "csrc/operators.h"

namespace rondo_torch {

namespace {

using Name = c10::string_view;

const c10d::ReduceOp& reduce_op_named(Name name) {
  static const std::map<std::string, c10d::ReduceOp, std::less<>> ops = {
      {"sum", c10d::ReduceOp::SUM}, {"avg", c10d::ReduceOp::AVG},   {"product", c10d::ReduceOp::PRODUCT},
      {"min", c10d::ReduceOp::MIN}, {"max", c10d::ReduceOp::MAX},   {"band", c10d::ReduceOp::BAND},
      {"bor", c10d::ReduceOp::BOR}, {"bxor", c10d::ReduceOp::BXOR},
  };
  const auto found = ops.find(std::string_view(name.data(), name.size()));
  TORCH_CHECK_VALUE(found != ops.end(), "rondo: reduce_op is \"", name,
                    "\"; it is one of sum, avg, product, min, max, band, bor, bxor");
  return found->second;
}

rondo_wire_format_t wire_named(Name name) {
  static const std::map<std::string, rondo_wire_format_t, std::less<>> formats = {
      {"none", RONDO_WIRE_NONE},
      {"float16", RONDO_WIRE_FLOAT16},
      {"bfloat16", RONDO_WIRE_BFLOAT16},
      {"float8_e4m3", RONDO_WIRE_FLOAT8_E4M3},
      {"float8_e5m2", RONDO_WIRE_FLOAT8_E5M2},
      {"int8", RONDO_WIRE_INT8},
      {"int4", RONDO_WIRE_INT4},
      {"packed", RONDO_WIRE_PACKED},
  };
  const auto found = formats.find(std::string_view(name.data(), name.size()));
  TORCH_CHECK_VALUE(found != formats.end(), "rondo: wire is \"", name,
                    "\"; it is one of none, float16, bfloat16, float8_e4m3, float8_e5m2, int8, int4, packed");
  return found->second;
}

c10::intrusive_ptr<RondoBackend> backend_for(Name group, const char* call) {
  c10::intrusive_ptr<RondoBackend> backend = RondoBackend::named({group.data(), group.size()});
  TORCH_CHECK_VALUE(!backend->groups_here(), "torch.ops.rondo.", call,
                    ": operators cannot be part of a group of calls; use torch.distributed's call there");
  return backend;
}

void all_reduce_(at::Tensor& tensor, Name op, Name group, Name wire) {
  const c10d::ReduceOp& how = reduce_op_named(op);
  const rondo_wire_format_t format = wire_named(wire);
  const c10::intrusive_ptr<RondoBackend> backend = backend_for(group, "all_reduce_");
  if (backend->allreduce_as_it_lies(tensor, how, c10d::kUnsetTimeout, format)) return;
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  options.reduceOp = how;
  Tensors tensors{tensor};
  backend->allreduce(tensors, options, format);
}

std::vector<c10::SymInt> gathered_shape(const at::Tensor& input, Name group) {
  const int size = RondoBackend::named({group.data(), group.size()})->getSize();
  std::vector<c10::SymInt> shape = input.sym_sizes().vec();
  if (shape.empty()) return {size};
  shape[0] = shape[0] * size;
  return shape;
}

at::Tensor all_gather_meta(const at::Tensor& input, Name group, Name) {
  return input.new_empty_symint(gathered_shape(input, group));
}

at::Tensor all_gather(const at::Tensor& input, Name group, Name wire) {
  const rondo_wire_format_t format = wire_named(wire);
  at::Tensor output = all_gather_meta(input, group, wire);
  at::Tensor source = input;
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  backend_for(group, "all_gather")->_allgather_base(output, source, options, format);
  return output;
}

std::vector<c10::SymInt> scattered_shape(const at::Tensor& input, Name group) {
  const int size = RondoBackend::named({group.data(), group.size()})->getSize();
  std::vector<c10::SymInt> shape = input.sym_sizes().vec();
  TORCH_CHECK_VALUE(!shape.empty(), "torch.ops.rondo.reduce_scatter: the input has no dimension to be cut");
  TORCH_CHECK_VALUE(shape[0] % size == 0, "torch.ops.rondo.reduce_scatter: the first dimension, ", shape[0],
                    ", is not divisible by ", size, " ranks");
  shape[0] = shape[0] / size;
  return shape;
}

at::Tensor reduce_scatter_meta(const at::Tensor& input, Name, Name group, Name) {
  return input.new_empty_symint(scattered_shape(input, group));
}

at::Tensor reduce_scatter(const at::Tensor& input, Name op, Name group, Name wire) {
  const rondo_wire_format_t format = wire_named(wire);
  at::Tensor output = reduce_scatter_meta(input, op, group, wire);
  at::Tensor source = input;
  c10d::ReduceScatterOptions options;
  options.asyncOp = false;
  options.reduceOp = reduce_op_named(op);
  backend_for(group, "reduce_scatter")->_reduce_scatter_base(output, source, options, format);
  return output;
}

// Gradients would be wrong in silence.
void refuse_gradient(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK(!(at::GradMode::is_enabled() && tensor.requires_grad()), "torch.ops.rondo.", call,
              " has no derivative, and its tensor requires a gradient: call it under torch.no_grad(), or use "
              "torch.distributed's calls");
}

void all_reduce_autograd(at::Tensor& tensor, Name op, Name group, Name wire) {
  static const auto below = operator_named<void(at::Tensor&, Name, Name, Name)>("rondo::all_reduce_");
  refuse_gradient(tensor, "all_reduce_");
  at::AutoDispatchBelowADInplaceOrView guard;
  below.call(tensor, op, group, wire);
}

at::Tensor all_gather_autograd(const at::Tensor& input, Name group, Name wire) {
  static const auto below = operator_named<at::Tensor(const at::Tensor&, Name, Name)>("rondo::all_gather");
  refuse_gradient(input, "all_gather");
  at::AutoDispatchBelowADInplaceOrView guard;
  return below.call(input, group, wire);
}

at::Tensor reduce_scatter_autograd(const at::Tensor& input, Name op, Name group, Name wire) {
  static const auto below = operator_named<at::Tensor(const at::Tensor&, Name, Name, Name)>("rondo::reduce_scatter");
  refuse_gradient(input, "reduce_scatter");
  at::AutoDispatchBelowADInplaceOrView guard;
  return below.call(input, op, group, wire);
}

}  // namespace

TORCH_LIBRARY(rondo, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  library.def("all_reduce_(Tensor(a!) tensor, str reduce_op='sum', str group_name='', str wire='none') -> ()", tags);
  library.def("all_gather(Tensor input, str group_name='', str wire='none') -> Tensor", tags);
  library.def("reduce_scatter(Tensor input, str reduce_op='sum', str group_name='', str wire='none') -> Tensor", tags);
}

void implement(torch::Library& library) {
  library.impl("all_reduce_", &all_reduce_);
  library.impl("all_gather", &all_gather);
  library.impl("reduce_scatter", &reduce_scatter);
}
TORCH_LIBRARY_IMPL(rondo, CPU, library) { implement(library); }
TORCH_LIBRARY_IMPL(rondo, CUDA, library) { implement(library); }

TORCH_LIBRARY_IMPL(rondo, Autograd, library) {
  library.impl("all_reduce_", &all_reduce_autograd);
  library.impl("all_gather", &all_gather_autograd);
  library.impl("reduce_scatter", &reduce_scatter_autograd);
}

TORCH_LIBRARY_IMPL(rondo, Meta, library) {
  library.impl("all_reduce_", [](at::Tensor&, Name, Name, Name) {});
  library.impl("all_gather", &all_gather_meta);
  library.impl("reduce_scatter", &reduce_scatter_meta);
}

}  // namespace rondo_torch
