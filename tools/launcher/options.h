#pragma once

#include <string>
#include <variant>
#include <vector>

namespace rondo::launcher {

// What the command line of rondo-run asked for.
struct Options {
  int ranks = 0;
  bool prefix = true;
  double timeout_s = 0;                  // 0: none
  std::vector<std::string> environment;  // "NAME=value", for every rank, over everything else
  std::vector<std::string> command;      // program and its arguments; never empty
};

// The exit code if there is nothing to run: --help, or a mistake that was explained on standard error.
using Parsed = std::variant<Options, int>;
Parsed parse_options(int argc, char** argv);

}  // namespace rondo::launcher
