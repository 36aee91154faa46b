#include "ring/engine/run/wire_move.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/finite.h"
#include "kernels/machine.h"
#include "kernels/pack.h"
#include "kernels/wire_codec.h"
#include "ring/base/hash.h"

namespace rondo {
namespace {

// The note behind the blocks of a slice; wire_slice_bytes() has its fields.
constexpr size_t kNoteBytes = 8;

// The note of a slice that a peer has sent. A number, rank or kind that cannot be counts as none.
WireNote read_note(const std::byte* slice, WireFormat format, uint64_t count, uint32_t world) {
  unsigned char bytes[kNoteBytes];
  std::memcpy(bytes, slice + wire_bytes(format, count), kNoteBytes);
  const uint32_t number = bytes[0] | (bytes[1] << 8) | (bytes[2] << 16) | (uint32_t{bytes[3]} << 24);
  const uint32_t rank = bytes[4] | (uint32_t{bytes[5]} << 8);
  if (number == 0 || number > count || rank >= world || bytes[6] < 1 || bytes[6] > 3) return {};
  return {number - 1, static_cast<int>(rank), static_cast<WireNote::Kind>(bytes[6])};
}

void write_note(const WireNote& note, std::byte* slice, WireFormat format, uint64_t count) {
  const auto number = static_cast<uint32_t>(note.found() ? note.index + 1 : 0);
  const auto rank = static_cast<uint32_t>(note.found() ? note.rank : 0);
  const unsigned char bytes[kNoteBytes] = {
      static_cast<unsigned char>(number),       static_cast<unsigned char>(number >> 8),
      static_cast<unsigned char>(number >> 16), static_cast<unsigned char>(number >> 24),
      static_cast<unsigned char>(rank),         static_cast<unsigned char>(rank >> 8),
      static_cast<unsigned char>(note.kind),    0};
  std::memcpy(slice + wire_bytes(format, count), bytes, kNoteBytes);
}

}  // namespace

size_t wire_slice_bytes(WireFormat format, size_t element_bytes, uint64_t count) {
  if (format == WireFormat::kPacked) return packed_bytes(element_bytes, count);
  return count == 0 ? 0 : wire_bytes(format, count) + kNoteBytes;
}

// Elements are packed once, into the first slot, and unpacked once. The peer's bytes are checked while they are
// unpacked.
std::optional<uint32_t> move_packed(DType dtype, const WireMove& move) {
  const WireSource& source = move.sources[0];
  if (move.count == 0) return 0;
  const std::byte* packed = source.data;
  const std::byte* values = source.data;
  size_t bytes = source.bytes;
  if (!source.coded) {
    packed = move.slots.empty() ? nullptr : move.slots[0];
    bytes = move.slots.empty() ? 0 : pack(dtype, values, move.count, move.slots[0]);
  } else if (!move.memory.empty()) {
    if (!unpack(dtype, packed, bytes, move.count, move.memory[0].data)) return std::nullopt;
    values = move.memory[0].data;
  }
  for (std::byte* slot : move.slots) {
    if (slot != packed) std::memcpy(slot, packed, bytes);
  }
  for (const WireTarget& to : move.memory) {
    if (to.data != values) std::memcpy(to.data, values, move.count * dtype_bytes(dtype));
  }
  return static_cast<uint32_t>(bytes);
}

void WireFold::bind(const WireOptions& options, DType memory, const CombineSpec& spec, int rank, size_t sources) {
  options_ = options;
  // Ranks that are given one seed do not make one choice.
  options_.seed = mix64(options.seed ^ (static_cast<uint64_t>(rank) << 32));
  spec_ = spec;
  memory_ = memory;
  rank_ = rank;
  // The only allocation; the size is that of the last call of the kind, mostly.
  if (options.format != WireFormat::kNone) tiles_.resize((sources + 2) * kPiece);
}

WireNote WireFold::run(const WireMove& move) {
  if (move.count == 0) return {};
  return move.passes_on ? pass_on(move) : fold(move);
}

// One coded source that goes on: the bytes are copied as they came, so that every rank decodes the same value.
WireNote WireFold::pass_on(const WireMove& move) {
  const std::byte* from = move.sources[0].data;
  for (std::byte* slot : move.slots)
    std::memcpy(slot, from, wire_slice_bytes(options_.format, dtype_bytes(memory_), move.count));
  if (move.memory.empty()) return {};
  if (memory_ == DType::kFloat32) {
    for (const WireTarget& to : move.memory) wire_decode(options_.format, from, move.count, to.data);
    return read_note(from, options_.format, move.count, spec_.world);
  }
  for (uint64_t at = 0; at < move.count; at += kPiece) {
    const uint64_t count = std::min(kPiece, move.count - at);
    wire_decode(options_.format, from + wire_bytes(options_.format, at), count, tiles_.data());
    keep(move, tiles_.data(), at, count);
  }
  return read_note(from, options_.format, move.count, spec_.world);
}

// Decodes, folds and encodes piece by piece. The earliest note of a source is the slice's, unless this fold
// meets an element in an earlier block.
WireNote WireFold::fold(const WireMove& move) {
  const DefaultFloatMode mode;
  WireNote note;
  for (const WireSource& source : move.sources) {
    note = earlier(note, source.coded ? read_note(source.data, options_.format, move.count, spec_.world) : source.note);
  }
  WireNote own;
  for (uint64_t at = 0; at < move.count; at += kPiece) {
    const uint64_t count = std::min(kPiece, move.count - at);
    const float* value = value_of(move, at, count);
    const uint64_t bad = store(move, value, at, count);
    if (bad < count && !own.found()) own = note_of(at + bad, value[bad]);
  }
  // A block with scales that was not finite somewhere is decoded as NaN everywhere: its note knows the element.
  if (own.found() && (!note.found() || own.index / kWireBlock < note.index / kWireBlock)) note = own;
  for (std::byte* slot : move.slots) write_note(note, slot, options_.format, move.count);
  return note;
}

// Elements [at, at + count) of a source as float32: where they lie, or decoded or widened into a tile. The
// residual is added to this rank's own contribution, and set to zero; store() writes what is lost this time.
const std::byte* WireFold::load(const WireMove& move, size_t index, uint64_t at, uint64_t count) {
  const WireSource& source = move.sources[index];
  float* tile = tiles_.data() + index * kPiece;
  if (source.coded) {
    wire_decode(options_.format, source.data + wire_bytes(options_.format, at), count, tile);
    return reinterpret_cast<const std::byte*>(tile);
  }
  const bool widens = !source.wide && memory_ != DType::kFloat32;
  const std::byte* values = source.data + at * (source.wide ? sizeof(float) : dtype_bytes(memory_));
  if (widens) {
    widen(memory_, values, count, tile);
    values = reinterpret_cast<const std::byte*>(tile);
  }
  if (!source.own || move.residual == nullptr) return values;
  const void* sources[] = {values, move.residual + at};
  void* targets[] = {tile};
  CombineMove sum;
  sum.sources = sources;
  sum.targets = targets;
  sum.source_count = 2;
  sum.target_count = 1;
  combine({DType::kFloat32, Op::kSum}, sum, count);
  std::fill_n(move.residual + at, count, 0.0f);
  return reinterpret_cast<const std::byte*>(tile);
}

const float* WireFold::value_of(const WireMove& move, uint64_t at, uint64_t count) {
  const void* sources[kMaxCombineSources];
  for (size_t i = 0; i < move.sources.size(); ++i) sources[i] = load(move, i, at, count);
  float* folded = tiles_.data() + move.sources.size() * kPiece;
  void* targets[] = {folded};
  CombineMove fold;
  fold.sources = sources;
  fold.targets = targets;
  fold.source_count = static_cast<uint8_t>(move.sources.size());
  fold.target_count = 1;
  fold.finish = move.finish;
  combine(spec_, fold, count);
  return folded;
}

// Encodes a piece once for all slots, and stores what they will be decoded as. Returns the first element that
// is not finite; count if there is none.
uint64_t WireFold::store(const WireMove& move, const float* value, uint64_t at, uint64_t count) {
  if (move.slots.empty()) {
    const uint64_t large = keep(move, value, at, count);
    return large < count ? large : first_not_finite(value, count, DType::kFloat32).value_or(count);
  }
  const size_t offset = wire_bytes(options_.format, at), bytes = wire_bytes(options_.format, count);
  std::byte* coded = move.slots[0] + offset;
  uint64_t bad =
      wire_encode(options_.format, value, count, coded, {options_.stochastic, options_.seed, move.element + at});
  for (std::byte* slot : move.slots.subspan(1)) std::memcpy(slot + offset, coded, bytes);
  if (move.memory.empty() && move.residual == nullptr) return bad;
  float* decoded = const_cast<float*>(value) + kPiece;  // the last tile
  wire_decode(options_.format, coded, count, decoded);
  // All of a block with a scale in which `bad` is was decoded as NaN.
  const uint64_t large = keep(move, decoded, at, count);
  if (bad == count || large / kWireBlock < bad / kWireBlock) bad = large;
  if (move.residual == nullptr) return bad;
  // The loss of an average is that of as many contributions.
  const float unit = move.finish ? static_cast<float>(spec_.world) : 1.0f;
  for (uint64_t i = 0; i < count; ++i) {
    const float lost = (value[i] - decoded[i]) * unit;
    move.residual[at + i] = std::isfinite(lost) ? lost : 0.0f;
  }
  return bad;
}

// Stores values in memory. Returns the first that its type rounds to infinity; count if there is none, and for float32.
uint64_t WireFold::keep(const WireMove& move, const float* value, uint64_t at, uint64_t count) const {
  uint64_t large = count;
  for (const WireTarget& to : move.memory) {
    if (to.wide || memory_ == DType::kFloat32) {
      std::memcpy(to.data + at * sizeof(float), value, count * sizeof(float));
    } else {
      large = narrow(memory_, value, count, to.data + at * dtype_bytes(memory_));
    }
  }
  return large;
}

WireNote WireFold::note_of(uint64_t bad, float value) const {
  const WireNote::Kind kind = std::isnan(value)   ? WireNote::Kind::kNan
                              : std::isinf(value) ? WireNote::Kind::kInfinity
                                                  : WireNote::Kind::kTooLarge;
  return {bad, rank_, kind};
}

}  // namespace rondo
