// rondo-run: starts the ranks of a program, on this machine or on several hosts, and ends with them.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "tools/launcher/host_ranks.h"
#include "tools/launcher/options.h"
#include "tools/launcher/start.h"

// What is closed of standard input, output and error would be the numbers of the first files that are opened.
static void open_standard_descriptors() {
  int number = -1;
  do {
    number = ::open("/dev/null", O_RDWR);
  } while (number >= 0 && number <= STDERR_FILENO);
  if (number >= 0) ::close(number);
}

int main(int argc, char** argv) {
  using namespace rondo::launcher;
  open_standard_descriptors();
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
