#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/life/life.h"
#include "tests/support/random.h"

namespace rondo::life {

// A group as a generator knows it: its number, and the least members that any part of it has.
struct Known {
  int number;
  int members;
};

// Draws single lines of a life.
class Lines {
 public:
  Lines(testing::Random& random, const Life& life) : random_(random), life_(life) {}

  template <size_t N>
  std::string one_of(const char* const (&list)[N]) {
    return list[random_.below(N)];
  }
  // "a,b,c"
  static std::string list_of(uint64_t count, const std::function<std::string(uint64_t)>& one, char between = ',');
  static Step named(const std::string& verb, const std::string& key, int64_t value);

  uint64_t bytes();  // around a threshold
  int64_t rank() { return static_cast<int64_t>(random_.below(static_cast<uint64_t>(life_.world))); }
  Step collective(const Known& group);
  // Lines that differ in what must not change the bits of their results, and in the algorithm that they wish.
  std::vector<Step> equal_calls(const Known& group);
  Step exchange(const Known& group);
  Step shift(const Known& group);
  Step crowd(const Known& group);
  Step sparse(const Known& group);
  Step dist_opt(const Known& group);
  Step batch(const Known& group);
  Step mistake(const Known& group);
  Step loss();

 private:
  std::string dtype();
  std::string floats();
  int64_t salt() { return static_cast<int64_t>(random_.below(1000)); }
  uint64_t count_for(const std::string& dtype, uint64_t parts);
  std::string where();
  std::string where(const char* kinds);
  void algorithm(Step& step);
  void fold(Step& step);
  Step many(Step step);
  bool one_island() const;

  testing::Random& random_;
  const Life& life_;
};

}  // namespace rondo::life
