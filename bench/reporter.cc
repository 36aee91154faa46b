#include "bench/reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/loop/sizes.h"
#include "bench/output/files.h"
#include "bench/output/table.h"

namespace rondo::bench {
namespace {

// "all_reduce of float32, sum".
std::string section_of(const Case& c) {
  if (c.benchmark == Benchmark::kBarrier) return benchmark_name(c.benchmark);
  std::string text = fmt::format("{} of {}", benchmark_name(c.benchmark), dtype_name(c.dtype));
  if (c.benchmark == Benchmark::kPingPong) text += ", one way";
  if (c.benchmark == Benchmark::kBurst) text += fmt::format(", {} in flight", kBurstMessages);
  if (benchmark_reduces(c.benchmark)) text += fmt::format(", {}", op_name(c.op));
  return c.root < 0 ? text : text + fmt::format(", root {}", c.root);
}

// Faster than raw TCP was measured: a disturbance of that measurement.
bool impossible(const Row& row) { return row.share_of_limit.value_or(0) > kHighestShare; }

}  // namespace

Reporter::Reporter(const Options& options, Machine machine, int world)
    : options_(options), machine_(std::move(machine)), world_(world) {}

void Reporter::begin(const std::string& transport) {
  fmt::print("# rondo-bench: {} rank{}, {}, {} buffers\n# {}, {} cores, Linux {}\n", world_, world_ == 1 ? "" : "s",
             transport, buffer_kind_name(options_.buffers), machine_.cpu, machine_.cores, machine_.kernel);
  fmt::print("# time: median of batches, the slowest rank's");
  if (options_.aggregate > 1) fmt::print("; of one of {} operations that a call carries", options_.aggregate);
  fmt::print("\n");
  for (const std::string& warning : warnings(machine_, options_, world_)) fmt::print("# warning: {}\n", warning);
  std::fflush(stdout);
}

SessionEvents Reporter::events(bool shares) {
  return {[this](const std::string& text) { progress_.show(text); },
          [this, shares](const Case& c, const Line& line) { print_line(c, line, shares); }};
}

void Reporter::print_line(const Case& c, const Line& line, bool shares) {
  progress_.clear();
  const std::string section = section_of(c);
  if (section != section_) fmt::print("#\n# {}\n{}\n", section, table_header(shares));
  section_ = section;
  fmt::print("{}\n", table_line(line, shares));
  if (options_.verbose) fmt::print("{}\n", verbose_lines(line));
  std::fflush(stdout);
}

// Each size is measured once more, however many of its rows are impossible.
void Reporter::settle_shares(std::vector<Row>& rows, Limits& limits, const Remeasure& remeasure) const {
  std::set<uint64_t> sizes;
  for (const Row& row : rows) {
    if (impossible(row)) sizes.insert(limits.stream(world_, row.bytes).value().bytes);
  }
  for (uint64_t bytes : sizes) {
    if (const std::optional<StreamLimit> again = remeasure(bytes)) limits.raise(*again);
  }
  for (Row& row : rows) {
    if (!impossible(row)) continue;
    fill_share(row, limits.stream(world_, row.bytes).value().gbps);
    const char* place = row.in_place ? "in place" : "out of place";
    if (!impossible(row)) {
      fmt::print("# {} {}, {}: {:.2f} of the limit, which was measured again: {:.3f} GB/s\n", row.collective,
                 size_text(row.bytes), place, *row.share_of_limit, *row.limit_gbps);
      continue;
    }
    fmt::print("# {} {}, {}: faster than raw TCP was, measured twice: no share\n", row.collective, size_text(row.bytes),
               place);
    fill_share(row, std::nullopt);
  }
}

// 1: a value was wrong.
int Reporter::finish(std::vector<Row> rows, Limits limits, const Remeasure& remeasure) {
  progress_.clear();
  settle_shares(rows, limits, remeasure);
  if (const auto warning = steal_warning(machine_.steal_share())) fmt::print("# warning: {}\n", *warning);
  fmt::print("#\n{}\n", table_footer(rows, limits));
  std::fflush(stdout);
  if (!options_.json.empty()) write_json(options_.json, machine_, limits, rows);
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.wrong.value_or(0) > 0; }) ? 1 : 0;
}

}  // namespace rondo::bench
