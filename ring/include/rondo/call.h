#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include <rondo/collective.h>
#include <rondo/dtype.h>
#include <rondo/error.h>
#include <rondo/wire_format.h>

namespace rondo {

// Any peer, any tag: for receives.
inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;

// Options of one call.
struct CallOptions {
  Algorithm algorithm = Algorithm::kAuto;  // the same on all ranks
  std::chrono::milliseconds timeout{0};    // of the operation; 0: Config::timeout_ms; negative: kInvalid
  double scalar = 1.0;                     // Op::kPremulSum: this rank's factor
  WireOptions wire = {};                   // all_reduce, reduce_scatter and all_gather of float32, sum and average
  // A cudaStream_t: the buffers are memory of its device, and the call takes its place in this stream (docs/gpu.md).
  std::optional<void*> stream = {};
};

// One tensor of Communicator::all_reduce_many(); in place: input == output.
struct TensorRef {
  const void* input = nullptr;
  void* output = nullptr;
  uint64_t count = 0;  // elements
  DType dtype = DType::kFloat32;
};

// Called when an operation has ended (Work::on_end). error.ok(): it succeeded.
using EndFunction = std::function<void(const Error& error)>;

}  // namespace rondo
