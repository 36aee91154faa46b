#pragma once

#include <string>
#include <vector>

#include "tests/support/resources.h"

namespace rondo::life {

// What this process has between the rounds of a life. What the allocator keeps for threads would look like a leak: the
// player turns that off.
class Leaks {
 public:
  explicit Leaks(int rounds) { counted_.reserve(static_cast<size_t>(rounds)); }
  void count() { counted_.push_back(testing::Resources::settled()); }
  // "" or what has grown in each round but the first, which makes what the C library and statics keep; needs five.
  std::string found() const;

 private:
  std::vector<testing::Resources> counted_;
};

}  // namespace rondo::life
