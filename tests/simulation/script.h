#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/config.h"
#include "tests/simulation/kernel.h"

namespace rondo::testing::sim {

struct Fault {
  enum class Kind {
    kCrash,      // SIGKILL of a process
    kPower,      // of a host: nothing is said any more
    kStop,       // SIGSTOP, and SIGCONT after `lasts`
    kOneWay,     // what one host sends to another does not arrive, for `lasts`
    kPartition,  // neither way
    kSilence,    // the connections of two hosts carry nothing any more
    kForget,     // one of them
    kReject,     // new connections between two hosts are refused, for `lasts`
  };
  Kind kind = Kind::kCrash;
  uint64_t step = 0;       // of the machine, before which it happens
  int one = 0, other = 0;  // hosts; of kCrash and kStop `one` is a process by its number
  Time lasts = 0;
};
const char* name_of(Fault::Kind kind);

// What a run is made of: all of it follows from a seed.
struct Script {
  uint64_t seed = 0;
  std::vector<int> host;        // of each rank
  int newcomers = 0;            // start later, without a rank
  Time late = 0;                // the last rank starts so much after the others
  int64_t steps = 4;            // of training, each committed
  int64_t patience_ms = 5'000;  // of shrink() and grow()
  bool parts = false;           // ranks also sum by halves, in sub-communicators
  Config config;
  Kernel::Network network;
  std::vector<Fault> faults;
  std::string text() const;
};

// The script of this seed; its faults fall into the first `length` steps of the machine for each process.
Script script_of(uint64_t seed, uint64_t length);

}  // namespace rondo::testing::sim
