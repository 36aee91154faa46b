#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ring/base/descriptor.h"

namespace rondo {

// Ranks of one host try, pair by pair and at start, what they could share: a unix connection with descriptors, memory
// written by one and read by the other, and the kernel's copy from one process to another.

// Where this rank waits for the others. Made before its name is published.
class MeetingPlace {
 public:
  // A place that cannot be had (the kernel forbids it) has no name, and says why.
  explicit MeetingPlace(int world);
  const std::string& name() const { return name_; }
  const std::string& why() const { return why_; }
  int listener() const { return listener_.get(); }

 private:
  Descriptor listener_;
  std::string name_, why_;
};

struct MeetingGuest {  // another rank of the host
  int rank = -1;
  pid_t pid = 0;
  std::string place;  // MeetingPlace::name(); "": it has none
};

struct MeetingOrder {
  int rank = 0;
  int world = 1;
  uint64_t session = 0;  // hash of everything that the ranks published: only a rank of this start knows it
  std::vector<MeetingGuest> guests;
  std::chrono::steady_clock::time_point deadline;  // for all of it
  std::function<bool(int rank)> gone;              // that rank has died or left: it is not waited for
};

struct MeetingResult {
  int rank = -1;
  Descriptor socket;  // of those that share memory
  bool pulls = false;
  std::string why_not;  // "": they share
};

// By ascending rank. Never throws for what a guest does.
std::vector<MeetingResult> meet(const MeetingPlace& place, const MeetingOrder& order);

}  // namespace rondo
