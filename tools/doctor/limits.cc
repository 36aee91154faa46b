#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <optional>

#include "ring/base/control_groups.h"
#include "ring/base/cores.h"
#include "ring/base/file_text.h"
#include "rondo/error.h"
#include "tools/doctor/checks.h"
#include "transport/fabrics/descriptor_budget.h"

namespace rondo::doctor {
namespace {

// The program's, the one for input and output, the one that progresses operations, and the store's of rank 0.
constexpr uint64_t kThreadsOfRank = 4;
constexpr uint64_t kMiB = 1 << 20;
// A small model's rank with Rondo in it.
constexpr uint64_t kLeastMemoryBytes = 64 * kMiB;
// Version 1 of control groups says a number near 2^63 where version 2 says "max".
constexpr uint64_t kNoLimit = uint64_t{1} << 62;

// The hard limit counts: a rank raises its soft limit itself (ensure_descriptors()). `least` is what a rank needs at
// its start; `most` is what it opens when it uses every link.
Finding descriptors(const Job& job) {
  Place place;
  place.world = job.world();
  place.local_world = job.local_ranks;
  const DescriptorNeed need = descriptors_of_rank(place, job.config);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = fmt::format("a rank of {} needs {} to {} descriptors, and the limit is {}", job.world(),
                                       need.least, need.most, limit.rlim_max);
  const std::string mend = fmt::format("ulimit -n {}", need.most + 256);
  const uint64_t programs_own = 16;
  if (limit.rlim_max < need.least + programs_own) return {Level::kWrong, "descriptors", text, mend};
  if (limit.rlim_max < need.most + programs_own) return {Level::kNote, "descriptors", text, mend};
  return {Level::kFine, "descriptors", text, ""};
}

// A quota of the control group takes cores away by time, which the set of allowed cores does not show. Fewer cores than
// ranks slow a job down and stop none.
Finding cores(const Job& job) {
  const cpu_set_t allowed = allowed_cores();
  const int count = CPU_COUNT(&allowed);
  const CoreQuota found = core_quota();
  const std::string quota =
      found.group != 0 ? fmt::format(", of which the control group leaves {} (cpu.max)", found.cores) : "";
  const std::string text = fmt::format("{} cores{} for {} ranks", count, quota, job.local_ranks);
  const int usable = found.group != 0 ? std::min(count, static_cast<int>(found.cores)) : count;
  if (usable >= job.local_ranks) return {Level::kFine, "cores", text, ""};
  return {Level::kNote, "cores", text, "ranks take turns: start fewer, or give the job more cores"};
}

// A limit is no failure by itself: how much a program needs is not known.
Finding group_memory(const Job& job, const GroupLimits& limits) {
  if (limits.memory_bytes == 0) return {Level::kFine, "memory", "the control group sets no limit of memory", ""};
  const std::string text = fmt::format("the control group's limit is {} MiB of memory", limits.memory_bytes / kMiB);
  const bool enough = limits.memory_bytes / kLeastMemoryBytes >= static_cast<uint64_t>(job.local_ranks);
  if (enough) return {Level::kFine, "memory", text, ""};
  return {Level::kNote, "memory", text, "shared memory counts for the ranks that touch it: give the container more"};
}

// Threads count as processes there.
Finding processes(const Job& job, const GroupLimits& limits) {
  const uint64_t needed = kThreadsOfRank * static_cast<uint64_t>(job.local_ranks);
  if (limits.processes == UINT64_MAX)
    return {Level::kFine, "processes", "the control group sets no limit (pids.max)", ""};
  const std::string text = fmt::format("{} ranks have {} threads, and the control group leaves {} (pids.max)",
                                       job.local_ranks, needed, limits.processes);
  if (limits.processes >= needed) return {Level::kFine, "processes", text, ""};
  return {Level::kWrong, "processes", text, "raise the container's limit (--pids-limit)"};
}

}  // namespace

// A limit of any group above holds too: the least of all counts.
GroupLimits read_group_limits(const std::string& root, const std::string& groups) {
  GroupLimits limits;
  limits.processes = UINT64_MAX;
  for (const ControlGroup& group : control_groups(groups, root, "memory")) {
    const char* file = group.second_version ? "/memory.max" : "/memory.limit_in_bytes";
    const std::optional<uint64_t> most = number_in(group.folder + file);
    if (!most || *most >= kNoLimit) continue;
    limits.memory_bytes = limits.memory_bytes > 0 ? std::min(limits.memory_bytes, *most) : *most;
  }
  for (const ControlGroup& group : control_groups(groups, root, "pids")) {
    const std::optional<uint64_t> most = number_in(group.folder + "/pids.max");
    const uint64_t used = number_in(group.folder + "/pids.current").value_or(0);
    if (most) limits.processes = std::min(limits.processes, *most - std::min(*most, used));
  }
  return limits;
}

Findings check_limits(const Job& job) {
  const GroupLimits limits = read_group_limits("/sys/fs/cgroup", file_text("/proc/thread-self/cgroup"));
  return {descriptors(job), cores(job), group_memory(job, limits), processes(job, limits)};
}

}  // namespace rondo::doctor
