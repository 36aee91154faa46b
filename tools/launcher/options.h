#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tools/launcher/hosts.h"

namespace rondo::launcher {

// What the command line of rondo-run asked for.
struct Options {
  int ranks = 0;
  std::vector<Host> hosts;   // those that ranks start on, in the order of their ranks; never empty
  std::string launch_agent;  // words; a host and a command for its shell are appended
  std::string python;        // runs a program that is a script of it; "": the script runs itself
  std::string remote_path;   // of rondo-run on the other hosts; "": as here
  uint16_t master_port = 0;  // 0: one is chosen
  bool host_ranks = false;   // started by another host's rondo-run; nothing else counts
  bool prefix = true;
  bool mpi = false;                       // the program is one of MPI
  double timeout_s = 0;                   // 0: none
  int least = 0, most = 0, restarts = 0;  // JobSettings
  std::vector<std::string> environment;   // "NAME=value", for every rank, over everything else
  std::vector<std::string> command;       // program and its arguments; never empty
};

// The exit code if there is nothing to run: --help, or a mistake that was explained on standard error.
using Parsed = std::variant<Options, int>;
Parsed parse_options(int argc, char** argv);

}  // namespace rondo::launcher
