// What the control groups of a process, of both versions, allow it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

struct ControlGroup {
  std::string folder;
  bool second_version = true;
};

// The groups that a process is in, and those above them, whose limits count, too: of version 2, and of version 1 those
// with this controller ("cpu"). groups: text of /proc/thread-self/cgroup. root: the folder /sys/fs/cgroup. Some folders
// may not exist: a container's path below its own mount, then its groups are those at the mount.
std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& root,
                                         std::string_view controller);
// The number that a file begins with; nothing if there is no such file, or no number in it ("max").
std::optional<uint64_t> number_in(const std::string& path);

// The tightest limit among the control groups that a process is in (cpu.max; of the first version of control groups,
// cpu.cfs_quota_us): what all processes of that group may use together.
struct CoreQuota {
  uint64_t group = 0;  // which group of this host, as its containers see it, too; 0: there is no limit
  uint32_t cores = 0;  // whole cores, at least 1
  bool operator==(const CoreQuota&) const = default;
};

// The quota of this process. No limit where the system does not say.
CoreQuota core_quota();
// The quota by its files, elsewhere: `groups` is the text of /proc/thread-self/cgroup, `root` the folder
// /sys/fs/cgroup.
CoreQuota core_quota(const std::string& groups, const std::string& root);

// Cores that the ranks of one host have between them (cores.h), `cores` of them without quotas, if ranks[i] is the
// quota of the i-th: a group that has fewer than ranks holds up all ranks. 0 stays 0: not known.
int cores_within(int cores, const std::vector<CoreQuota>& ranks);

// Where the kernel says it.
struct MemoryFacts {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/thread-self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Bytes that may be had before the kernel ends some process to get more: what the machine has, and what the limits of
// this process's control groups and of those above them leave, of both versions. Pages of files that were read, and the
// kernel's caches, are available: it drops them first. UINT64_MAX: nothing says how much. Any thread.
uint64_t available_memory(const MemoryFacts& facts = {});

}  // namespace rondo
