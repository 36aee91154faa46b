#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <type_traits>

#include <rondo/call.h>
#include <rondo/dtype.h>
#include <rondo/export.h>
#include <rondo/op.h>
#include <rondo/work.h>

namespace rondo {

// The dtype of a C++ type. float16 and bfloat16 have none: use the calls that take a DType.
template <typename T>
constexpr DType dtype_of() {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "no dtype has this type: use the calls that take a DType");
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
  if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? DType::kInt8 : DType::kUint8;
  if constexpr (sizeof(T) == 2) return std::is_signed_v<T> ? DType::kInt16 : DType::kUint16;
  if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? DType::kInt32 : DType::kUint32;
  return std::is_signed_v<T> ? DType::kInt64 : DType::kUint64;
}

// Elements one after the other in memory: std::vector, std::span, std::array, an array; or a number, which is one
// element.
template <typename R>
concept Number = std::is_arithmetic_v<std::remove_cvref_t<R>>;
template <typename R>
concept ElementRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    std::is_arithmetic_v<std::ranges::range_value_t<R>>;
template <typename R>
concept Elements = Number<R> || ElementRange<R>;
// Data of a call that returns before it is over: a number that is a temporary would be gone.
template <typename R>
concept LastingElements = ElementRange<R> ||(std::is_lvalue_reference_v<R>&& Number<R>);

template <typename R>
struct ElementOf {
  using Type = std::remove_cvref_t<R>;
  using Reference = R;
};
template <ElementRange R>
struct ElementOf<R> {
  using Type = std::ranges::range_value_t<R>;
  using Reference = std::ranges::range_reference_t<R>;
};
template <typename R>
using ElementType = typename ElementOf<R>::Type;
template <typename R>
concept MutableElements =
    LastingElements<R> && !std::is_const_v<std::remove_reference_t<typename ElementOf<R>::Reference>>;
template <typename Out, typename In>
concept OutputFor = MutableElements<Out> && std::same_as<ElementType<Out>, ElementType<In>>;

// What the calls on ranges refuse. It is not inline, so that programs may be compiled without exceptions.
namespace call_checks {
[[noreturn]] RONDO_EXPORT void refuse_length(const char* call, int rank, const char* which, uint64_t has,
                                             uint64_t should);
[[noreturn]] RONDO_EXPORT void refuse_unmatched(int rank);
// Throws kInvalid where a range of `has` elements is not what the blocks fill: without displacements all of it, else up
// to some place in it.
RONDO_EXPORT void check_blocks(const char* call, int rank, const char* which, uint64_t has,
                               std::span<const uint64_t> counts, std::span<const uint64_t> displacements);
}  // namespace call_checks

// Communicator's collectives by name: each is one Call, which run() or start() takes; NAME_async is start()'s. Of
// most there are two forms: on pointers, and on ranges, whose sizes and types give count and DType; a number is a range
// of one. Ranges whose sizes do not fit each other are kInvalid; in place, `input` is the part of `output` that the
// form on pointers demands. The _async forms need the elements until the work is done, not the range object.
template <typename Self>
class NamedCalls {
 public:
  using Counts = std::span<const uint64_t>;

  // output[i] = op over all ranks of input[i]; input, output: count elements.
  void all_reduce(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
                  const CallOptions& options = {}) {
    self().run(even(Collective::kAllReduce, input, output, count, dtype, options, op));
  }
  Work all_reduce_async(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
                        const CallOptions& options = {}) {
    return self().start(even(Collective::kAllReduce, input, output, count, dtype, options, op));
  }
  // In place.
  template <MutableElements R>
  void all_reduce(R&& data, Op op = Op::kSum, const CallOptions& options = {}) {
    all_reduce(at(data), at(data), length(data), type(data), op, options);
  }
  template <MutableElements R>
  Work all_reduce_async(R&& data, Op op = Op::kSum, const CallOptions& options = {}) {
    return all_reduce_async(at(data), at(data), length(data), type(data), op, options);
  }
  template <Elements In, OutputFor<In> Out>
  void all_reduce(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("all_reduce", "output", length(output), length(input));
    all_reduce(at(input), at(output), length(input), type(input), op, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work all_reduce_async(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("all_reduce", "output", length(output), length(input));
    return all_reduce_async(at(input), at(output), length(input), type(input), op, options);
  }

  // all_reduce with the output on the root only; elsewhere it is not touched: it may be null, or of any size.
  void reduce(const void* input, void* output, uint64_t count, DType dtype, Op op, int root,
              const CallOptions& options = {}) {
    self().run(even(Collective::kReduce, input, output, count, dtype, options, op, root));
  }
  Work reduce_async(const void* input, void* output, uint64_t count, DType dtype, Op op, int root,
                    const CallOptions& options = {}) {
    return self().start(even(Collective::kReduce, input, output, count, dtype, options, op, root));
  }
  // In place.
  template <MutableElements R>
  void reduce(R&& data, Op op, int root, const CallOptions& options = {}) {
    reduce(at(data), at(data), length(data), type(data), op, root, options);
  }
  template <MutableElements R>
  Work reduce_async(R&& data, Op op, int root, const CallOptions& options = {}) {
    return reduce_async(at(data), at(data), length(data), type(data), op, root, options);
  }
  template <Elements In, OutputFor<In> Out>
  void reduce(In&& input, Out&& output, Op op, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("reduce", "output", length(output), length(input));
    reduce(at(input), at(output), length(input), type(input), op, root, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work reduce_async(In&& input, Out&& output, Op op, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("reduce", "output", length(output), length(input));
    return reduce_async(at(input), at(output), length(input), type(input), op, root, options);
  }

  // output[i] = op over ranks 0 .. rank() of input[i], in this order. Not kAverage.
  void scan(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
            const CallOptions& options = {}) {
    self().run(even(Collective::kScan, input, output, count, dtype, options, op));
  }
  Work scan_async(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
                  const CallOptions& options = {}) {
    return self().start(even(Collective::kScan, input, output, count, dtype, options, op));
  }
  // The same over ranks 0 .. rank() - 1; on rank 0 the output is not touched.
  void exscan(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
              const CallOptions& options = {}) {
    self().run(even(Collective::kExscan, input, output, count, dtype, options, op));
  }
  Work exscan_async(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
                    const CallOptions& options = {}) {
    return self().start(even(Collective::kExscan, input, output, count, dtype, options, op));
  }
  // In place.
  template <MutableElements R>
  void scan(R&& data, Op op = Op::kSum, const CallOptions& options = {}) {
    scan(at(data), at(data), length(data), type(data), op, options);
  }
  template <MutableElements R>
  Work scan_async(R&& data, Op op = Op::kSum, const CallOptions& options = {}) {
    return scan_async(at(data), at(data), length(data), type(data), op, options);
  }
  template <MutableElements R>
  void exscan(R&& data, Op op = Op::kSum, const CallOptions& options = {}) {
    exscan(at(data), at(data), length(data), type(data), op, options);
  }
  template <MutableElements R>
  Work exscan_async(R&& data, Op op = Op::kSum, const CallOptions& options = {}) {
    return exscan_async(at(data), at(data), length(data), type(data), op, options);
  }
  template <Elements In, OutputFor<In> Out>
  void scan(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("scan", "output", length(output), length(input));
    scan(at(input), at(output), length(input), type(input), op, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work scan_async(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("scan", "output", length(output), length(input));
    return scan_async(at(input), at(output), length(input), type(input), op, options);
  }
  template <Elements In, OutputFor<In> Out>
  void exscan(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    if (self().rank() > 0) fits("exscan", "output", length(output), length(input));
    exscan(at(input), at(output), length(input), type(input), op, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work exscan_async(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    if (self().rank() > 0) fits("exscan", "output", length(output), length(input));
    return exscan_async(at(input), at(output), length(input), type(input), op, options);
  }

  // buffer: count elements, read on the root, written elsewhere.
  void broadcast(void* buffer, uint64_t count, DType dtype, int root, const CallOptions& options = {}) {
    self().run(even(Collective::kBroadcast, buffer, buffer, count, dtype, options, Op::kSum, root));
  }
  Work broadcast_async(void* buffer, uint64_t count, DType dtype, int root, const CallOptions& options = {}) {
    return self().start(even(Collective::kBroadcast, buffer, buffer, count, dtype, options, Op::kSum, root));
  }
  template <MutableElements R>
  void broadcast(R&& data, int root, const CallOptions& options = {}) {
    broadcast(at(data), length(data), type(data), root, options);
  }
  template <MutableElements R>
  Work broadcast_async(R&& data, int root, const CallOptions& options = {}) {
    return broadcast_async(at(data), length(data), type(data), root, options);
  }

  // input: count elements; output: size() * count, rank r's input as block r.
  void all_gather(const void* input, void* output, uint64_t count, DType dtype, const CallOptions& options = {}) {
    self().run(even(Collective::kAllGather, input, output, count, dtype, options));
  }
  Work all_gather_async(const void* input, void* output, uint64_t count, DType dtype, const CallOptions& options = {}) {
    return self().start(even(Collective::kAllGather, input, output, count, dtype, options));
  }
  template <Elements In, OutputFor<In> Out>
  void all_gather(In&& input, Out&& output, const CallOptions& options = {}) {
    fits("all_gather", "output", length(output), ranks() * length(input));
    all_gather(at(input), at(output), length(input), type(input), options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work all_gather_async(In&& input, Out&& output, const CallOptions& options = {}) {
    fits("all_gather", "output", length(output), ranks() * length(input));
    return all_gather_async(at(input), at(output), length(input), type(input), options);
  }

  // input: size() * count elements; output: count elements, op over all ranks of their blocks rank().
  void reduce_scatter(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
                      const CallOptions& options = {}) {
    self().run(even(Collective::kReduceScatter, input, output, count, dtype, options, op));
  }
  Work reduce_scatter_async(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
                            const CallOptions& options = {}) {
    return self().start(even(Collective::kReduceScatter, input, output, count, dtype, options, op));
  }
  template <Elements In, OutputFor<In> Out>
  void reduce_scatter(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("reduce_scatter", "input", length(input), ranks() * length(output));
    reduce_scatter(at(input), at(output), length(output), type(input), op, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work reduce_scatter_async(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("reduce_scatter", "input", length(input), ranks() * length(output));
    return reduce_scatter_async(at(input), at(output), length(output), type(input), op, options);
  }

  // all_gather with the output on the root only; elsewhere it may be null, or of any size.
  void gather(const void* input, void* output, uint64_t count, DType dtype, int root, const CallOptions& options = {}) {
    self().run(even(Collective::kGather, input, output, count, dtype, options, Op::kSum, root));
  }
  Work gather_async(const void* input, void* output, uint64_t count, DType dtype, int root,
                    const CallOptions& options = {}) {
    return self().start(even(Collective::kGather, input, output, count, dtype, options, Op::kSum, root));
  }
  template <Elements In, OutputFor<In> Out>
  void gather(In&& input, Out&& output, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("gather", "output", length(output), ranks() * length(input));
    gather(at(input), at(output), length(input), type(input), root, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work gather_async(In&& input, Out&& output, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("gather", "output", length(output), ranks() * length(input));
    return gather_async(at(input), at(output), length(input), type(input), root, options);
  }

  // input: size() * count elements on the root, elsewhere it may be null, or of any size; output: count elements, block
  // rank() of the input.
  void scatter(const void* input, void* output, uint64_t count, DType dtype, int root,
               const CallOptions& options = {}) {
    self().run(even(Collective::kScatter, input, output, count, dtype, options, Op::kSum, root));
  }
  Work scatter_async(const void* input, void* output, uint64_t count, DType dtype, int root,
                     const CallOptions& options = {}) {
    return self().start(even(Collective::kScatter, input, output, count, dtype, options, Op::kSum, root));
  }
  template <Elements In, OutputFor<In> Out>
  void scatter(In&& input, Out&& output, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("scatter", "input", length(input), ranks() * length(output));
    scatter(at(input), at(output), length(output), type(output), root, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work scatter_async(In&& input, Out&& output, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("scatter", "input", length(input), ranks() * length(output));
    return scatter_async(at(input), at(output), length(output), type(output), root, options);
  }

  // input, output: size() * count elements; block r of the input goes to rank r, block r of the output is rank r's.
  void all_to_all(const void* input, void* output, uint64_t count, DType dtype, const CallOptions& options = {}) {
    self().run(even(Collective::kAllToAll, input, output, count, dtype, options));
  }
  Work all_to_all_async(const void* input, void* output, uint64_t count, DType dtype, const CallOptions& options = {}) {
    return self().start(even(Collective::kAllToAll, input, output, count, dtype, options));
  }
  template <Elements In, OutputFor<In> Out>
  void all_to_all(In&& input, Out&& output, const CallOptions& options = {}) {
    all_to_all(at(input), at(output), block(input, output), type(input), options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work all_to_all_async(In&& input, Out&& output, const CallOptions& options = {}) {
    return all_to_all_async(at(input), at(output), block(input, output), type(input), options);
  }

  // Returns when all ranks have called it.
  void barrier(const CallOptions& options = {}) {
    self().run({.collective = Collective::kBarrier, .options = options});
  }
  Work barrier_async(const CallOptions& options = {}) {
    return self().start({.collective = Collective::kBarrier, .options = options});
  }

  // --- Uneven counts. counts, displacements: as in Call. A range is as long as its blocks together; where
  // displacements are given, at least as long as they reach.

  // counts: equal on all ranks, else kMismatch. input: counts[rank()] elements.
  void all_gather_v(const void* input, void* output, Counts counts, Counts displacements, DType dtype,
                    const CallOptions& options = {}) {
    self().run(uneven(Collective::kAllGather, {input}, {output, counts, displacements}, 0, dtype, options));
  }
  Work all_gather_v_async(const void* input, void* output, Counts counts, Counts displacements, DType dtype,
                          const CallOptions& options = {}) {
    return self().start(uneven(Collective::kAllGather, {input}, {output, counts, displacements}, 0, dtype, options));
  }
  template <Elements In, OutputFor<In> Out>
  void all_gather_v(In&& input, Out&& output, Counts counts, Counts displacements = {},
                    const CallOptions& options = {}) {
    own_block("all_gather_v", "input", length(input), counts);
    blocks("all_gather_v", "output", length(output), counts, displacements);
    all_gather_v(at(input), at(output), counts, displacements, type(input), options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work all_gather_v_async(In&& input, Out&& output, Counts counts, Counts displacements = {},
                          const CallOptions& options = {}) {
    own_block("all_gather_v", "input", length(input), counts);
    blocks("all_gather_v", "output", length(output), counts, displacements);
    return all_gather_v_async(at(input), at(output), counts, displacements, type(input), options);
  }
  // counts: equal on all ranks, else kMismatch. output: counts[rank()] elements.
  void reduce_scatter_v(const void* input, void* output, Counts counts, DType dtype, Op op = Op::kSum,
                        const CallOptions& options = {}) {
    self().run(uneven(Collective::kReduceScatter, {input, counts}, {output}, 0, dtype, options, op));
  }
  Work reduce_scatter_v_async(const void* input, void* output, Counts counts, DType dtype, Op op = Op::kSum,
                              const CallOptions& options = {}) {
    return self().start(uneven(Collective::kReduceScatter, {input, counts}, {output}, 0, dtype, options, op));
  }
  template <Elements In, OutputFor<In> Out>
  void reduce_scatter_v(In&& input, Out&& output, Counts counts, Op op = Op::kSum, const CallOptions& options = {}) {
    blocks("reduce_scatter_v", "input", length(input), counts, {});
    own_block("reduce_scatter_v", "output", length(output), counts);
    reduce_scatter_v(at(input), at(output), counts, type(input), op, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work reduce_scatter_v_async(In&& input, Out&& output, Counts counts, Op op = Op::kSum,
                              const CallOptions& options = {}) {
    blocks("reduce_scatter_v", "input", length(input), counts, {});
    own_block("reduce_scatter_v", "output", length(output), counts);
    return reduce_scatter_v_async(at(input), at(output), counts, type(input), op, options);
  }
  // count: of this rank's own block. output, counts, displacements: read on the root only. The root's counts[root] and
  // count differ: kInvalid.
  void gather_v(const void* input, uint64_t count, void* output, Counts counts, Counts displacements, DType dtype,
                int root, const CallOptions& options = {}) {
    self().run(
        uneven(Collective::kGather, {input}, {output, counts, displacements}, count, dtype, options, Op::kSum, root));
  }
  template <Elements In, OutputFor<In> Out>
  void gather_v(In&& input, Out&& output, Counts counts, int root, Counts displacements = {},
                const CallOptions& options = {}) {
    if (root == self().rank()) blocks("gather_v", "output", length(output), counts, displacements);
    gather_v(at(input), length(input), at(output), counts, displacements, type(input), root, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work gather_v_async(In&& input, Out&& output, Counts counts, int root, Counts displacements = {},
                      const CallOptions& options = {}) {
    if (root == self().rank()) blocks("gather_v", "output", length(output), counts, displacements);
    return gather_v_async(at(input), length(input), at(output), counts, displacements, type(input), root, options);
  }
  Work gather_v_async(const void* input, uint64_t count, void* output, Counts counts, Counts displacements, DType dtype,
                      int root, const CallOptions& options = {}) {
    return self().start(
        uneven(Collective::kGather, {input}, {output, counts, displacements}, count, dtype, options, Op::kSum, root));
  }
  // gather_v the other way: input, counts and displacements are the root's, count is of the own output.
  void scatter_v(const void* input, Counts counts, Counts displacements, void* output, uint64_t count, DType dtype,
                 int root, const CallOptions& options = {}) {
    self().run(
        uneven(Collective::kScatter, {input, counts, displacements}, {output}, count, dtype, options, Op::kSum, root));
  }
  template <Elements In, OutputFor<In> Out>
  void scatter_v(In&& input, Counts counts, Out&& output, int root, Counts displacements = {},
                 const CallOptions& options = {}) {
    if (root == self().rank()) blocks("scatter_v", "input", length(input), counts, displacements);
    scatter_v(at(input), counts, displacements, at(output), length(output), type(output), root, options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work scatter_v_async(In&& input, Counts counts, Out&& output, int root, Counts displacements = {},
                       const CallOptions& options = {}) {
    if (root == self().rank()) blocks("scatter_v", "input", length(input), counts, displacements);
    return scatter_v_async(at(input), counts, displacements, at(output), length(output), type(output), root, options);
  }
  Work scatter_v_async(const void* input, Counts counts, Counts displacements, void* output, uint64_t count,
                       DType dtype, int root, const CallOptions& options = {}) {
    return self().start(
        uneven(Collective::kScatter, {input, counts, displacements}, {output}, count, dtype, options, Op::kSum, root));
  }
  // send_counts[r] elements go to rank r, recv_counts[r] come from it. The own two entries differ: kInvalid.
  void all_to_all_v(const void* input, Counts send_counts, Counts send_displacements, void* output, Counts recv_counts,
                    Counts recv_displacements, DType dtype, const CallOptions& options = {}) {
    self().run(uneven(Collective::kAllToAll, {input, send_counts, send_displacements},
                      {output, recv_counts, recv_displacements}, 0, dtype, options));
  }
  Work all_to_all_v_async(const void* input, Counts send_counts, Counts send_displacements, void* output,
                          Counts recv_counts, Counts recv_displacements, DType dtype, const CallOptions& options = {}) {
    return self().start(uneven(Collective::kAllToAll, {input, send_counts, send_displacements},
                               {output, recv_counts, recv_displacements}, 0, dtype, options));
  }
  template <Elements In, OutputFor<In> Out>
  void all_to_all_v(In&& input, Counts send_counts, Out&& output, Counts recv_counts, Counts send_displacements = {},
                    Counts recv_displacements = {}, const CallOptions& options = {}) {
    blocks("all_to_all_v", "input", length(input), send_counts, send_displacements);
    blocks("all_to_all_v", "output", length(output), recv_counts, recv_displacements);
    all_to_all_v(at(input), send_counts, send_displacements, at(output), recv_counts, recv_displacements, type(input),
                 options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work all_to_all_v_async(In&& input, Counts send_counts, Out&& output, Counts recv_counts,
                          Counts send_displacements = {}, Counts recv_displacements = {},
                          const CallOptions& options = {}) {
    blocks("all_to_all_v", "input", length(input), send_counts, send_displacements);
    blocks("all_to_all_v", "output", length(output), recv_counts, recv_displacements);
    return all_to_all_v_async(at(input), send_counts, send_displacements, at(output), recv_counts, recv_displacements,
                              type(input), options);
  }

  // --- Point to point. tag: 0 .. 2^31-1. Messages of one pair and tag arrive in order. kAnySource and kAnyTag: any. A
  // message that is longer than the receiver's buffer fails both sides with kMismatch, or, with CallOptions::truncate,
  // the receive alone; a shorter one reports its length. A send is over when its data may change, or, with
  // CallOptions::synchronous, when the receive has met it. Sends that MPI calls buffered are send_async() of a copy;
  // those that it calls ready are send().
  void send(const void* data, uint64_t count, DType dtype, int peer, int tag = 0, const CallOptions& options = {}) {
    self().run(sent(data, count, dtype, peer, tag, options));
  }
  Work send_async(const void* data, uint64_t count, DType dtype, int peer, int tag = 0,
                  const CallOptions& options = {}) {
    return self().start(sent(data, count, dtype, peer, tag, options));
  }
  template <Elements R>
  void send(const R& data, int peer, int tag = 0, const CallOptions& options = {}) {
    send(at(data), length(data), type(data), peer, tag, options);
  }
  template <LastingElements R>
  Work send_async(R&& data, int peer, int tag = 0, const CallOptions& options = {}) {
    return send_async(at(data), length(data), type(data), peer, tag, options);
  }

  Message recv(void* data, uint64_t count, DType dtype, int peer, int tag = 0, const CallOptions& options = {}) {
    return self().run(received(data, count, dtype, peer, tag, options));
  }
  Work recv_async(void* data, uint64_t count, DType dtype, int peer, int tag = 0, const CallOptions& options = {}) {
    return self().start(received(data, count, dtype, peer, tag, options));
  }
  template <MutableElements R>
  Message recv(R&& data, int peer, int tag = 0, const CallOptions& options = {}) {
    return recv(at(data), length(data), type(data), peer, tag, options);
  }
  template <MutableElements R>
  Work recv_async(R&& data, int peer, int tag = 0, const CallOptions& options = {}) {
    return recv_async(at(data), length(data), type(data), peer, tag, options);
  }

  // Waits until a message is there that recv(peer, tag) would take, and says which. It stays. No other rank knows of a
  // probe: its timeout leaves the communicator usable, and Work::cancel() takes it back.
  Message probe(int peer, int tag, const CallOptions& options = {}) {
    return self().run(probed(MessageKind::kProbe, peer, tag, options));
  }
  Work probe_async(int peer, int tag, const CallOptions& options = {}) {
    return self().start(probed(MessageKind::kProbe, peer, tag, options));
  }
  // At once; nullopt: there is none yet.
  std::optional<Message> iprobe(int peer, int tag) { return self().look(probed(MessageKind::kProbe, peer, tag, {})); }
  // The same for a message that only mrecv() of Message::matched gets, so that threads can share a communicator.
  Message mprobe(int peer, int tag, const CallOptions& options = {}) {
    return self().run(probed(MessageKind::kMatchedProbe, peer, tag, options));
  }
  Work mprobe_async(int peer, int tag, const CallOptions& options = {}) {
    return self().start(probed(MessageKind::kMatchedProbe, peer, tag, options));
  }
  std::optional<Message> improbe(int peer, int tag) {
    return self().look(probed(MessageKind::kMatchedProbe, peer, tag, {}));
  }
  // Once for each such message; kInvalid: it was received already.
  Message mrecv(void* data, uint64_t count, DType dtype, uint64_t matched, const CallOptions& options = {}) {
    return self().run(met(data, count, dtype, matched, options));
  }
  Work mrecv_async(void* data, uint64_t count, DType dtype, uint64_t matched, const CallOptions& options = {}) {
    return self().start(met(data, count, dtype, matched, options));
  }

  // Both at once, without deadlock; the two buffers must not overlap. Returns the message received.
  Message sendrecv(const void* send_data, uint64_t send_count, int to, void* recv_data, uint64_t recv_count, int from,
                   DType dtype, int tag = 0, const CallOptions& options = {}) {
    return self().run(sent(send_data, send_count, dtype, to, tag, options),
                      received(recv_data, recv_count, dtype, from, tag, options));
  }
  Work sendrecv_async(const void* send_data, uint64_t send_count, int to, void* recv_data, uint64_t recv_count,
                      int from, DType dtype, int tag = 0, const CallOptions& options = {}) {
    return self().start(sent(send_data, send_count, dtype, to, tag, options),
                        received(recv_data, recv_count, dtype, from, tag, options));
  }
  template <Elements In, OutputFor<In> Out>
  Message sendrecv(In&& send_data, int to, Out&& recv_data, int from, int tag = 0, const CallOptions& options = {}) {
    return sendrecv(at(send_data), length(send_data), to, at(recv_data), length(recv_data), from, type(send_data), tag,
                    options);
  }
  template <LastingElements In, OutputFor<In> Out>
  Work sendrecv_async(In&& send_data, int to, Out&& recv_data, int from, int tag = 0, const CallOptions& options = {}) {
    return sendrecv_async(at(send_data), length(send_data), to, at(recv_data), length(recv_data), from, type(send_data),
                          tag, options);
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  uint64_t ranks() { return static_cast<uint64_t>(self().size()); }

  static MessageCall sent(const void* data, uint64_t count, DType dtype, int peer, int tag,
                          const CallOptions& options) {
    return {MessageKind::kSend, const_cast<void*>(data), count, dtype, peer, tag, options, 0};
  }
  static MessageCall received(void* data, uint64_t count, DType dtype, int peer, int tag, const CallOptions& options) {
    return {MessageKind::kReceive, data, count, dtype, peer, tag, options, 0};
  }
  static MessageCall probed(MessageKind kind, int peer, int tag, const CallOptions& options) {
    return {kind, nullptr, 0, DType::kUint8, peer, tag, options, 0};
  }
  MessageCall met(void* data, uint64_t count, DType dtype, uint64_t matched, const CallOptions& options) {
    if (matched == 0) call_checks::refuse_unmatched(self().rank());
    return {MessageKind::kReceive, data, count, dtype, kAnySource, kAnyTag, options, matched};
  }

  static Call even(Collective collective, const void* input, void* output, uint64_t count, DType dtype,
                   const CallOptions& options, Op op = Op::kSum, int root = -1) {
    return {.collective = collective,
            .input = input,
            .output = output,
            .count = count,
            .dtype = dtype,
            .op = op,
            .root = root,
            .options = options};
  }

  // `data` alone: one block of `count` elements.
  template <typename Data>
  struct Blocks {
    Data* data = nullptr;
    Counts counts{}, displacements{};
  };
  static Call uneven(Collective collective, const Blocks<const void>& input, const Blocks<void>& output, uint64_t count,
                     DType dtype, const CallOptions& options, Op op = Op::kSum, int root = -1) {
    Call call = even(collective, input.data, output.data, count, dtype, options, op, root);
    call.uneven = true;
    call.input_counts = input.counts;
    call.input_displacements = input.displacements;
    call.output_counts = output.counts;
    call.output_displacements = output.displacements;
    return call;
  }

  template <typename R>
  static auto at(R& elements) {
    if constexpr (Number<R>) {
      return std::addressof(elements);
    } else {
      return std::ranges::data(elements);
    }
  }
  template <typename R>
  static uint64_t length(const R& elements) {
    if constexpr (Number<R>) {
      return 1;
    } else {
      return static_cast<uint64_t>(std::ranges::size(elements));
    }
  }
  template <typename R>
  static constexpr DType type(const R&) {
    return dtype_of<ElementType<R>>();
  }

  void fits(const char* call, const char* which, uint64_t has, uint64_t should) {
    if (has != should) call_checks::refuse_length(call, self().rank(), which, has, should);
  }
  // Elements of a rank's block of an all_to_all.
  template <typename In, typename Out>
  uint64_t block(const In& input, const Out& output) {
    fits("all_to_all", "output", length(output), length(input));
    fits("all_to_all", "input", length(input), length(input) / ranks() * ranks());
    return length(input) / ranks();
  }
  // Lists of a wrong length are left to the call.
  void blocks(const char* call, const char* which, uint64_t has, Counts counts, Counts displacements) {
    if (counts.size() == ranks()) call_checks::check_blocks(call, self().rank(), which, has, counts, displacements);
  }
  void own_block(const char* call, const char* which, uint64_t has, Counts counts) {
    if (counts.size() == ranks()) fits(call, which, has, counts[static_cast<size_t>(self().rank())]);
  }
};

}  // namespace rondo
