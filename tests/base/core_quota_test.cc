// What control groups allow, by files as the kernel has them, and what that leaves for the ranks of a host.
#include "ring/base/control_groups.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace rondo::testing {

TEST_CASE("the tightest limit on the way up counts, in whole cores") {
  const TempFolder groups;
  groups.write("cpu.max", "max 100000\n");
  groups.write("jobs/cpu.max", "150000 100000\n");
  groups.write("jobs/one/cpu.max", "400000 100000\n");
  groups.write("free/cpu.max", "max 100000\n");
  groups.write("slow/cpu.max", "20000 100000\n");
  CHECK(core_quota("0::/jobs/one\n", groups.path()).cores == 1);
  CHECK(core_quota("0::/slow\n", groups.path()).cores == 1);
  CHECK(core_quota("0::/free\n", groups.path()) == CoreQuota{});
  CHECK(core_quota("", groups.path()) == CoreQuota{});
  CHECK(core_quota("nonsense\n0:x\n", groups.path()) == CoreQuota{});
  // The limit is one group's: processes of different groups below it share it.
  groups.write("jobs/two/cpu.max", "max 100000\n");
  CHECK(core_quota("0::/jobs/one\n", groups.path()) == core_quota("0::/jobs/two\n", groups.path()));
  CHECK(core_quota("0::/jobs/one\n", groups.path()).group != core_quota("0::/slow\n", groups.path()).group);
}

TEST_CASE("control groups of the first version, and paths that a container does not see") {
  const TempFolder groups;
  groups.write("cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
  groups.write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  groups.write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  groups.write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK(core_quota("4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n", groups.path()).cores == 2);
  CHECK(core_quota("3:cpu,cpuacct:/\n", groups.path()) == CoreQuota{});
  CHECK(core_quota("3:cpuset:/job\n", groups.path()) == CoreQuota{});
  groups.write("cpu.max", "300000 100000\n");
  CHECK(core_quota("0::/docker/0123\n", groups.path()).cores == 3);
}

TEST_CASE("ranks under a quota below their number have fewer cores than ranks") {
  const CoreQuota none, one{7, 1}, other{8, 1}, two{7, 2};
  CHECK(cores_within(4, {none, none}) == 4);
  CHECK(cores_within(0, {none, none}) == 0);
  CHECK(cores_within(4, {one, one}) == 1);
  CHECK(cores_within(4, {two, two}) == 4);
  CHECK(cores_within(4, {one, other}) == 4);  // a group each
  // Three share two cores; the fourth, which is free, waits for them.
  CHECK(cores_within(4, {two, two, two, none}) == 2);
  CHECK(cores_within(4, {one, one, one, one, one, one}) == 1);
}

}  // namespace rondo::testing
