#include "ring/base/cores.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace rondo {
namespace {

// Whether `some` is a subset of `all`.
bool within(const cpu_set_t& some, const cpu_set_t& all) {
  cpu_set_t both;
  CPU_AND(&both, &some, &all);
  return CPU_EQUAL(&both, &some);
}

}  // namespace

cpu_set_t allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
  return allowed;
}

std::string pack_cores(const cpu_set_t& cores) {
  std::string bytes(kCoreSetBytes, '\0');
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) bytes[core / 8] = static_cast<char>(bytes[core / 8] | 1 << core % 8);
  }
  bytes.erase(bytes.find_last_not_of('\0') + 1);
  return bytes;
}

cpu_set_t unpack_cores(std::string_view bytes) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (size_t core = 0; core < std::min<size_t>(CPU_SETSIZE, 8 * bytes.size()); ++core) {
    if ((static_cast<unsigned char>(bytes[core / 8]) >> core % 8 & 1) != 0) CPU_SET(core, &cores);
  }
  return cores;
}

// Processes that are bound to a set of cores share it with all that are bound to a part of it. Ranks have few
// different sets: all the same one, or one each.
int cores_between(const std::vector<cpu_set_t>& ranks) {
  struct Kind {
    cpu_set_t cores;
    int ranks = 0;
  };
  std::map<std::string_view, Kind> kinds;  // by the set's own bytes
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const cpu_set_t& cores : ranks) {
    if (CPU_COUNT(&cores) == 0) return 0;
    Kind& kind = kinds[{reinterpret_cast<const char*>(&cores), sizeof cores}];
    kind.cores = cores;
    ++kind.ranks;
    CPU_OR(&all, &all, &cores);
  }
  int64_t between = CPU_COUNT(&all);
  for (const auto& [bytes, shared] : kinds) {
    int sharing = 0;
    for (const auto& [other_bytes, other] : kinds) {
      if (within(other.cores, shared.cores)) sharing += other.ranks;
    }
    const int64_t cores = CPU_COUNT(&shared.cores);
    if (cores < sharing) between = std::min(between, cores * static_cast<int64_t>(ranks.size()) / sharing);
  }
  return static_cast<int>(std::max<int64_t>(between, ranks.empty() ? 0 : 1));
}

int home_core(const cpu_set_t& allowed, int place) {
  const int cores = CPU_COUNT(&allowed);
  if (place < 0 || cores < 2) return -1;
  int core = 0;
  for (int skip = place % cores;; ++core) {
    if (CPU_ISSET(core, &allowed) && skip-- == 0) return core;
  }
}

// Binds the thread to its core, which moves it there at once, and then gives it back all cores that it was
// allowed.
bool go_home(int place) {
  if (place < 0) return false;
  const cpu_set_t allowed = allowed_cores();
  const int core = home_core(allowed, place);
  if (core < 0 || core == sched_getcpu()) return false;
  cpu_set_t home;
  CPU_ZERO(&home);
  CPU_SET(core, &home);
  if (sched_setaffinity(0, sizeof home, &home) != 0) return false;
  sched_setaffinity(0, sizeof allowed, &allowed);
  return true;
}

}  // namespace rondo
