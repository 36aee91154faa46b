// rondo-run: starts the ranks of a program on this machine, and ends with them.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "tools/launcher/job.h"
#include "tools/launcher/job_folder.h"
#include "tools/launcher/options.h"

int main(int argc, char** argv) {
  using namespace rondo::launcher;
  const Parsed parsed = parse_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  try {
    const JobFolder folder;
    Job job(std::get<Options>(parsed), Meeting{folder.path(), "rondo-run-" + random_id(), free_port()});
    return job.run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "rondo-run: {}\n", error.what());
    return 1;
  }
}
