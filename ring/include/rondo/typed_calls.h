#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <string>
#include <type_traits>

#include <rondo/call.h>
#include <rondo/dtype.h>
#include <rondo/error.h>
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

// Elements one after the other in memory: std::vector, std::span, std::array, an array.
template <typename R>
concept Elements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    std::is_arithmetic_v<std::ranges::range_value_t<R>>;
template <typename R>
concept MutableElements = Elements<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;
template <typename Out, typename In>
concept OutputFor =
    MutableElements<Out> && std::same_as<std::ranges::range_value_t<Out>, std::ranges::range_value_t<In>>;

// Communicator's calls on ranges: count and DType are the range's. Shapes, errors and threads are those of the calls of
// the same name; in addition, ranges whose sizes do not fit each other are kInvalid. In place, `input` is the part of
// `output` that the call of the same name demands. The _async forms need the elements until the work is done, not the
// range object.
template <typename Self>
class TypedCalls {
 public:
  // In place.
  template <MutableElements R>
  void all_reduce(R&& data, Op op = Op::kSum, const CallOptions& options = {}) {
    self().all_reduce(at(data), at(data), count(data), type(data), op, options);
  }
  template <MutableElements R>
  Work all_reduce_async(R&& data, Op op = Op::kSum, const CallOptions& options = {}) {
    return self().all_reduce_async(at(data), at(data), count(data), type(data), op, options);
  }

  template <Elements In, OutputFor<In> Out>
  void all_reduce(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("all_reduce", "output", count(output), count(input));
    self().all_reduce(at(input), at(output), count(input), type(input), op, options);
  }
  template <Elements In, OutputFor<In> Out>
  Work all_reduce_async(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("all_reduce", "output", count(output), count(input));
    return self().all_reduce_async(at(input), at(output), count(input), type(input), op, options);
  }

  // output: of another size than the root's is fine elsewhere.
  template <Elements In, OutputFor<In> Out>
  void reduce(In&& input, Out&& output, Op op, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("reduce", "output", count(output), count(input));
    self().reduce(at(input), at(output), count(input), type(input), op, root, options);
  }
  template <Elements In, OutputFor<In> Out>
  Work reduce_async(In&& input, Out&& output, Op op, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("reduce", "output", count(output), count(input));
    return self().reduce_async(at(input), at(output), count(input), type(input), op, root, options);
  }

  template <MutableElements R>
  void broadcast(R&& data, int root, const CallOptions& options = {}) {
    self().broadcast(at(data), count(data), type(data), root, options);
  }
  template <MutableElements R>
  Work broadcast_async(R&& data, int root, const CallOptions& options = {}) {
    return self().broadcast_async(at(data), count(data), type(data), root, options);
  }

  template <Elements In, OutputFor<In> Out>
  void all_gather(In&& input, Out&& output, const CallOptions& options = {}) {
    fits("all_gather", "output", count(output), size() * count(input));
    self().all_gather(at(input), at(output), count(input), type(input), options);
  }
  template <Elements In, OutputFor<In> Out>
  Work all_gather_async(In&& input, Out&& output, const CallOptions& options = {}) {
    fits("all_gather", "output", count(output), size() * count(input));
    return self().all_gather_async(at(input), at(output), count(input), type(input), options);
  }

  template <Elements In, OutputFor<In> Out>
  void reduce_scatter(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("reduce_scatter", "input", count(input), size() * count(output));
    self().reduce_scatter(at(input), at(output), count(output), type(input), op, options);
  }
  template <Elements In, OutputFor<In> Out>
  Work reduce_scatter_async(In&& input, Out&& output, Op op = Op::kSum, const CallOptions& options = {}) {
    fits("reduce_scatter", "input", count(input), size() * count(output));
    return self().reduce_scatter_async(at(input), at(output), count(output), type(input), op, options);
  }

  template <Elements In, OutputFor<In> Out>
  void gather(In&& input, Out&& output, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("gather", "output", count(output), size() * count(input));
    self().gather(at(input), at(output), count(input), type(input), root, options);
  }
  template <Elements In, OutputFor<In> Out>
  Work gather_async(In&& input, Out&& output, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("gather", "output", count(output), size() * count(input));
    return self().gather_async(at(input), at(output), count(input), type(input), root, options);
  }

  template <Elements In, OutputFor<In> Out>
  void scatter(In&& input, Out&& output, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("scatter", "input", count(input), size() * count(output));
    self().scatter(at(input), at(output), count(output), type(output), root, options);
  }
  template <Elements In, OutputFor<In> Out>
  Work scatter_async(In&& input, Out&& output, int root, const CallOptions& options = {}) {
    if (root == self().rank()) fits("scatter", "input", count(input), size() * count(output));
    return self().scatter_async(at(input), at(output), count(output), type(output), root, options);
  }

  template <Elements In, OutputFor<In> Out>
  void all_to_all(In&& input, Out&& output, const CallOptions& options = {}) {
    fits("all_to_all", "output", count(output), count(input));
    fits("all_to_all", "input", count(input), count(input) / size() * size());
    self().all_to_all(at(input), at(output), count(input) / size(), type(input), options);
  }
  template <Elements In, OutputFor<In> Out>
  Work all_to_all_async(In&& input, Out&& output, const CallOptions& options = {}) {
    fits("all_to_all", "output", count(output), count(input));
    fits("all_to_all", "input", count(input), count(input) / size() * size());
    return self().all_to_all_async(at(input), at(output), count(input) / size(), type(input), options);
  }

  template <Elements R>
  void send(const R& data, int peer, int tag = 0, const CallOptions& options = {}) {
    self().send(at(data), count(data), type(data), peer, tag, options);
  }
  template <Elements R>
  Work send_async(const R& data, int peer, int tag = 0, const CallOptions& options = {}) {
    return self().send_async(at(data), count(data), type(data), peer, tag, options);
  }

  template <MutableElements R>
  Work::Message recv(R&& data, int peer, int tag = 0, const CallOptions& options = {}) {
    return self().recv(at(data), count(data), type(data), peer, tag, options);
  }
  template <MutableElements R>
  Work recv_async(R&& data, int peer, int tag = 0, const CallOptions& options = {}) {
    return self().recv_async(at(data), count(data), type(data), peer, tag, options);
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  uint64_t size() { return static_cast<uint64_t>(self().size()); }

  template <typename R>
  static auto at(R& range) {
    return std::ranges::data(range);
  }
  template <typename R>
  static uint64_t count(const R& range) {
    return static_cast<uint64_t>(std::ranges::size(range));
  }
  template <typename R>
  static constexpr DType type(const R&) {
    return dtype_of<std::ranges::range_value_t<R>>();
  }

  void fits(const char* call, const char* which, uint64_t has, uint64_t should) {
    if (has == should) return;
    throw Exception(ErrorCode::kInvalid, std::string(call) + " on rank " + std::to_string(self().rank()) + ": the " +
                                             which + " has " + std::to_string(has) + " elements instead of " +
                                             std::to_string(should));
  }
};

}  // namespace rondo
