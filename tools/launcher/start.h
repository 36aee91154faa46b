#pragma once

#include "tools/launcher/options.h"

namespace rondo::launcher {

// Runs the job that the command line asks for, on one host or several, and returns its exit code (Job::run()). The
// ranks of a host are started by a process of their own, which outlives this one for as long as it takes to end them.
// Throws std::runtime_error or std::system_error before anything is started.
int run_job(const Options& options);

}  // namespace rondo::launcher
