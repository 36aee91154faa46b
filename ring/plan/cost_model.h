#pragma once

#include <cstdint>

#include "ring/base/types.h"

namespace rondo {

// How two ranks reach each other (Topology): through shared memory, by TCP inside a host, or by TCP between hosts.
enum class PairKind : uint8_t { kMemory = 0, kLoopback = 1, kNetwork = 2 };

PairKind pair_kind(const Topology& topology, int a, int b);

// What a pair of one kind costs: `alpha` until a slice's first byte is there, `beta` a byte on a port, `message` each
// slice beyond the first that a rank sends or receives meanwhile (about a system call with TCP).
struct PairCost {
  double alpha_us = 0;
  double beta_us_per_byte = 0;
  double message_us = 0;
};

// The dearer of two in each respect.
PairCost dearer(const PairCost& a, const PairCost& b);

// What moving, folding and copying costs; `gamma` a byte folded. Every rank has one port out and one port in, which all
// its links share. The defaults are orders of magnitude: shared memory at 6 GB/s, TCP over loopback at 4 GB/s, 25
// Gbit/s Ethernet, a float32 add and a copy at 12 GB/s. A message over loopback takes some 1.5 us of a processor on
// each side. The model of all ranks must be equal.
struct CostModel {
  PairCost memory{0.5, 1.0 / 6000, 0.2};
  PairCost loopback{5.0, 1.0 / 4000, 1.5};
  PairCost network{20.0, 1.0 / 3000, 1.0};
  double gamma_us_per_byte = 1.0 / 12000;
  double copy_us_per_byte = 1.0 / 12000;  // from or to a window
  // Into a post, or out of one, where it is folded as well. Posts stay in caches: measured 22 GB/s at 64 KiB and 27 to
  // 36 below, world 2, AMD EPYC (2026-11-21).
  double post_us_per_byte = 1.0 / 22000;
  // Over loopback messages and bytes of more ranks than cores cost this factor more than those of two ranks with a core
  // each: they find cold caches, and another rank must be switched to (docs/tuning.md, "The cost model").
  double crowded_factor = 3;
  // Where ranks share cores, the bytes of halving cost this factor more than a ring's, since half of the buffer is in
  // flight between two folds.
  double crowded_halving_factor = 1.12;

  const PairCost& of(PairKind kind) const {
    return kind == PairKind::kMemory ? memory : kind == PairKind::kLoopback ? loopback : network;
  }
};

}  // namespace rondo
