#pragma once

#include <cstdint>
#include <vector>

#include "ring/base/types.h"
#include "ring/plan/plan.h"

namespace rondo {

// What a collective promises, apart from how any algorithm keeps it.

// What an output block must hold at the end.
struct Promise {
  uint32_t block = 0;   // of the output
  bool folded = false;  // every rank's contribution to this block, folded, or those of `first`; else a copy of:
  int source = 0;       // the rank whose input it is
  uint32_t source_block = 0;
  int first = 0;  // of a scan: contributions of ranks 0 .. first - 1, folded in this order; 0: no scan
  bool operator==(const Promise&) const = default;
};

// A rank's promised output blocks; no other output block of that rank may be written.
std::vector<Promise> promises(const Plan& plan);

// Whether an output block is among them, without making the list: the verifier asks for every ref.
bool output_promised(const Plan& plan, uint32_t block);

// Whether this rank has been given the input block.
bool holds_input(const Plan& plan, uint32_t block);

// Whether input and output may be the same memory.
constexpr bool in_place_possible(Collective collective) {
  return collective != Collective::kAllToAll && collective != Collective::kBarrier;
}

}  // namespace rondo
