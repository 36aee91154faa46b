// rondo-run: starts the ranks of a program, on this machine or on several hosts, and ends with them.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "tools/launcher/host_ranks.h"
#include "tools/launcher/options.h"
#include "tools/launcher/start.h"

int main(int argc, char** argv) {
  using namespace rondo::launcher;
  const Parsed parsed = parse_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& options = std::get<Options>(parsed);
  try {
    return options.host_ranks ? run_remote_ranks() : run_job(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rondo-run: {}\n", error.what());
    return 1;
  }
}
