#include "ring/base/core_quota.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>

#include "ring/base/control_groups.h"
#include "ring/base/file_text.h"

namespace rondo {
namespace {

// Microseconds of all cores in a period. nullopt: no limit, or no such group.
std::optional<double> limit_of(const std::string& folder, bool second_version) {
  double quota = 0, period = 0;
  if (second_version) {
    std::ifstream file(folder + "/cpu.max");  // "max 100000" or "150000 100000"
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream of_quota(folder + "/cpu.cfs_quota_us"), of_period(folder + "/cpu.cfs_period_us");
    if (!(of_quota >> quota) || !(of_period >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

uint64_t number_of(const std::string& folder) {
  struct stat status {};
  return stat(folder.c_str(), &status) == 0 ? std::max<uint64_t>(status.st_ino, 1) : 1;
}

}  // namespace

CoreQuota core_quota(const std::string& groups, const std::string& root) {
  CoreQuota least;
  for (const ControlGroup& group : control_groups(groups, root, "cpu")) {
    const auto limit = limit_of(group.folder, group.second_version);
    if (!limit) continue;
    const auto cores = static_cast<uint32_t>(std::clamp(*limit, 1.0, 1e6));
    if (least.group == 0 || cores < least.cores) least = {number_of(group.folder), cores};
  }
  return least;
}

CoreQuota core_quota() { return core_quota(file_text("/proc/thread-self/cgroup"), "/sys/fs/cgroup"); }

int cores_within(int cores, const std::vector<CoreQuota>& ranks) {
  struct Group {
    uint32_t cores = 0;
    uint32_t ranks = 0;
  };
  std::map<uint64_t, Group> groups;
  for (const CoreQuota& quota : ranks) {
    if (quota.group == 0) continue;
    Group& group = groups[quota.group];
    group.cores = quota.cores;
    ++group.ranks;
  }
  int64_t within = cores;
  for (const auto& [number, group] : groups) {
    if (group.cores >= group.ranks) continue;
    const auto all = static_cast<int64_t>(ranks.size());
    within = std::min(within, std::max<int64_t>(1, int64_t{group.cores} * all / group.ranks));
  }
  return static_cast<int>(within);
}

}  // namespace rondo
