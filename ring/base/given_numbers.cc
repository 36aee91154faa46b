#include "ring/base/given_numbers.h"

#include <fmt/format.h>

namespace rondo {

GivenNumbers GivenNumbers::of_caller(std::string_view call, int rank) { return {call, rank, -1}; }
GivenNumbers GivenNumbers::of_peer(std::string_view call, int rank, int peer) { return {call, rank, peer}; }

void GivenNumbers::refuse(const std::string& number, const std::string& bound) const {
  if (peer_ < 0) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}; {}", call_, rank_, number, bound));
  }
  throw Exception(Error{ErrorCode::kCorrupt,
                        fmt::format("{} on rank {}: rank {} says that {}; {}. Its memory or its program is damaged: "
                                    "check that host, and that all ranks run the same version",
                                    call_, rank_, peer_, number, bound),
                        {peer_}});
}

uint64_t GivenNumbers::at_most(uint64_t most, uint64_t value, std::string_view what) const {
  if (value > most) refuse(fmt::format("{} is {}", what, value), fmt::format("it is at most {}", most));
  return value;
}

uint64_t GivenNumbers::equal(uint64_t wanted, uint64_t value, std::string_view what) const {
  if (value != wanted) refuse(fmt::format("{} is {}", what, value), fmt::format("it must be {}", wanted));
  return value;
}

uint64_t GivenNumbers::sum(uint64_t most, std::span<const uint64_t> values, std::string_view what) const {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > most - sum) {
      refuse(fmt::format("entry {} of {} is {}", i, what, values[i]),
             fmt::format("with those before it the sum is above {}", most));
    }
    sum += values[i];
  }
  return sum;
}

}  // namespace rondo
