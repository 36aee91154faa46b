#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/combine.h"
#include "rondo/wire_format.h"

namespace rondo {

// The first element that is not finite: its index, what it is, and the rank that met it first. It travels with
// coded slices, so that every rank can name the culprit.
struct WireNote {
  enum class Kind : uint8_t { kNone = 0, kNan = 1, kInfinity = 2, kTooLarge = 3 };
  uint64_t index = 0;
  int rank = -1;
  Kind kind = Kind::kNone;

  bool found() const { return kind != Kind::kNone; }
};
// The note with the lower index.
inline const WireNote& earlier(const WireNote& a, const WireNote& b) {
  return !b.found() || (a.found() && a.index <= b.index) ? a : b;
}

// Bytes of a slice of `count` elements as it travels: blocks as kernels/wire_codec.h has them, then 8 bytes for the
// first element that is not finite: its number in the slice plus 1 (uint32; 0: there is none), rank (uint16), kind
// (uint8), 0. All little-endian. An empty slice is empty. kPacked: the most; blocks as kernels/pack.h has them, alone.
size_t wire_slice_bytes(WireFormat format, size_t element_bytes, uint64_t count);

// A source of a coded move: what a link has received, or memory of this rank.
struct WireSource {
  const std::byte* data = nullptr;
  uint32_t bytes = 0;  // as it travels: of `data`
  bool coded = false;  // as it travels; else
  bool wide = false;   // float32, or of the call's type
  bool own = false;    // this rank's contribution, to which the residual is added
  WireNote note;       // of memory: what run() returned when it was stored here
};

struct WireTarget {
  std::byte* data = nullptr;
  bool wide = false;  // float32, or of the call's type
};

// One slice of a step whose ranks exchange coded slices.
struct WireMove {
  std::span<const WireSource> sources;
  std::span<const WireTarget> memory;  // targets in memory
  std::span<std::byte* const> slots;   // targets of wire_slice_bytes(), sent to others
  uint64_t count = 0;                  // elements
  bool passes_on = false;              // one source, coded: its bytes go on as they came
  bool finish = false;                 // CombineMove::finish
  uint64_t element = 0;                // number of the first element in this rank's input: for rounding at random
  float* residual = nullptr;           // of these elements; or nullptr
};

// kPacked, of steps with one source: what came goes on as it came, what is in memory is packed once for all slots; the
// elements are stored in memory. Returns the bytes of a slot (of what came, where there is none); nullopt: it is no
// packed elements. dtype: of memory.
std::optional<uint32_t> move_packed(DType dtype, const WireMove& move);

// The other formats. Folds sources in the listed order in float32, encodes the value once for all slots, and stores in
// memory what the slots are decoded as; without slots, the value itself; both rounded to the target's type. The
// residual becomes what the encoding has lost, in the unit of a contribution; zero where nothing was encoded. Cost
// beside the transfer: a pass of 8 KiB pieces in cache. Never throws; allocates in bind() only. One thread at a time.
class WireFold {
 public:
  // memory: float32, float16 or bfloat16. spec: of float32. sources: the most of any step. rank: this one, of
  // `spec.world`.
  void bind(const WireOptions& options, DType memory, const CombineSpec& spec, int rank, size_t sources);
  // Returns the first element that is not finite, of those that are stored in memory or sent; its index is of the
  // slice.
  WireNote run(const WireMove& move);

 private:
  static constexpr uint64_t kPiece = 2048;  // elements: 8 KiB, a few of which stay in a first-level cache

  WireNote pass_on(const WireMove& move);
  WireNote fold(const WireMove& move);
  const float* value_of(const WireMove& move, uint64_t at, uint64_t count);
  const std::byte* load(const WireMove& move, size_t index, uint64_t at, uint64_t count);
  // These return the place in the piece of the first value that is not finite; count: there is none.
  uint64_t store(const WireMove& move, const float* value, uint64_t at, uint64_t count);
  uint64_t keep(const WireMove& move, const float* value, uint64_t at, uint64_t count) const;
  WireNote note_of(uint64_t bad, float value) const;

  WireOptions options_;
  CombineSpec spec_;
  DType memory_ = DType::kFloat32;
  int rank_ = 0;
  std::vector<float> tiles_;  // a piece for each source, one for the fold, one for what is decoded
};

}  // namespace rondo
