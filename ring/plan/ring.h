#pragma once

#include <cstdint>

#include "ring/plan/plan_builder.h"

namespace rondo {

// Who comes after whom, seen from one member of a ring of n. Positions are relative to this member and taken modulo
// n; they become absolute in rank_at() and block() alone. A value: no links, no state.
class Ring {
 public:
  Ring(int n, int me) : n_(n), me_(me) {}

  int size() const { return n_; }
  // k may be negative, or beyond n.
  int rank_at(int k) const { return ((me_ + k % n_) % n_ + n_) % n_; }
  uint32_t block(int k) const { return static_cast<uint32_t>(rank_at(k)); }
  int next() const { return rank_at(1); }
  int prev() const { return rank_at(-1); }
  // Hops that something sent by `start` makes until it is here.
  int hops_from(int start) const { return ((me_ - start) % n_ + n_) % n_; }
  // What the k-th scatter-reduce step of an all-reduce receives; the first brings a contribution as it is.
  Ref arriving(const PlanBuilder& b, int k) const {
    return k == 1 ? b.from_input(prev(), block(-1)) : b.from(prev(), block(-k));
  }

 private:
  int n_, me_;
};

}  // namespace rondo
