#pragma once

#include <cstdint>
#include <istream>

namespace rondo::bench {

// "Steal" is what top(1) calls st: the time that a virtual machine's processors had something to run and the hypervisor
// ran another machine instead. The figures of that time are its neighbor's, not the library's.

// Time of all processors since the machine started, in the kernel's ticks (10 ms each, mostly).
struct ProcessorTicks {
  uint64_t total = 0;
  uint64_t steal = 0;
};

// The first line of /proc/stat (proc_stat(5)). All zero if it is none, as where there is no such file.
ProcessorTicks read_ticks(std::istream& stat);
ProcessorTicks ticks_now();

// Between the two, of all processors' time: 0 on a real machine, and if no tick has passed.
double steal_share(const ProcessorTicks& from, const ProcessorTicks& to);

}  // namespace rondo::bench
