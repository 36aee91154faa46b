#include "bench/bars_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "bench/bars.h"
#include "bench/children.h"
#include "bench/output.h"
#include "bench/progress.h"
#include "bench/raw_ring.h"
#include "ring/base/error.h"

namespace rondo::bench {
namespace {

constexpr int kRuns = 5;
constexpr int kWorld = 2;
constexpr uint64_t kLarge = 64u << 20;
constexpr uint64_t kSmall = 8;
constexpr double kStreamSeconds = 0.5;
constexpr double kExchangeSeconds = 0.3;
constexpr double kProgramSeconds = 120;  // each program is done in a few seconds

// What one run saw.
struct Run {
  double stream_gbps = 0;
  double exchange_us = 0;
  std::optional<double> gloo_us;  // the best of its rings at 64 MiB
  double rondo_large_us = 0;
  double rondo_large_busbw = 0;
  double rondo_small_us = 0;
};

// The driver given, or one beside this program, or where bench/peers/build_gloo.sh puts it; "" if there is none.
std::string find_gloo(const Options& options) {
  if (!options.gloo_bench.empty()) return options.gloo_bench;
  const std::string beside = (std::filesystem::path(own_program()).parent_path() / "gloo_bench").string();
  for (const std::string& path : {beside, std::string("build/gloo_bench")}) {
    if (access(path.c_str(), X_OK) == 0) return std::filesystem::absolute(path).string();
  }
  return "";
}

// Runs a program that writes rows to a file and ends.
std::vector<Row> rows_of(Children::Program program) {
  const PrivateDirectory directory;
  const std::string file = directory.path() + "/rows.json";
  program.args.insert(program.args.end(), {"--json", file});
  program.output_file = "/dev/null";
  Children children;
  children.start(program);
  const int code = children.wait(kProgramSeconds);
  if (code != 0) throw Exception(ErrorCode::kSystem, fmt::format("{} ended with code {}", program.path, code));
  return read_rows(file);
}

double best_gloo_us(const std::string& gloo) {
  const std::vector<Row> rows = rows_of({gloo, {"--ranks", "2", "--sizes", "64M", "--rings"}, {}, ""});
  double best = 0;
  for (const Row& row : rows) {
    if (row.wrong.value_or(0) > 0) continue;
    best = best == 0 ? row.time_us : std::min(best, row.time_us);
  }
  if (best == 0) throw Exception(ErrorCode::kSystem, fmt::format("{} gave no right result", gloo));
  return best;
}

std::vector<std::string> rondo_args(const Options& options) {
  std::vector<std::string> args{
      "--ranks", "2", "--sizes", "8,64M", "--no-limit", "--algorithm", algorithm_name(options.algorithm)};
  if (options.lanes > 0) args.insert(args.end(), {"--lanes", std::to_string(options.lanes)});
  if (options.connections > 0) args.insert(args.end(), {"--connections", std::to_string(options.connections)});
  // The bars are about TCP, whatever else a machine has.
  args.insert(args.end(), {"--transport", options.transport.empty() ? "tcp" : options.transport});
  return args;
}

void add_rondo(const Options& options, Run& run) {
  for (const Row& row : rows_of({own_program(), rondo_args(options), {}, ""})) {
    if (!row.in_place) continue;  // as Gloo's rings
    if (row.bytes == kLarge) run.rondo_large_us = row.time_us, run.rondo_large_busbw = row.busbw_gbps;
    if (row.bytes == kSmall) run.rondo_small_us = row.time_us;
  }
  if (run.rondo_large_us == 0 || run.rondo_small_us == 0) {
    throw Exception(ErrorCode::kSystem, "rondo-bench gave no row for 8 B or 64 MiB");
  }
}

Run run_once(const Options& options, const Limits& limits, const std::string& gloo) {
  Run run;
  const RawSetting setting = limits.stream(kWorld, kLarge).value().setting;
  run.stream_gbps = RawRing(kWorld, kLarge).stream_gbps(setting, kLarge, kStreamSeconds);
  const std::optional<ExchangeLimit> exchange = limits.exchange(kWorld);
  const std::string congestion = exchange ? exchange->congestion : default_congestion_control();
  run.exchange_us = RawRing(kWorld, 4096).exchange_us(congestion, kExchangeSeconds);
  if (!gloo.empty()) run.gloo_us = best_gloo_us(gloo);
  add_rondo(options, run);
  return run;
}

std::vector<Bar> bars_of(const std::vector<Run>& runs, const std::string& gloo) {
  Bar share{"all_reduce 64 MiB, world 2, share of raw TCP", Bar::Kind::kAtLeast, 0.85, {}, ""};
  Bar peer{"all_reduce 64 MiB, world 2, time / Gloo's best ring", Bar::Kind::kAtMost, 1.0, {}, ""};
  Bar small{"all_reduce 8 B, world 2, time / bare exchange", Bar::Kind::kAtMost, 1.5, {}, ""};
  if (gloo.empty()) peer.missing = "no gloo_bench: install libgloo-dev and run bench/peers/build_gloo.sh";
  for (const Run& run : runs) {
    share.ratios.push_back(run.rondo_large_busbw / run.stream_gbps);
    if (run.gloo_us) peer.ratios.push_back(run.rondo_large_us / *run.gloo_us);
    small.ratios.push_back(run.rondo_small_us / run.exchange_us);
  }
  return {share, peer, small};
}

}  // namespace

int run_bars(const Options& options, const Limits& limits) {
  const std::string gloo = find_gloo(options);
  fmt::print("# raw TCP by {}\n", setting_text(limits.stream(kWorld, kLarge).value().setting));
  std::vector<Run> runs;
  for (int i = 1; i <= kRuns; ++i) {
    {
      Progress progress;
      progress.show(fmt::format("run {} of {}", i, kRuns));
      runs.push_back(run_once(options, limits, gloo));
    }
    const Run& run = runs.back();
    const std::string peer = run.gloo_us ? fmt::format("{:.0f} us", *run.gloo_us) : "-";
    fmt::print(
        "# run {}: raw {:.3f} GB/s, exchange {:.2f} us, Gloo 64 MiB {}, Rondo 64 MiB {:.0f} us ({:.3f} GB/s), "
        "8 B {:.2f} us\n",
        i, run.stream_gbps, run.exchange_us, peer, run.rondo_large_us, run.rondo_large_busbw, run.rondo_small_us);
    std::fflush(stdout);
  }
  const std::vector<Bar> bars = bars_of(runs, gloo);
  for (const Bar& bar : bars) fmt::print("{}\n", bar_text(bar));
  return bars_exit_code(bars);
}

}  // namespace rondo::bench
