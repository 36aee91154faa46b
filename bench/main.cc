#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/limit/limit.h"
#include "bench/options.h"
#include "bench/output/files.h"
#include "bench/output/machine.h"
#include "bench/ranks.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

// Exit codes: 1 is a failure or wrong results.
constexpr int kBadOptions = 2;
constexpr int kUsualRanks = 2;

struct Wanted {
  int ranks = 0;
  uint64_t bytes = 0;
};

[[noreturn]] void reject(const std::string& why) { throw Exception(ErrorCode::kInvalid, why); }

// The options of rondo-bench, of which the subcommands take two.
Wanted parse(const std::vector<std::string>& args) {
  const std::variant<Options, Stop> parsed = parse_options(args);
  if (const Stop* stop = std::get_if<Stop>(&parsed)) reject(stop->text);
  const auto& options = std::get<Options>(parsed);
  if (options.ranks < 2 || options.sizes.size() != 1) reject("give --ranks, 2 or more, and one size by --sizes");
  return {options.ranks, options.sizes.front()};
}

int print_line(const std::string& json) {
  fmt::print("{}\n", json);
  return 0;
}

// What must fork and spin, each a process of its own that prints a line of JSON: rank 0 and tests/lab ask them.
//   machine                                        processor, cores, kernel, congestion controls, load
//   limit --ranks N --sizes S                      {"gbps": ...}: the best that raw TCP does
//   exchange --ranks N --sizes 8                   {"us": ...}: a bare exchange of 8 B over TCP
// Returns the exit code, or nullopt if args (without the program's name) name none of them. Throws Exception.
std::optional<int> run_subcommand(const std::vector<std::string>& args) {
  if (args.empty()) return std::nullopt;
  const std::string& name = args.front();
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (name == "machine") return print_line(json_of(this_machine()));
  if (name == "limit") {
    const Wanted wanted = parse(rest);
    return print_line(json_of(measure_stream_limit(wanted.ranks, wanted.bytes)));
  }
  if (name == "exchange") return print_line(json_of_time(measure_exchange_us(parse(rest).ranks)));
  return std::nullopt;
}

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
