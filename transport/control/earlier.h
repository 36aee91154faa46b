#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace rondo {

// The earlier of two times; nullopt: nothing waits.
inline std::optional<int64_t> earlier(std::optional<int64_t> one, std::optional<int64_t> other) {
  return one && other ? std::min(one, other) : one ? one : other;
}

}  // namespace rondo
