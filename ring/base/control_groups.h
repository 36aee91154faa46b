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

// The groups that a process is in, and those above them, whose limits count, too. groups: the text of
// /proc/thread-self/cgroup. root: the folder /sys/fs/cgroup. Of version 1 only hierarchies with this controller
// ("cpu") are listed.
//
// Some folders may not exist: a container sees the host's path below a mount of its own. Its groups are then
// those at the mount.
std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& root,
                                         std::string_view controller);
// The number at the beginning of a file. nullopt: there is no such file, or it begins with no number ("max").
std::optional<uint64_t> number_in(const std::string& path);

// The tightest limit of cores among the control groups of a process (cpu.max; in version 1 cpu.cfs_quota_us).
// All processes of that group share it.
struct CoreQuota {
  uint64_t group = 0;  // which group of this host, as its containers see it, too; 0: there is no limit
  uint32_t cores = 0;  // whole cores, at least 1
  bool operator==(const CoreQuota&) const = default;
};

// The quota of this process; no limit where the system names none.
CoreQuota core_quota();
// The quota by its files, elsewhere: `groups` is the text of /proc/thread-self/cgroup, `root` the folder
// /sys/fs/cgroup.
CoreQuota core_quota(const std::string& groups, const std::string& root);

// Cores that the ranks of one host have between them (cores.h). cores: their number without quotas; ranks[i]:
// the quota of the i-th rank. A group with fewer cores than ranks holds up all ranks. 0 stays 0: not known.
int cores_within(int cores, const std::vector<CoreQuota>& ranks);

// The files by which the kernel says it; tests have their own.
struct MemoryFacts {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/thread-self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Bytes that this process may take before the kernel ends some process to free memory: what the machine has,
// and what its control groups and those above them leave. Pages of files and the kernel's caches count as
// available, since the kernel drops them first. UINT64_MAX: nothing says how much. Any thread.
uint64_t available_memory(const MemoryFacts& facts = {});

}  // namespace rondo
