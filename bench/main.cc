#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "bench/bars_run.h"
#include "bench/cases.h"
#include "bench/children.h"
#include "bench/compare.h"
#include "bench/limit_source.h"
#include "bench/network_namespace.h"
#include "bench/output.h"
#include "bench/progress.h"
#include "bench/ranks.h"
#include "bench/sizes.h"
#include "bench/table.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr int kBadOptions = 2;

Limits limits_for(const Options& options, const Machine& machine, const LimitCache& cache) {
  Progress progress;
  return obtain_limits(cache, options.limit, options.ranks, limited_sizes(options, options.ranks), machine,
                       [&](const std::string& text) { progress.show(text); });
}

int run_limit_only(const Options& options, const Machine& machine) {
  const PrivateDirectory directory;
  const LimitCache cache = open_cache(options, machine, directory.path() + "/limits.json");
  const Limits limits = limits_for(options, machine, cache);
  for (uint64_t bytes : limited_sizes(options, options.ranks)) {
    const StreamLimit limit = limits.stream(options.ranks, bytes).value();
    fmt::print("# raw TCP, {} ranks, {}: {:.3f} GB/s each way by {}\n", limit.world, size_text(bytes), limit.gbps,
               setting_text(limit.setting));
  }
  if (const auto exchange = limits.exchange(options.ranks)) {
    fmt::print("# bare exchange of 8 B, {} ranks: {:.2f} us ({})\n", exchange->world, exchange->us,
               exchange->congestion);
  }
  if (!options.json.empty()) write_json(options.json, machine, limits, {});
  return 0;
}

int run_bars_only(const Options& options, const Machine& machine) {
  for (const std::string& warning : warnings(machine, options, 2)) fmt::print("# warning: {}\n", warning);
  const PrivateDirectory directory;
  return run_bars(options, machine, open_cache(options, machine, directory.path() + "/limits.json"));
}

int run_compare_only(const Options& options, const Machine& machine) {
  fmt::print("# {}, {} cores, Linux {}\n", machine.cpu, machine.cores, machine.kernel);
  for (const std::string& warning : warnings(machine, options, options.ranks)) fmt::print("# warning: {}\n", warning);
  return run_compare(options, machine);
}

int run(const Options& options, const std::vector<std::string>& args) {
  if (!options.name_space.empty()) run_in_network_namespace(options.name_space, options.program);
  Machine machine = this_machine();
  if (options.load_average >= 0) machine.load_average = options.load_average;
  if (options.bars) return run_bars_only(options, machine);
  if (!options.compare.empty()) return run_compare_only(options, machine);
  if (options.limit_only) return run_limit_only(options, machine);
  if (options.inproc) return run_inproc(options, machine);
  if (options.ranks > 0 && options.spawned_rank < 0) return start_ranks(options, machine, args);
  return run_rank(options, machine);
}

int main(const std::vector<std::string>& args) {
  const std::variant<Options, Stop> parsed = parse_options(args);
  if (const Stop* stop = std::get_if<Stop>(&parsed)) {
    std::fputs(stop->text.c_str(), stop->code == 0 ? stdout : stderr);
    return stop->code;
  }
  try {
    return run(std::get<Options>(parsed), args);
  } catch (const Exception& error) {
    fmt::print(stderr, "rondo-bench: {}: {}\n", error_code_name(error.code()), error.what());
    return error.code() == ErrorCode::kInvalid ? kBadOptions : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rondo-bench: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace rondo::bench

int main(int argc, char** argv) { return rondo::bench::main({argv + 1, argv + argc}); }
