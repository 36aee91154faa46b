#include "ring/base/core_quota.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "ring/base/file_text.h"

namespace rondo {
namespace {

// Where one hierarchy of groups has its files, and where the process is in it.
struct Place {
  std::string mount, path;
  bool second_version = true;
};

std::vector<Place> places(const std::string& groups, const std::string& root) {
  std::vector<Place> found;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      found.push_back({root, path, true});
      found.push_back({root + "/unified", path, true});  // beside hierarchies of the first version
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      found.push_back({root + "/" + controllers, path, false});
      found.push_back({root + "/cpu", path, false});
    }
  }
  return found;
}

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

// A container's path may not exist below its own mount: then its groups are those at the mount.
void look_upwards(const Place& place, CoreQuota& least) {
  std::string path = place.path;
  while (true) {
    const std::string folder = place.mount + (path == "/" ? "" : path);
    if (const auto limit = limit_of(folder, place.second_version)) {
      const auto cores = static_cast<uint32_t>(std::clamp(*limit, 1.0, 1e6));
      if (least.group == 0 || cores < least.cores) least = {number_of(folder), cores};
    }
    if (path.empty() || path == "/") return;
    path.erase(path.find_last_of('/'));
  }
}

}  // namespace

CoreQuota core_quota(const std::string& groups, const std::string& root) {
  CoreQuota least;
  for (const Place& place : places(groups, root)) look_upwards(place, least);
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
