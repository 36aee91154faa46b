#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rondo/error.h"

namespace rondo {

// The one reader of numbers from outside: none is used before it has been compared here, and no sum wraps. Each throws
// an Exception that names call, rank, number and bound: kInvalid for the caller's, kCorrupt for those of a peer.
class GivenNumbers {
 public:
  // call: "sparse_all_reduce", on this rank.
  static GivenNumbers of_caller(std::string_view call, int rank);
  static GivenNumbers of_peer(std::string_view call, int rank, int peer);

  // `value`, where it is at most `most`. what: "the number of selected elements".
  uint64_t at_most(uint64_t most, uint64_t value, std::string_view what) const;
  // `value`, where it is `wanted`.
  uint64_t equal(uint64_t wanted, uint64_t value, std::string_view what) const;
  // Their sum, where it is at most `most`.
  uint64_t sum(uint64_t most, std::span<const uint64_t> values, std::string_view what) const;

 private:
  GivenNumbers(std::string_view call, int rank, int peer) : call_(call), rank_(rank), peer_(peer) {}
  [[noreturn]] void refuse(const std::string& number, const std::string& bound) const;

  std::string_view call_;
  int rank_;
  int peer_;  // -1: the caller
};

}  // namespace rondo
