#pragma once

#include <string>
#include <vector>

#include "bench/loop/group.h"
#include "bench/options.h"

namespace rondo::bench {

// What the drivers of other libraries have in common: options, the session, the rows.

// An environment variable. Throws Exception(kInvalid) naming it if it is not set.
std::string setting(const char* variable);

// args: without the program's name. Throws Exception(kInvalid) with what is wrong.
Options options_of(const std::vector<std::string>& args);

// Throws Exception(kInvalid) if -z 0 asks for a benchmark other than these, whose calls the driver starts and waits
// for.
void check_async(const Options& options, const std::vector<Benchmark>& known);

// Measures on all ranks of the group; rank 0 prints and writes the rows, called as PEER_LIBRARY, PEER_TRANSPORT say.
// Returns the exit code.
int run_peer(Group& group, const Options& options);

}  // namespace rondo::bench
