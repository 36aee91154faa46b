#pragma once

#include <sys/types.h>

#include <set>

namespace rondo::launcher {

// From now on, processes whose parents among our descendants have ended become our children, wherever they have hidden
// (another process group or session). PR_SET_CHILD_SUBREAPER; it holds for the rest of this process.
void adopt_orphans();

// Reaps adopted processes that have ended. `ranks`: our children proper, which are left alone. Does not wait.
void reap_orphans(const std::set<pid_t>& ranks);

// Kills adopted processes, and those that become orphans by that, until none is left. Waits for each that it has
// killed.
void kill_orphans(const std::set<pid_t>& ranks);

}  // namespace rondo::launcher
