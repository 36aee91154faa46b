#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "bench/options.h"
#include "bench/output/machine.h"
#include "bench/ranks.h"
#include "bench/subcommands.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

// Exit codes: 1 is a failure or wrong results.
constexpr int kBadOptions = 2;
constexpr int kUsualRanks = 2;

int run(Options options, const std::vector<std::string>& args) {
  // Ranks that were started here get the load before they ran: their own start would count.
  Machine machine = this_machine();
  if (options.load_average >= 0) machine.load_average = options.load_average;
  if (options.inproc) return run_inproc(options, machine);
  if (!options.started_here()) {
    if (options.ranks == 0 && !started_by_launcher(options)) options.ranks = kUsualRanks;
    if (options.ranks > 0) return start_ranks(options, machine, args);
  }
  return run_rank(options, machine);
}

int main(const std::vector<std::string>& args) {
  try {
    if (const std::optional<int> code = run_subcommand(args)) return *code;
    const std::variant<Options, Stop> parsed = parse_options(args);
    if (const Stop* stop = std::get_if<Stop>(&parsed)) {
      std::fputs(stop->text.c_str(), stop->code == 0 ? stdout : stderr);
      return stop->code;
    }
    return run(std::get<Options>(parsed), args);
  } catch (const Exception& error) {
    fmt::print(stderr, "rondo-bench: {}: {}\n", error_code_name(error.code()), error.what());
    return error.code() == ErrorCode::kInvalid ? kBadOptions : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rondo-bench: {}\n", error.what());
    return 1;
  }
}

// The code, or a failure where what was printed is lost, as on a full disk. Where standard output is closed nobody
// wants it.
int check_output(int code) {
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!lost || ::fcntl(STDOUT_FILENO, F_GETFD) < 0) return code;
  fmt::print(stderr, "rondo-bench: standard output cannot be written\n");
  return code == 0 ? 1 : code;
}

}  // namespace
}  // namespace rondo::bench

int main(int argc, char** argv) { return rondo::bench::check_output(rondo::bench::main({argv + 1, argv + argc})); }
