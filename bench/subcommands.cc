#include "bench/subcommands.h"

#include <fmt/format.h>

#include <variant>

#include "bench/limit/limit.h"
#include "bench/options.h"
#include "bench/output/files.h"
#include "bench/output/machine.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

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

}  // namespace

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

}  // namespace rondo::bench
