#include "ring/api/c/arguments.h"
#include "ring/base/json_text.h"

#include <chrono>
#include <span>

namespace rondo::c {
namespace {

// The values of the C API are those of the C++ enumerations, and the last one is there.
static_assert(RONDO_FLOAT8_E5M2 == kDTypes - 1 && RONDO_FLOAT16 == static_cast<int>(DType::kFloat16));
static_assert(RONDO_PREMULSUM == kOps - 1 && RONDO_AVG == static_cast<int>(Op::kAverage) &&
              RONDO_USER == static_cast<int>(Op::kUser));
static_assert(RONDO_NO_QUORUM == kErrorCodes - 1 && RONDO_INTERNAL == static_cast<int>(ErrorCode::kInternal));
static_assert(RONDO_WIRE_PACKED == kWireFormats - 1 && RONDO_WIRE_FLOAT16 == static_cast<int>(WireFormat::kFloat16));
static_assert(RONDO_EXSCAN == kCollectives - 1 && RONDO_ALL_GATHER == static_cast<int>(Collective::kAllGather));

// The algorithm of this name; NULL is "auto". The error for an unknown name lists those that there are.
Algorithm algorithm_named(const char* name) {
  if (name == nullptr) return Algorithm::kAuto;
  for (int i = 0; i < kAlgorithms; ++i) {
    if (std::strcmp(name, algorithm_name(static_cast<Algorithm>(i))) == 0) return static_cast<Algorithm>(i);
  }
  std::string known;
  for (int i = 0; i < kAlgorithms; ++i) {
    if (i > 0) known += i + 1 < kAlgorithms ? ", " : " and ";
    known += algorithm_name(static_cast<Algorithm>(i));
  }
  throw Exception(ErrorCode::kInvalid, "algorithm " + json_text(name) + " is unknown; there are " + known);
}

WireOptions wire_of(const rondo_options_t& options) {
  if ((options.wire_flags & ~(RONDO_WIRE_STOCHASTIC | RONDO_WIRE_ALLOW_NOT_FINITE)) != 0) {
    throw Exception(ErrorCode::kInvalid, "unknown wire flags " + std::to_string(options.wire_flags));
  }
  WireOptions wire;
  wire.format = wire_format_of(options.wire);
  wire.stochastic = (options.wire_flags & RONDO_WIRE_STOCHASTIC) != 0;
  wire.allow_not_finite = (options.wire_flags & RONDO_WIRE_ALLOW_NOT_FINITE) != 0;
  wire.seed = options.wire_seed;
  wire.residual = options.residual;
  return wire;
}

}  // namespace

WireFormat wire_format_of(rondo_wire_format_t format) {
  if (format >= 0 && format < kWireFormats) return static_cast<WireFormat>(format);
  throw Exception(ErrorCode::kInvalid, "unknown wire format " + std::to_string(format));
}

DType dtype_of(rondo_dtype_t dtype) {
  if (dtype >= 0 && dtype < kDTypes) return static_cast<DType>(dtype);
  throw Exception(ErrorCode::kInvalid, "unknown dtype " + std::to_string(dtype));
}

Op op_of(rondo_op_t op) {
  if (op == RONDO_USER) return Op::kUser;
  if (op >= 0 && op < kOps) return static_cast<Op>(op);
  throw Exception(ErrorCode::kInvalid, "unknown op " + std::to_string(op));
}

Collective collective_of(rondo_collective_t collective) {
  if (collective >= 0 && collective < kCollectives) return static_cast<Collective>(collective);
  throw Exception(ErrorCode::kInvalid, "unknown collective " + std::to_string(collective));
}

void refuse_struct(const char* name, size_t bytes, const char* why) {
  throw Exception(ErrorCode::kInvalid,
                  std::string(name) + "->struct_bytes is " + std::to_string(bytes) + ", and " + why);
}

// Reads a caller's options. Unknown flags are refused instead of ignored: a program for a newer library must
// not believe that they work.
CallOptions options_of(const rondo_options_t* given) {
  if (given == nullptr) return {};
  const rondo_options_t options = read_struct(given, rondo_options_t RONDO_OPTIONS_INIT, "options");
  CallOptions made;
  made.timeout = std::chrono::milliseconds(options.timeout_ms);
  made.scalar = options.scalar;
  made.algorithm = algorithm_named(options.algorithm);
  made.wire = wire_of(options);
  if (options.on_stream != 0) made.stream = options.stream;
  if (options.purpose > UINT16_MAX) {
    throw Exception(ErrorCode::kInvalid, "purpose " + std::to_string(options.purpose) + " is above 65535");
  }
  made.purpose = static_cast<Purpose>(options.purpose);
  if ((options.flags & ~uint64_t{RONDO_SYNCHRONOUS | RONDO_TRUNCATE | RONDO_RECOVERABLE}) != 0) {
    throw Exception(ErrorCode::kInvalid, "unknown flags " + std::to_string(options.flags));
  }
  if (options.user.function != nullptr) {
    // The pointers of the program's operation are used until the operation ends, beyond this call.
    made.user = {options.user.function, options.user.context, options.user.element_bytes,
                 options.user.commutative != 0};
  }
  made.synchronous = (options.flags & RONDO_SYNCHRONOUS) != 0;
  made.truncate = (options.flags & RONDO_TRUNCATE) != 0;
  made.recoverable = (options.flags & RONDO_RECOVERABLE) != 0;
  return made;
}

// Reads a caller's call. Counts and displacements stay the caller's memory, with one entry for each rank, and
// are read during the call only.
Call call_of(const rondo_call_t* given, const Communicator& group) {
  const rondo_call_t from = read_struct(&c::given(given, "call"), rondo_call_t RONDO_CALL_INIT, "call");
  Call call{.collective = collective_of(from.collective),
            .input = from.input,
            .output = from.output,
            .count = from.count,
            .dtype = dtype_of(from.dtype),
            .op = op_of(from.op),
            .root = from.root,
            .uneven = from.uneven != 0,
            .options = options_of(from.options)};
  if (!call.uneven) return call;
  const auto entries = [&group](const uint64_t* values) {
    return values == nullptr ? std::span<const uint64_t>() : std::span(values, static_cast<size_t>(group.size()));
  };
  call.input_counts = entries(from.input_counts);
  call.output_counts = entries(from.output_counts);
  call.input_displacements = entries(from.input_displacements);
  call.output_displacements = entries(from.output_displacements);
  return call;
}

}  // namespace rondo::c
