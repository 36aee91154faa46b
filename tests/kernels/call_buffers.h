#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace rondo::testing {

// How the buffers of one call lie: sources, then targets.
struct BufferShape {
  int sources = 2;
  int targets = 1;
  int alias = -1;     // target 0 is this source; -1: none
  size_t count = 67;  // elements
  size_t offset = 0;  // of the first buffer from a 64-byte boundary
  size_t skew = 0;    // bytes that each next buffer lies further behind one
};

// Memory of its own for each, with guards around it. Two of one shape and content are equal if their calls have written
// the same and nothing else.
class CallBuffers {
 public:
  using Content = std::vector<unsigned char>;

  CallBuffers(const BufferShape& shape, const std::vector<Content>& contents) : bytes_(contents[0].size()) {
    for (int b = 0; b < shape.sources + shape.targets; ++b) {
      memory_.emplace_back(bytes_ + 2 * kMargin + 128, kGuard);
      const auto address = reinterpret_cast<uintptr_t>(memory_.back().data());
      const size_t skewed = (shape.offset + static_cast<size_t>(b) * shape.skew) % 64;
      places_.push_back(memory_.back().data() + kMargin + (64 - address % 64) % 64 + skewed);
      if (b < shape.sources) {
        std::ranges::copy(contents[static_cast<size_t>(b)], places_.back());
        sources.push_back(places_.back());
      } else {
        targets.push_back(places_.back());
      }
    }
    if (shape.alias >= 0) targets[0] = places_[static_cast<size_t>(shape.alias)];
  }
  CallBuffers(const CallBuffers&) = delete;

  // From the guard before each buffer to the one behind it.
  bool operator==(const CallBuffers& other) const {
    for (size_t b = 0; b < places_.size(); ++b) {
      if (std::memcmp(places_[b] - kMargin, other.places_[b] - kMargin, bytes_ + 2 * kMargin) != 0) return false;
    }
    return true;
  }

  std::vector<const void*> sources;
  std::vector<void*> targets;

 private:
  static constexpr unsigned char kGuard = 0xa5;
  static constexpr size_t kMargin = 64;
  size_t bytes_;
  std::vector<Content> memory_;
  std::vector<unsigned char*> places_;
};

}  // namespace rondo::testing
