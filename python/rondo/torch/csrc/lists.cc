// Collectives on a list of tensors, one a rank.

#include "csrc/run.h"

namespace rondo_torch {

using c10d::OpType;

namespace {

std::vector<at::Tensor>& only_list(TensorLists& lists, const char* call) {
  TORCH_CHECK_VALUE(lists.size() == 1, "rondo ", call, ": one list of tensors is needed, not ", lists.size());
  return lists[0];
}

void check_items(int64_t given, int64_t needed, const char* call, int rank) {
  TORCH_CHECK_VALUE(given == needed, "rondo ", call, ": entry ", rank, " of the list has ", given,
                    " elements, and this rank's tensor has ", needed);
}

// Counts of rows as counts of elements.
std::vector<uint64_t> scaled(const std::vector<int64_t>& rows, int64_t row_items, Elements elements) {
  std::vector<uint64_t> counts;
  for (int64_t row : rows) counts.push_back(static_cast<uint64_t>(row * row_items) * elements.per_item);
  return counts;
}

void check_rows(const at::Tensor& tensor, const std::vector<int64_t>& rows, int size, const char* name) {
  TORCH_CHECK_VALUE(rows.size() == static_cast<size_t>(size), "rondo all_to_all_single: ", name, " has ", rows.size(),
                    " entries; it needs one a rank, ", size);
  int64_t sum = 0;
  for (int64_t row : rows) {
    TORCH_CHECK_VALUE(row >= 0, "rondo all_to_all_single: ", name, " has the negative entry ", row);
    sum += row;
  }
  const int64_t first = tensor.dim() == 0 ? 1 : tensor.size(0);
  TORCH_CHECK_VALUE(sum == first, "rondo all_to_all_single: ", name, " adds up to ", sum,
                    ", and the first dimension of its tensor is ", first);
}

int64_t row_items(const at::Tensor& tensor) {
  return tensor.dim() == 0 || tensor.size(0) == 0 ? 1 : tensor.numel() / tensor.size(0);
}

std::vector<int64_t> equal_rows(const at::Tensor& tensor, int size) {
  const int64_t first = tensor.dim() == 0 ? 1 : tensor.size(0);
  TORCH_CHECK_VALUE(first % size == 0, "rondo all_to_all_single: the first dimension, ", first,
                    ", is not divisible by ", size, " ranks; pass split sizes");
  return std::vector<int64_t>(static_cast<size_t>(size), first / size);
}

}  // namespace

WorkPointer RondoBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  at::Tensor& input = only(inputs, "all_gather");
  Tensors& list = only_list(outputs, "all_gather");
  const InStream place = place_of(input, options.asyncOp);
  check_tensor(input, "all_gather");
  check_list(list, input, "all_gather");
  check_items(list[rank_].numel(), input.numel(), "all_gather", rank_);
  const Elements elements = elements_moved(input.scalar_type());
  const Block source(input, Access::kRead, "all_gather");
  const Block target(list, Access::kWrite, "all_gather");
  const std::vector<uint64_t> counts = target.counts(elements);
  const rondo_options_t limits = call_options(options.timeout);
  // All ranks have lists of the same sizes, so all choose the same call.
  const bool even = target.even();
  rondo_call_t call = rondo_even(RONDO_ALL_GATHER, source.data(), target.data(), even ? counts[0] : 0, elements.dtype,
                                 RONDO_SUM, -1, &limits);
  if (!even) call = rondo_uneven(call, nullptr, nullptr, counts.data(), nullptr);
  return run({OpType::ALLGATHER, "rondo:all_gather", list, after(source, target)}, inputs, options.asyncOp,
             collective(call));
}

WorkPointer RondoBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  at::Tensor& input = only(inputs, "gather");
  const InStream place = place_of(input, options.asyncOp);
  check_tensor(input, "gather");
  check_root(options.rootRank, "gather");
  const int root = static_cast<int>(options.rootRank);
  TORCH_CHECK_VALUE(root == rank_ || outputs.empty(), "rondo gather: only the destination, rank ", root,
                    ", passes a list; this is rank ", rank_);
  const Tensors list = root == rank_ ? only_list(outputs, "gather") : Tensors();
  if (root == rank_) check_list(list, input, "gather");
  for (size_t i = 0; i < list.size(); ++i) {
    check_items(list[i].numel(), input.numel(), "gather", static_cast<int>(i));
  }
  const Elements elements = elements_moved(input.scalar_type());
  const Block source(input, Access::kRead, "gather");
  const Block target(list, Access::kWrite, "gather");
  const rondo_options_t limits = call_options(options.timeout);
  const rondo_call_t call = rondo_even(RONDO_GATHER, source.data(), target.data(), source.items() * elements.per_item,
                                       elements.dtype, RONDO_SUM, root, &limits);
  return run({OpType::GATHER, "rondo:gather", list, after(source, target)}, inputs, options.asyncOp, collective(call));
}

WorkPointer RondoBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  at::Tensor& output = only(outputs, "scatter");
  const InStream place = place_of(output, options.asyncOp);
  check_tensor(output, "scatter");
  check_root(options.rootRank, "scatter");
  const int root = static_cast<int>(options.rootRank);
  TORCH_CHECK_VALUE(root == rank_ || inputs.empty(), "rondo scatter: only the source, rank ", root,
                    ", passes a list; this is rank ", rank_);
  const Tensors list = root == rank_ ? only_list(inputs, "scatter") : Tensors();
  if (root == rank_) check_list(list, output, "scatter");
  for (size_t i = 0; i < list.size(); ++i) {
    check_items(list[i].numel(), output.numel(), "scatter", static_cast<int>(i));
  }
  const Elements elements = elements_moved(output.scalar_type());
  const Block source(list, Access::kRead, "scatter");
  const Block target(output, Access::kWrite, "scatter");
  const rondo_options_t limits = call_options(options.timeout);
  const rondo_call_t call = rondo_even(RONDO_SCATTER, source.data(), target.data(), target.items() * elements.per_item,
                                       elements.dtype, RONDO_SUM, root, &limits);
  return run({OpType::SCATTER, "rondo:scatter", outputs, after(source, target)}, list, options.asyncOp,
             collective(call));
}

WorkPointer RondoBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  at::Tensor& output = only(outputs, "reduce_scatter");
  Tensors& list = only_list(inputs, "reduce_scatter");
  const InStream place = place_of(output, options.asyncOp);
  check_tensor(output, "reduce_scatter");
  check_list(list, output, "reduce_scatter");
  check_items(list[rank_].numel(), output.numel(), "reduce_scatter", rank_);
  const Reduction how = reduction(options.reduceOp, output.scalar_type());
  const Block source(list, Access::kRead, "reduce_scatter");
  const Block target(output, Access::kWrite, "reduce_scatter");
  const std::vector<uint64_t> counts = source.counts(how.elements);
  const rondo_options_t limits = call_options(options.timeout, how.scalar);
  const bool even = source.even();
  rondo_call_t call = rondo_even(RONDO_REDUCE_SCATTER, source.data(), target.data(), even ? counts[0] : 0,
                                 how.elements.dtype, how.op, -1, &limits);
  if (!even) call = rondo_uneven(call, counts.data(), nullptr, nullptr, nullptr);
  return run({OpType::REDUCE_SCATTER, "rondo:reduce_scatter", outputs, after(source, target)}, list, options.asyncOp,
             collective(call));
}

WorkPointer RondoBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "rondo all_to_all: the input list is empty; it needs one tensor a rank, ", size_);
  const InStream place = place_of(inputs[0], options.asyncOp);
  check_list(inputs, inputs[0], "all_to_all");
  check_list(outputs, inputs[0], "all_to_all");
  const Elements elements = elements_moved(inputs[0].scalar_type());
  const Block source(inputs, Access::kRead, "all_to_all");
  const Block target(outputs, Access::kWrite, "all_to_all");
  const std::vector<uint64_t> sends = source.counts(elements);
  const std::vector<uint64_t> receives = target.counts(elements);
  const rondo_options_t limits = call_options(options.timeout);
  const rondo_call_t call = rondo_uneven(
      rondo_even(RONDO_ALL_TO_ALL, source.data(), target.data(), 0, elements.dtype, RONDO_SUM, -1, &limits),
      sends.data(), nullptr, receives.data(), nullptr);
  return run({OpType::ALLTOALL, "rondo:all_to_all", outputs, after(source, target)}, inputs, options.asyncOp,
             collective(call));
}

WorkPointer RondoBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                                        std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) {
  const InStream place = place_of(output, options.asyncOp);
  check_tensor(output, "all_to_all_single");
  check_tensor(input, "all_to_all_single");
  check_same_type(output, input, "all_to_all_single");
  // Ranks may differ in whether they pass split sizes: all take the same call of the library.
  const std::vector<int64_t> send_rows = input_rows.empty() ? equal_rows(input, size_) : input_rows;
  const std::vector<int64_t> receive_rows = output_rows.empty() ? equal_rows(output, size_) : output_rows;
  check_rows(input, send_rows, size_, "input_split_sizes");
  check_rows(output, receive_rows, size_, "output_split_sizes");
  const Elements elements = elements_moved(input.scalar_type());
  const Block source(input, Access::kRead, "all_to_all_single");
  const Block target(output, Access::kWrite, "all_to_all_single");
  const std::vector<uint64_t> sends = scaled(send_rows, row_items(input), elements);
  const std::vector<uint64_t> receives = scaled(receive_rows, row_items(output), elements);
  const rondo_options_t limits = call_options(options.timeout);
  const rondo_call_t call = rondo_uneven(
      rondo_even(RONDO_ALL_TO_ALL, source.data(), target.data(), 0, elements.dtype, RONDO_SUM, -1, &limits),
      sends.data(), nullptr, receives.data(), nullptr);
  return run({OpType::ALLTOALL_BASE, "rondo:all_to_all", {output}, after(source, target)}, {input}, options.asyncOp,
             collective(call));
}

}  // namespace rondo_torch
