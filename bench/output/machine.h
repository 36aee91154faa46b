#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/output/steal.h"

namespace rondo::bench {

// What a figure depends on besides the code.
struct Machine {
  std::string cpu;  // "AMD EPYC 7B13"
  int cores = 1;    // that this process may use
  uint64_t memory_bytes = 0;
  std::string kernel;                            // release
  std::string congestion_control;                // the system's default
  std::vector<std::string> congestion_controls;  // that may be set on a socket
  double load_average = 0;                       // runnable tasks over the last minute, when this was read
  ProcessorTicks ticks;                          // when this was read

  // The share of all processors' time since this was read that a hypervisor gave to other machines.
  double steal_share() const { return bench::steal_share(ticks, ticks_now()); }
};

// Reads all of it. Fields that the system does not tell keep their defaults.
Machine this_machine();

}  // namespace rondo::bench
