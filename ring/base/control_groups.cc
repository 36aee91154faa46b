#include "ring/base/control_groups.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "ring/base/file_text.h"

namespace rondo {
namespace {

// Adds the group at `path` below the mount, and those above it up to the mount itself: a limit above counts,
// too.
void add_upwards(const std::string& mount, std::string path, bool second_version, std::vector<ControlGroup>& found) {
  while (path.size() > 1) {
    found.push_back({mount + path, second_version});
    path.erase(path.find_last_of('/'));
  }
  found.push_back({mount, second_version});
}

// The group's quota in cores. nullopt: it has no limit, or there is no such group.
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

// Never 0, which stands for no limit. 1 where the folder cannot be looked at.
uint64_t number_of_group(const std::string& folder) {
  struct stat status {};
  return stat(folder.c_str(), &status) == 0 ? std::max<uint64_t>(status.st_ino, 1) : 1;
}

// The number behind `name`, in a file of lines "name number ...".
std::optional<uint64_t> number_of(const std::string& path, std::string_view name) {
  std::ifstream facts(path);
  std::string found;
  for (uint64_t number = 0; facts >> found >> number; facts.ignore(64, '\n')) {
    if (found == name) return number;
  }
  return std::nullopt;
}

// Bytes that the group's limit leaves; UINT64_MAX: it has none. Cached files count as free.
uint64_t left_in(const ControlGroup& group) {
  const bool second = group.second_version;
  const std::optional<uint64_t> most = number_in(group.folder + (second ? "/memory.max" : "/memory.limit_in_bytes"));
  if (!most) return UINT64_MAX;
  uint64_t used = number_in(group.folder + (second ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  for (const std::string cache : {"inactive_file", "active_file", "slab_reclaimable"}) {
    // Version 1 has the first two of a group alone, and with those below it under this name.
    const std::string name = second ? cache : "total_" + cache;
    used -= std::min(used, number_of(group.folder + "/memory.stat", name).value_or(0));
  }
  return *most > used ? *most - used : 0;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& root,
                                         std::string_view controller) {
  std::vector<ControlGroup> found;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "number:controllers:path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (controllers.empty()) {
      add_upwards(root, path, true, found);
      add_upwards(root + "/unified", path, true, found);  // beside hierarchies of the first version
    } else if (fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) != std::string::npos) {
      add_upwards(fmt::format("{}/{}", root, controllers), path, false, found);
      if (controllers != controller) add_upwards(fmt::format("{}/{}", root, controller), path, false, found);
    }
  }
  return found;
}

std::optional<uint64_t> number_in(const std::string& path) {
  uint64_t number = 0;
  if (std::ifstream(path) >> number) return number;
  return std::nullopt;
}

// The tightest of all groups counts. Its inode identifies it: ranks of one host with equal inodes share one
// quota.
CoreQuota core_quota(const std::string& groups, const std::string& root) {
  CoreQuota least;
  for (const ControlGroup& group : control_groups(groups, root, "cpu")) {
    const auto limit = limit_of(group.folder, group.second_version);
    if (!limit) continue;
    const auto cores = static_cast<uint32_t>(std::clamp(*limit, 1.0, 1e6));
    if (least.group == 0 || cores < least.cores) least = {number_of_group(group.folder), cores};
  }
  return least;
}

CoreQuota core_quota() { return core_quota(file_text("/proc/thread-self/cgroup"), "/sys/fs/cgroup"); }

// A group with fewer cores than ranks slows its ranks down, and the others wait for these. So all ranks
// together have no more than if every group were as tight.
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

uint64_t available_memory(const MemoryFacts& facts) {
  const std::optional<uint64_t> kib = number_of(facts.meminfo, "MemAvailable:");
  uint64_t available = kib ? *kib * 1024 : UINT64_MAX;
  for (const ControlGroup& group : control_groups(file_text(facts.groups), facts.root, "memory")) {
    available = std::min(available, left_in(group));
  }
  return available;
}

}  // namespace rondo
