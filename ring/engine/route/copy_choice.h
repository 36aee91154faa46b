#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ring/base/types.h"

namespace rondo {

// How plain buffers of an island are shared: staged (copied twice, through memory that stays in caches) or pulled
// (copied once, by a system call). Which is faster depends on the machine, so the first large operations of a
// communicator take turns, and the faster way is kept, for each collective and each power of two of bytes. Both fold
// every element in rank order, so results do not depend on it. Under a virtual machine it depends on the hour, too
// (kernels/cross_copy.h), so the choices are made again now and then.
//
// Every rank is told the same times of the same operations, so all choose alike.
class CopyChoice {
 public:
  // kStaged or kPull: what the next such operation takes.
  Algorithm way(Collective collective, uint64_t bytes) const;
  // Whether it is to be timed.
  bool measures(Collective collective, uint64_t bytes) const;
  // What the slowest rank took for an operation that was timed. Returns a line to be logged when a choice is made that
  // was not there before, else "".
  std::string learn(Collective collective, uint64_t bytes, std::chrono::nanoseconds slowest);
  // Every choice that is made is made again. Those that are being made go on.
  void look_again();

 private:
  // Of both ways; the first, of cold memory, is measured like the others and loses.
  static constexpr int kTrials = 6;

  struct Entry {
    int trials = 0;
    std::chrono::nanoseconds staged = std::chrono::nanoseconds::max();  // the least of its trials
    std::chrono::nanoseconds pulled = std::chrono::nanoseconds::max();
    std::optional<Algorithm> told;  // the last choice
  };
  using Key = std::pair<Collective, int>;
  static Key key(Collective collective, uint64_t bytes);

  std::map<Key, Entry> entries_;
};

}  // namespace rondo
