#pragma once

#include <barrier>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/loop/group.h"

namespace rondo::bench {

// Ranks as threads whose collectives follow the definition element by element: the library that the measuring code is
// tested with. A fault makes it wrong in a given way, to see that the measuring code notices.
class ThreadWorld {
 public:
  enum class Fault {
    kNone,
    kLostOperation,  // every operation after the first of a batch does nothing
    kLostBlock,      // the last element is not written
    kShiftedBlock,   // blocks land one element too far round
    kFlippedBit,     // one bit of the middle element
  };

  explicit ThreadWorld(int world, Fault fault = Fault::kNone);
  // Runs body(group of rank r) on one thread a rank.
  void run(const std::function<void(Group&)>& body);

 private:
  class Member;
  std::vector<std::byte> wanted(int rank) const;

  int world_;
  Fault fault_;
  std::barrier<> meet_;
  std::vector<Call> calls_;
  std::vector<double> numbers_;
  std::vector<uint64_t> counts_;
};

}  // namespace rondo::bench
