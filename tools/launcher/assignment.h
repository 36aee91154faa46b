#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/launcher/environment.h"

namespace rondo::launcher {

// What the process that starts the ranks of one host is told. On another host it is told by its standard input, so that
// no shell has to quote it and no list of processes shows it. A new field goes into fields()
// (assignment.cc).
struct Assignment {
  int first_rank = 0, ranks = 0, world = 0;
  int node = 0, nodes = 1;
  std::string job_id;        // unique
  std::string master_host;   // of rank 0, for several hosts
  uint16_t master_port = 0;  // free there, by guess; for several hosts
  std::string folder;        // where the ranks run; "": where this process does
  bool prefix = true;        // of their lines
  double timeout_s = 0;      // 0: none
  // JobSettings
  int least = 0, most = 0, restarts = 0;
  bool must_join = false;   // a job of one host that no rank has joined has failed
  std::string secret;       // "": the ranks have one of the user's, or need none
  std::string loss_marker;  // JobSettings
  Environment environment;  // over the host's own
  std::vector<std::string> command;
};

// The bytes, which begin with the version of rondo-run and their number. Throws std::runtime_error where they are more
// than 4 MiB.
std::string encode(const Assignment& assignment);

// Reads what encode() made, and no byte more, from `fd`. Throws std::runtime_error if the input ends early or is of
// another version.
Assignment read_assignment(int fd);

}  // namespace rondo::launcher
