#include "bench/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/sizes.h"

namespace rondo::bench {
namespace {

// Four significant digits, never in exponents below a hundred million: columns stay readable and comparable.
std::string figure(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  if (value >= 100) return fmt::format("{:.1f}", value);
  return value >= 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.3f}", value);
}

std::string wrong_text(const Row& row) { return row.wrong ? fmt::format("{}", *row.wrong) : "N/A"; }

std::string half(const std::optional<Row>& row) {
  if (!row) return fmt::format(" {:>9} {:>8} {:>8} {:>7}", "-", "-", "-", "-");
  return fmt::format(" {:>9} {:>8} {:>8} {:>7}", figure(row->time_us), figure(row->algbw_gbps), figure(row->busbw_gbps),
                     wrong_text(*row));
}

std::string share(const std::optional<Row>& row) {
  return row && row->share_of_limit ? fmt::format("{:.2f}", *row->share_of_limit) : "-";
}

std::string detail(const char* name, const std::optional<Row>& row) {
  if (!row) return "";
  std::string text = fmt::format("#   {}: {}, p50 {} us, p99 {} us, min {} us, max {} us", name, row->algorithm,
                                 figure(row->p50_us), figure(row->p99_us), figure(row->min_us), figure(row->max_us));
  if (row->cpu_s_per_gb) text += fmt::format(", CPU {} s/GB", figure(*row->cpu_s_per_gb));
  if (row->limit_gbps) text += fmt::format(", limit {} GB/s", figure(*row->limit_gbps));
  return text;
}

}  // namespace

std::string table_header() {
  return fmt::format("#{:>50} {:^36}{:^36}   {:^14}\n", "", "out-of-place", "in-place", "share of limit") +
         fmt::format("#{:>11} {:>12} {:>9} {:>9} {:>5} ", "size", "count", "type", "redop", "root") +
         fmt::format(" {:>9} {:>8} {:>8} {:>7} {:>9} {:>8} {:>8} {:>7}   {:>6} {:>6}\n", "time", "algbw", "busbw",
                     "#wrong", "time", "algbw", "busbw", "#wrong", "out", "in") +
         fmt::format("#{:>11} {:>12} {:>9} {:>9} {:>5} ", "(B)", "(elements)", "", "", "") +
         fmt::format(" {:>9} {:>8} {:>8} {:>7} {:>9} {:>8} {:>8}", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
                     "(GB/s)");
}

std::string table_line(const Line& line) {
  return fmt::format(" {:>11} {:>12} {:>9} {:>9} {:>5} {}{}   {:>6} {:>6}", line.bytes, line.count, line.dtype, line.op,
                     line.root, half(line.out_of_place), half(line.in_place), share(line.out_of_place),
                     share(line.in_place));
}

std::string verbose_lines(const Line& line) {
  const std::string first = detail("out-of-place", line.out_of_place), second = detail("in-place", line.in_place);
  return first + (first.empty() || second.empty() ? "" : "\n") + second;
}

std::string table_footer(const std::vector<Row>& rows) {
  uint64_t wrong = 0;
  bool checked = !rows.empty();
  double bandwidth = 0;
  for (const Row& row : rows) {
    wrong += row.wrong.value_or(0);
    checked = checked && row.wrong.has_value();
    bandwidth += row.busbw_gbps / static_cast<double>(rows.size());
  }
  const std::string verdict = checked ? fmt::format("{} {}", wrong, wrong == 0 ? "OK" : "FAILED") : "not checked";
  return fmt::format("# Out of bounds values : {}\n# Avg bus bandwidth    : {} GB/s", verdict, figure(bandwidth));
}

std::vector<std::string> warnings(const Machine& machine, const Options& options, int world) {
  std::vector<std::string> out;
  if (world == 1) out.push_back("one rank moves nothing: times are call overhead, bus bandwidth is 0");
  if (world > machine.cores) {
    out.push_back(fmt::format("{} ranks share {} core{}: times measure the scheduler as much as the library", world,
                              machine.cores, machine.cores == 1 ? "" : "s"));
  }
  // Half a core busy with something else already doubles the time of a rank that spins, now and then.
  if (machine.load_average > 0.5) {
    out.push_back(fmt::format("the host is busy: load average {:.2f} before this run started", machine.load_average));
  }
  const uint64_t largest = options.sizes.empty() ? 0 : *std::max_element(options.sizes.begin(), options.sizes.end());
  const uint64_t needed = largest * 2 * static_cast<uint64_t>(world);
  if (machine.memory_bytes > 0 && needed > machine.memory_bytes / 10 * 8) {
    out.push_back(fmt::format("the largest size needs {} for {} ranks' buffers; this host has {}", size_text(needed),
                              world, size_text(machine.memory_bytes)));
  }
  return out;
}

std::optional<std::string> steal_warning(double steal_share) {
  constexpr double kUsual = 0.02;  // runs of 4 to 33 minutes had 0.003 to 0.020
  if (steal_share <= kUsual) return std::nullopt;
  return fmt::format("the hypervisor ran other machines for {:.0f} % of the processors' time: times are in part theirs",
                     100 * steal_share);
}

}  // namespace rondo::bench
