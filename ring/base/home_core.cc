#include "ring/base/home_core.h"

namespace rondo {

int home_core(const cpu_set_t& allowed, int place) {
  const int cores = CPU_COUNT(&allowed);
  if (place < 0 || cores < 2) return -1;
  int core = 0;
  for (int skip = place % cores;; ++core) {
    if (CPU_ISSET(core, &allowed) && skip-- == 0) return core;
  }
}

void go_home(int place) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int core = home_core(allowed, place);
  if (core < 0) return;
  cpu_set_t home;
  CPU_ZERO(&home);
  CPU_SET(core, &home);
  if (sched_setaffinity(0, sizeof home, &home) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace rondo
