#include "bench/output/steal.h"

#include <fstream>
#include <string>

namespace rondo::bench {

ProcessorTicks read_ticks(std::istream& stat) {
  std::string name;
  if (!(stat >> name) || name != "cpu") return {};
  // user, nice, system, idle, iowait, irq, softirq, steal; the guests' that follow are in user and nice already.
  constexpr int kFields = 8;
  ProcessorTicks out;
  // The last of the eight is the steal, so it is what `steal` holds in the end.
  for (int i = 0; i < kFields; ++i) {
    if (!(stat >> out.steal)) return {};
    out.total += out.steal;
  }
  return out;
}

ProcessorTicks ticks_now() {
  std::ifstream file("/proc/stat");
  return read_ticks(file);
}

double steal_share(const ProcessorTicks& from, const ProcessorTicks& to) {
  if (to.total <= from.total || to.steal <= from.steal) return 0;
  return static_cast<double>(to.steal - from.steal) / static_cast<double>(to.total - from.total);
}

}  // namespace rondo::bench
