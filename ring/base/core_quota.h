// How much processor time the control groups of a process allow it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo {

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

}  // namespace rondo
