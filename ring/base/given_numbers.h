#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rondo/error.h"

namespace rondo {

// The one reader of numbers from outside: none is used before it is compared here, and no sum wraps. Each
// function throws an Exception that names call, rank, number and bound: kInvalid for a caller's number,
// kCorrupt for a peer's.
class GivenNumbers {
 public:
  // call: its name, "sparse_all_reduce"; rank: this one.
  static GivenNumbers of_caller(std::string_view call, int rank);
  static GivenNumbers of_peer(std::string_view call, int rank, int peer);

  // Returns `value` if it is at most `most`. what: its name, "the number of selected elements".
  uint64_t at_most(uint64_t most, uint64_t value, std::string_view what) const;
  // Returns `value` if it is `wanted`.
  uint64_t equal(uint64_t wanted, uint64_t value, std::string_view what) const;
  // Returns the sum if it is at most `most`.
  uint64_t sum(uint64_t most, std::span<const uint64_t> values, std::string_view what) const;

 private:
  GivenNumbers(std::string_view call, int rank, int peer) : call_(call), rank_(rank), peer_(peer) {}
  [[noreturn]] void refuse(const std::string& number, const std::string& bound) const;

  // Must outlive this object: a literal in all uses.
  std::string_view call_;
  int rank_;
  int peer_;  // -1: the caller
};

}  // namespace rondo
