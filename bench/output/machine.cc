#include "bench/output/machine.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>

#include "bench/limit/congestion.h"
#include "bench/limit/processes.h"

namespace rondo::bench {
namespace {

// "unknown" where /proc/cpuinfo has no such line, as on aarch64.
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu_model();
  machine.cores = usable_cores();
  struct sysinfo info {};
  if (sysinfo(&info) == 0) machine.memory_bytes = uint64_t{info.totalram} * info.mem_unit;
  utsname name{};
  machine.kernel = uname(&name) == 0 ? name.release : "unknown";
  machine.congestion_control = default_congestion_control();
  machine.congestion_controls = allowed_congestion_controls();
  double load = 0;
  if (getloadavg(&load, 1) == 1) machine.load_average = load;
  machine.ticks = ticks_now();
  return machine;
}

}  // namespace rondo::bench
