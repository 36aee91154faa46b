// What one thread of a device does in a pass: loads, and stores, of 16 bytes. The arithmetic is fold.h's. Compiled by
// nvcc for GPUs, and for processors by tests/support/host_fold.cc, which is how tests compare its bits with combine().
#pragma once

#include <type_traits>

#include "kernels/device/device_fold.h"
#include "kernels/fold.h"

namespace rondo {
namespace {

// What one load or store moves: the widest that every GPU has, and four of them fill a line.
struct alignas(16) Packet {
  uint64_t halves[2];
};

static_assert(sizeof(Packet) == kPacketBytes);

// A fold, with where its packets lie.
struct Pass {
  DeviceFold fold;
  // All pointers are congruent modulo 16: `head` elements before the first packet of each. Otherwise there are no
  // packets, and all elements are the head.
  uint64_t head;
  uint64_t packets;
};

// Which thread of how many.
struct ThreadPlace {
  uint64_t index;
  uint64_t count;
};

// An element of a packet, and back: shifts on registers. Signed elements are stored as unsigned ones.
template <class Stored>
RONDO_INLINE Stored element_of(const Packet& packet, int index) {
  constexpr int kEach = 8 / sizeof(Stored);
  return Stored(packet.halves[index / kEach] >> (index % kEach * 8 * int(sizeof(Stored))));
}
template <class Stored>
RONDO_INLINE void set_element(Packet& packet, int index, Stored stored) {
  constexpr int kEach = 8 / sizeof(Stored);
  packet.halves[index / kEach] |= uint64_t(std::make_unsigned_t<Stored>(stored))
                                  << (index % kEach * 8 * int(sizeof(Stored)));
}

// Tells the compiler of a GPU that this is no shared or local memory, for which it would emit generic accesses.
template <class T>
RONDO_INLINE T* global(T* pointer) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(pointer));
#endif
  return pointer;
}

RONDO_INLINE const Packet* packet_at(const Byte* at) { return global(reinterpret_cast<const Packet*>(at)); }
RONDO_INLINE Packet* packet_at(Byte* at) { return global(reinterpret_cast<Packet*>(at)); }

// Packets of a source that a thread loads at once: 8 registers of accumulators, which leaves 64 registers enough for
// packets of two sources. Floats of 16 bits have two packets, in 16 registers: one is not enough under way. A division
// of 64-bit integers is a subroutine with registers of its own: one packet, and none of the next round beside it.
template <class K>
constexpr int kElementsOf = int(kPacketBytes / K::Format::kBytes);
template <class K>
constexpr int kWordsOf = kElementsOf<K>*(sizeof(typename K::Accumulator) > 4 ? 2 : 1);
template <class K>
constexpr bool kIsHalf = K::Format::kBytes == 2 && std::is_floating_point_v<typename K::Accumulator>;
template <class K>
constexpr bool kDivides = sizeof(typename K::Accumulator) > 4 && std::is_integral_v<typename K::Constant>;
template <class K>
constexpr int kAtOnceOf = kIsHalf<K>                                                     ? 2
                          : kWordsOf<K> >= 8 || std::is_integral_v<typename K::Constant> ? 1
                                                                                         : 8 / kWordsOf<K>;

// The end of a buffer's packets, in bytes.
RONDO_INLINE uint64_t end_of(const Pass& pass, uint64_t element_bytes) {
  return pass.head * element_bytes + pass.packets * kPacketBytes;
}

// What the whole call has of a kernel's numbers.
template <class K>
struct Numbers {
  RONDO_INLINE explicit Numbers(const FoldArguments& arguments)
      : factor(K::factor(arguments)), constant(K::constant(arguments)) {}
  typename K::Scale factor;
  typename K::Constant constant;
};

// N packets of one thread, from byte `at` of a source on, `stride` bytes apart.
template <class K, int N>
struct Packets {
  Packet of[N];
  RONDO_INLINE void load(const Pass& pass, uint32_t source, uint64_t at, uint32_t stride) {
    const Byte* from = static_cast<const Byte*>(pass.fold.sources[source]) + at;
    RONDO_UNROLL
    for (int p = 0; p < N; ++p) of[p] = *packet_at(from + uint64_t(p) * stride);
  }
  template <class Use>
  RONDO_INLINE void decode(const Pass& pass, const Numbers<K>& numbers, uint32_t source, Use use) const {
    const auto scale = K::scale(numbers.factor, (pass.fold.scaled >> source) & 1);
    RONDO_UNROLL
    for (int p = 0; p < N; ++p) {
      RONDO_UNROLL
      for (int i = 0; i < kElementsOf<K>; ++i) {
        use(p, i, K::enter(K::Format::decode(element_of<typename K::Format::Stored>(of[p], i)), scale));
      }
    }
  }
};

// Folds the packets at byte `at`, N of them `stride` bytes apart, and those behind them while there are N more; returns
// where it stopped. Two sets of registers in turn, and loads without a condition: a set that has been used takes the
// source after the next one, and behind the last source those of the packets that come next. So the packets of two
// sources are under way always, while results are made and stored, too.
template <class K, int N>
RONDO_INLINE uint64_t fold_packets(const Pass& pass, const Numbers<K>& numbers, uint64_t at, uint32_t stride) {
  using Format = typename K::Format;
  using Accumulator = typename K::Accumulator;
  const DeviceFold& fold = pass.fold;
  if (at + uint64_t(N - 1) * stride >= end_of(pass, Format::kBytes)) return at;
  Packets<K, N> even, odd;
  even.load(pass, 0, at, stride);
  odd.load(pass, fold.source_count > 1 ? 1 : 0, at, stride);
  while (true) {
    const uint32_t last = fold.source_count - 1u, second = last < 1 ? last : 1;
    // Where there are none, the same again.
    const bool ends = at + uint64_t(2 * N - 1) * stride >= end_of(pass, Format::kBytes);
    const uint64_t next = at + (ends ? 0 : N * stride);
    Accumulator values[N][kElementsOf<K>];
    even.decode(pass, numbers, 0, [&](int p, int i, Accumulator value) { values[p][i] = value; });
    const auto add = [&](int p, int i, Accumulator value) { values[p][i] = K::fold(values[p][i], value); };
    uint32_t source = 1;
    for (; source < last; source += 2) {
      even.load(pass, source + 1, at, stride);
      odd.decode(pass, numbers, source, add);
      const bool more = source + 1 < last;
      odd.load(pass, more ? source + 2 : second, more ? at : next, stride);
      even.decode(pass, numbers, source + 1, add);
    }
    if (source == last) odd.decode(pass, numbers, source, add);
    if constexpr (!kDivides<K>) even.load(pass, 0, next, stride);
    if (source == last) odd.load(pass, second, next, stride);
    RONDO_UNROLL
    for (int p = 0; p < N; ++p) {
      Packet result = {};
      RONDO_UNROLL
      for (int i = 0; i < kElementsOf<K>; ++i) {
        set_element(result, i, Format::encode(K::leave(values[p][i], numbers.constant)));
      }
      for (uint32_t target = 0; target < fold.target_count; ++target) {
        *packet_at(static_cast<Byte*>(fold.targets[target]) + at + uint64_t(p) * stride) = result;
      }
    }
    if constexpr (kDivides<K>) even.load(pass, 0, next, stride);
    at += uint64_t(N) * stride;
    if (ends) return at;
  }
}

// An element that may lie anywhere: whole where it is aligned, else byte by byte.
template <class Stored>
RONDO_INLINE Stored load_anywhere(const void* base, uint64_t index) {
  const Byte* from = global(static_cast<const Byte*>(base)) + index * sizeof(Stored);
  if (reinterpret_cast<uintptr_t>(from) % sizeof(Stored) == 0) return *reinterpret_cast<const Stored*>(from);
  Stored stored = 0;
  for (size_t b = 0; b < sizeof(Stored); ++b) stored |= Stored(Stored(from[b]) << (8 * b));
  return stored;
}
template <class Stored>
RONDO_INLINE void store_anywhere(void* base, uint64_t index, Stored stored) {
  Byte* to = global(static_cast<Byte*>(base)) + index * sizeof(Stored);
  if (reinterpret_cast<uintptr_t>(to) % sizeof(Stored) == 0) {
    *reinterpret_cast<Stored*>(to) = stored;
    return;
  }
  for (size_t b = 0; b < sizeof(Stored); ++b) to[b] = Byte(stored >> (8 * b));
}

template <class K>
RONDO_INLINE void fold_element(const Pass& pass, const Numbers<K>& numbers, uint64_t index) {
  using Format = typename K::Format;
  using Stored = typename Format::Stored;
  const DeviceFold& fold = pass.fold;
  typename K::Accumulator value{};
  for (uint32_t source = 0; source < fold.source_count; ++source) {
    const auto scale = K::scale(numbers.factor, (fold.scaled >> source) & 1);
    const auto next = K::enter(Format::decode(load_anywhere<Stored>(fold.sources[source], index)), scale);
    value = source == 0 ? next : K::fold(value, next);
  }
  const Stored result = Format::encode(K::leave(value, numbers.constant));
  for (uint32_t target = 0; target < fold.target_count; ++target) {
    store_anywhere<Stored>(fold.targets[target], index, result);
  }
}

// Elements that lie in no packet.
template <class K>
RONDO_INLINE uint64_t loose_elements(const Pass& pass) {
  return pass.fold.count - pass.packets * (kPacketBytes / K::Format::kBytes);
}

template <class K>
RONDO_INLINE void fold_loose(const Pass& pass, const Numbers<K>& numbers, ThreadPlace place) {
  const uint64_t loose = loose_elements<K>(pass);
  for (uint64_t i = place.index; i < loose; i += place.count) {
    fold_element<K>(pass, numbers, i < pass.head ? i : i + pass.fold.count - loose);
  }
}

// One thread's part of the pass.
template <class K>
RONDO_INLINE void fold_thread(const Pass& pass, ThreadPlace place) {
  const Numbers<K> numbers(pass.fold.arguments);
  constexpr int kAtOnce = kAtOnceOf<K>;
  const auto stride = uint32_t(place.count * kPacketBytes);
  const uint64_t first = pass.head * K::Format::kBytes + place.index * kPacketBytes;
  const uint64_t at = fold_packets<K, kAtOnce>(pass, numbers, first, stride);
  if constexpr (kAtOnce > 1) fold_packets<K, 1>(pass, numbers, at, stride);
  fold_loose(pass, numbers, place);
}

// --- copies: one source, bytes as they are, whatever the dtype.
struct CopyFormat : Uint8 {
  using Accumulator = uint8_t;
};
using Copy = Plain<CopyFormat, BitOr>;

template <int N>
RONDO_INLINE void copy_packets(const Pass& pass, uint64_t at, uint32_t stride) {
  Packet loaded[N];
  const Byte* from = static_cast<const Byte*>(pass.fold.sources[0]) + at;
  for (int p = 0; p < N; ++p) loaded[p] = *packet_at(from + uint64_t(p) * stride);
  for (uint32_t target = 0; target < pass.fold.target_count; ++target) {
    Byte* to = static_cast<Byte*>(pass.fold.targets[target]) + at;
    for (int p = 0; p < N; ++p) *packet_at(to + uint64_t(p) * stride) = loaded[p];
  }
}

// 4: 64 bytes a thread in flight.
constexpr int kCopiedAtOnce = 4;

RONDO_INLINE void copy_thread(const Pass& pass, ThreadPlace place) {
  const auto stride = uint32_t(place.count * kPacketBytes);
  const uint64_t end = end_of(pass, 1);
  uint64_t at = pass.head + place.index * kPacketBytes;
  for (; at + (kCopiedAtOnce - 1) * uint64_t(stride) < end; at += kCopiedAtOnce * uint64_t(stride)) {
    copy_packets<kCopiedAtOnce>(pass, at, stride);
  }
  for (; at < end; at += stride) copy_packets<1>(pass, at, 0);
  fold_loose(pass, Numbers<Copy>(pass.fold.arguments), place);
}

// Elements before the first packet; all of them if the pointers are not congruent, or not at whole elements.
RONDO_INLINE uint64_t head_of(const DeviceFold& fold, uint64_t element_bytes) {
  const auto place = reinterpret_cast<uintptr_t>(fold.targets[0]);
  uintptr_t differing = 0;
  RONDO_ROLLED
  for (uint32_t i = 0; i < fold.source_count; ++i) differing |= reinterpret_cast<uintptr_t>(fold.sources[i]) ^ place;
  RONDO_ROLLED
  for (uint32_t i = 0; i < fold.target_count; ++i) differing |= reinterpret_cast<uintptr_t>(fold.targets[i]) ^ place;
  if (differing % kPacketBytes != 0 || place % element_bytes != 0) return fold.count;
  const uint64_t head = (kPacketBytes - place % kPacketBytes) % kPacketBytes / element_bytes;
  return head < fold.count ? head : fold.count;
}

// Says how many elements lie before the first packet, and how many packets there are. Once the pointers are known.
RONDO_INLINE void align_pass(Pass& pass, uint64_t element_bytes) {
  pass.head = head_of(pass.fold, element_bytes);
  pass.packets = (pass.fold.count - pass.head) * element_bytes / kPacketBytes;
}

}  // namespace
}  // namespace rondo
