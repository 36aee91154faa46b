#pragma once

#include <cstdint>

#include "ring/plan/plan_builder.h"

namespace rondo {

// Who comes after whom, seen from one member of a ring of n. Positions are relative to this member and taken modulo
// n; they become absolute in rank_at() and block() alone. A value: no links, no state.
class Ring {
 public:
  enum class Direction { kUp, kDown };  // to the next higher, or the next lower number

  Ring(int n, int me, Direction direction) : n_(n), me_(me), sign_(direction == Direction::kUp ? 1 : -1) {}

  int size() const { return n_; }
  // k may be negative, or beyond n.
  int rank_at(int k) const { return ((me_ + sign_ * (k % n_)) % n_ + n_) % n_; }
  uint32_t block(int k) const { return static_cast<uint32_t>(rank_at(k)); }
  int next() const { return rank_at(1); }
  int prev() const { return rank_at(-1); }
  // Hops that something sent by `start` makes until it is here.
  int hops_from(int start) const { return ((sign_ * (me_ - start)) % n_ + n_) % n_; }
  // What the k-th scatter-reduce step of an all-reduce receives; the first brings a contribution as it is.
  Ref arriving(const PlanBuilder& b, int k) const {
    return k == 1 ? b.from_input(prev(), block(-1)) : b.from(prev(), block(-k));
  }

 private:
  // sign_: 1 or -1, the direction.
  int n_, me_, sign_;
};

}  // namespace rondo
