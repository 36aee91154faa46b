#include "bench/reporter.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/limit_source.h"
#include "bench/output.h"
#include "bench/sizes.h"
#include "bench/table.h"

namespace rondo::bench {
namespace {

// The first by the settings that are known to be the best, the others by all of them.
constexpr int kAttempts = 3;

}  // namespace

Reporter::Reporter(const Options& options, Machine machine, int world)
    : options_(options), machine_(std::move(machine)), world_(world) {}

void Reporter::begin(const std::string& transport) {
  transport_ = transport;
  fmt::print("# rondo-bench: {} rank{}, transport {}; {}, {} cores, Linux {}\n", world_, world_ == 1 ? "" : "s",
             transport, machine_.cpu, machine_.cores, machine_.kernel);
  for (const std::string& warning : warnings(machine_, options_, world_)) fmt::print("# warning: {}\n", warning);
  std::fflush(stdout);
}

SessionEvents Reporter::events() {
  return {[this](const std::string& text) { progress_.show(text); },
          [this](const Case& c, const Line& line) { print_line(c, line); }};
}

void Reporter::print_line(const Case& c, const Line& line) {
  progress_.clear();
  if (printed_ != c.benchmark) fmt::print("#\n# {}\n{}\n", benchmark_name(c.benchmark), table_header());
  printed_ = c.benchmark;
  fmt::print("{}\n", table_line(line));
  if (options_.verbose) fmt::print("{}\n", verbose_lines(line));
  std::fflush(stdout);
}

void Reporter::settle_shares(std::vector<Row>& rows, Limits& limits, const Remeasure& remeasure) const {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::vector<uint64_t> sizes = impossible_sizes(rows, limits);
    if (sizes.empty()) return;
    fmt::print("# a share of the limit is above {:.2f}: measuring limits again ({} of {})\n", kHighestShare,
               attempt + 1, kAttempts);
    std::fflush(stdout);
    const auto use = attempt == 0 ? Options::LimitUse::kCached : Options::LimitUse::kRemeasure;
    const std::optional<Limits> again = remeasure(sizes, use);
    if (!again) return;
    raise_limits(limits, *again);
    for (Row& row : rows) {
      const std::optional<StreamLimit> limit = row.limit_gbps ? limit_of_row(limits, row) : std::nullopt;
      if (limit) fill_share(row, limit->gbps);
    }
  }
}

// Where others keep every core busy, raw TCP and operations get different shares of them from one moment to the next.
bool Reporter::drop_senseless_shares(std::vector<Row>& rows) const {
  if (machine_.load_average < machine_.cores) return false;
  bool dropped = false;
  for (Row& row : rows) {
    if (row.share_of_limit.value_or(0) <= kHighestShare) continue;
    row.share_of_limit.reset();
    dropped = true;
  }
  return dropped;
}

int Reporter::finish(std::vector<Row> rows, Limits limits, const Remeasure& remeasure) {
  progress_.clear();
  int code = 0;
  settle_shares(rows, limits, remeasure);
  if (drop_senseless_shares(rows)) {
    fmt::print("# shares above {:.2f} are left out: the host was busy (load average {:.2f} on {} cores)\n",
               kHighestShare, machine_.load_average, machine_.cores);
  }
  for (const Row& row : rows) {
    if (row.share_of_limit.value_or(0) <= kHighestShare) continue;
    fmt::print(stderr, "rondo-bench: {} of {}: {:.3f} GB/s is {:.2f} of the limit of {:.3f} GB/s: the limit is wrong\n",
               row.collective, size_text(row.bytes), row.busbw_gbps, *row.share_of_limit, *row.limit_gbps);
    code = 1;
  }
  fmt::print("{}\n", table_footer(rows));
  if (const auto exchange = limits.exchange(world_)) {
    fmt::print("# Bare exchange of 8 B   : {:.2f} us\n", exchange->us);
  }
  if (const auto warning = steal_warning(machine_.steal_share())) fmt::print("# warning: {}\n", *warning);
  std::fflush(stdout);
  if (!options_.json.empty()) write_json(options_.json, machine_, limits, rows);
  if (!options_.csv.empty()) write_csv(options_.csv, rows);
  const bool wrong = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.wrong.value_or(0) > 0; });
  return wrong ? 1 : code;
}

}  // namespace rondo::bench
