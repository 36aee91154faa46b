// all_reduce of sparse (COO) tensors: every rank gathers all indices and values and adds them up.

#include <ATen/core/LegacyTypeDispatch.h>

#include "csrc/run.h"

namespace rondo_torch {

using c10d::OpType;

namespace {

// Indices and values of all ranks, one after the other, as they lie in the blocks.
at::Tensor added_up(const at::Tensor& like, const std::vector<int64_t>& counts, const at::Tensor& indices,
                    const at::Tensor& values) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (int64_t count : counts) {
    parts.push_back(
        indices.narrow(0, begin * like.sparse_dim(), count * like.sparse_dim()).view({like.sparse_dim(), count}));
    begin += count;
  }
  return at::sparse_coo_tensor(at::cat(parts, 1), values, like.sizes(), like.options()).coalesce();
}

}  // namespace

// Part of a group: all_gather_v of rank r's counts[r] entries of `width` elements each.
void RondoBackend::gather_entries(const at::Tensor& source, const at::Tensor& target,
                                  const std::vector<int64_t>& counts, int64_t width,
                                  std::chrono::milliseconds timeout) {
  const Elements elements = elements_moved(source.scalar_type());
  std::vector<uint64_t> items;
  for (int64_t count : counts) items.push_back(static_cast<uint64_t>(count * width) * elements.per_item);
  const rondo_options_t limits = call_options(timeout);
  const rondo_call_t call = rondo_uneven(
      rondo_even(RONDO_ALL_GATHER, source.data_ptr(), target.data_ptr(), 0, elements.dtype, RONDO_SUM, -1, &limits),
      nullptr, nullptr, items.data(), nullptr);
  run_grouped({}, collective(call), Kind::kCollective);
}

// coalesce() first: entries of one index are added up here, so fewer bytes travel.
WorkPointer RondoBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor tensor = only(tensors, "all_reduce");
  TORCH_CHECK_VALUE(tensor.layout() == at::kSparse && tensor.device().is_cpu(),
                    "rondo all_reduce: of sparse tensors only COO tensors on the CPU can be reduced");
  TORCH_CHECK_VALUE(options.reduceOp.op_ == c10d::ReduceOp::SUM, "rondo all_reduce: sparse tensors are added only");
  TORCH_CHECK_VALUE(!groups_here(), "rondo all_reduce: a sparse tensor cannot be part of a group of calls");
  const at::Tensor own = tensor.coalesce();

  // How many entries each rank has is known before the rest can start: this waits, also in an asynchronous call.
  at::Tensor entries = at::empty({size_}, at::kLong);
  at::Tensor mine = at::full({1}, own._nnz(), at::kLong);
  c10d::AllgatherOptions limits;
  limits.timeout = options.timeout;
  _allgather_base(entries, mine, limits)->wait();
  const std::vector<int64_t> counts(entries.data_ptr<int64_t>(), entries.data_ptr<int64_t>() + size_);
  const int64_t sum = entries.sum().item<int64_t>();

  std::vector<int64_t> shape = own.values().sizes().vec();
  shape[0] = sum;
  const at::Tensor indices = at::empty({sum * own.sparse_dim()}, at::kLong);
  const at::Tensor values = at::empty(shape, own.values().options());
  const Tensors sources{own.indices().contiguous(), own.values().contiguous()};
  auto after = [tensor, counts, indices, values, sources]() mutable {
    const at::AutoDispatchBelowADInplaceOrView guard;
    tensor.copy_(added_up(tensor, counts, indices, values));
  };
  startCoalescing();
  try {
    gather_entries(sources[0], indices, counts, own.sparse_dim(), options.timeout);
    gather_entries(sources[1], values, counts, sum == 0 ? 0 : values.numel() / sum, options.timeout);
    group_->operation->add({OpType::_ALLREDUCE_SPARSE, "rondo:all_reduce", {tensor}, after});
  } catch (...) {
    abandon_group();
    throw;
  }
  WorkPointer work = end_group(OpType::_ALLREDUCE_SPARSE, "rondo:all_reduce", tensors);
  if (options.asyncOp) return work;
  work->wait();
  return nullptr;
}

}  // namespace rondo_torch
