#pragma once

#include "transport/rendezvous/environment.h"
#include "transport/rendezvous/launch.h"

namespace rondo {

// find_launch() as a pure function of the environment. Where the job's id is that of a PMI server, job_id is left
// empty: only the server knows it.
Launch find_launch_in(const LaunchRequest& request, const Environment& environment);

}  // namespace rondo
