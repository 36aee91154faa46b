#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/control/control_settings.h"

namespace rondo {

// The members of a communicator, by world rank, and how messages name them: by the place in the communicator, with the
// world rank where that differs: "rank 1 (world rank 5, host b, pid 17)". Constant; settings outlive it.
class MemberNames {
 public:
  MemberNames(uint64_t communicator, std::vector<int> ranks, const ControlSettings& settings)
      : communicator_(communicator), ranks_(std::move(ranks)), settings_(settings) {}

  uint64_t communicator() const { return communicator_; }
  const std::vector<int>& ranks() const { return ranks_; }  // in the communicator's order
  int place(int rank) const;                                // -1: it is no member
  std::string name(int rank) const;
  std::string own_name() const { return name(settings_.rank); }
  // "communicator 0x2a (world ranks 0, 1, 2)"
  std::string title() const;

 private:
  const uint64_t communicator_;
  const std::vector<int> ranks_;
  const ControlSettings& settings_;
};

}  // namespace rondo
