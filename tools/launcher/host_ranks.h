#pragma once

#include "tools/launcher/assignment.h"

namespace rondo::launcher {

// Starts the ranks of one host and returns when they have ended (Job::run()). Orders come from `control` (job.cc), -1:
// from nowhere; when that ends the ranks are killed. Called in a process of its own: it takes another name, and adopts
// orphans.
int run_host_ranks(const Assignment& assignment, int control = -1);

// The same in a process that rondo-run started on another host: reads the assignment from standard input, which is the
// control pipe afterwards. Explains what is wrong on standard error, and returns 1.
int run_remote_ranks();

}  // namespace rondo::launcher
