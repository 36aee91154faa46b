#pragma once

#include <cstdint>

namespace rondo {

// How elements of float32, bfloat16 and float16 travel between ranks (CallOptions::wire). Sums are made in float32;
// docs/compression.md has the error of each; kPacked has none. The values are part of the fingerprint and of the C API:
// never renumber, only append.
enum class WireFormat : uint8_t {
  kNone = 0,        // as they are in memory
  kFloat16 = 1,     // IEEE 754 binary16, to nearest
  kBfloat16 = 2,    // the upper half of a float32, to nearest
  kFloat8E4M3 = 3,  // 8 bits and a float32 scale for each 128 elements
  kFloat8E5M2 = 4,  // likewise
  kInt8 = 5,        // -127 .. 127 and a float32 scale for each 128 elements
  kInt4 = 6,        // -7 .. 7, likewise
  kPacked = 7,      // equal bits in fewer bytes: broadcast and all_gather of bfloat16 and float32
};

inline constexpr int kWireFormats = 8;

inline constexpr const char* kWireFormatNames[kWireFormats] = {"none",        "float16", "bfloat16", "float8_e4m3",
                                                               "float8_e5m2", "int8",    "int4",     "packed"};
// "none", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "int4", "packed"; "wire
// format?" for others.
constexpr const char* wire_format_name(WireFormat format) {
  return static_cast<int>(format) < kWireFormats ? kWireFormatNames[static_cast<int>(format)] : "wire format?";
}

// The formats that can round at random (WireOptions::stochastic).
constexpr bool wire_format_rounds_at_random(WireFormat format) {
  return format == WireFormat::kInt8 || format == WireFormat::kInt4;
}

// How one call's elements travel.
struct WireOptions {
  WireFormat format = WireFormat::kNone;  // the same on all ranks

  // Rounds up or down at random, so that the expected value is the element: kInt8 and kInt4. Equal seeds give equal
  // bits. Pass another seed in each call.
  bool stochastic = false;
  // False: a result that is not finite ends the call with kNotFinite, which names element and rank. True: it is given
  // as it is, for programs that look for it themselves (loss scaling).
  bool allow_not_finite = false;
  uint64_t seed = 0;

  // Error feedback: as many float32 as the input; zero before the first call. What this rank's encoding loses in a call
  // is kept here and added to the input of the next one. nullptr: none. Overlaps no other buffer; written during the
  // call.
  float* residual = nullptr;
};

}  // namespace rondo
