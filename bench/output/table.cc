#include "bench/output/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/loop/sizes.h"

namespace rondo::bench {
namespace {

// Four significant digits, never in exponents below a hundred million: columns stay readable and comparable.
std::string figure(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  if (value >= 100) return fmt::format("{:.1f}", value);
  return value >= 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.3f}", value);
}

std::string wrong_text(const Row& row) { return row.wrong ? fmt::format("{}", *row.wrong) : "N/A"; }

// One placement's columns, in the widths of table_header(); "-" where it was not measured.
std::string half(const std::optional<Row>& row, bool shares) {
  if (!row) return fmt::format(" {:>8} {:>6} {:>6} {:>5}", "-", "-", "-", "-") + (shares ? "     -" : "");
  const bool possible = row->share_of_limit.value_or(kHighestShare + 1) <= kHighestShare;
  const std::string share = possible ? fmt::format("{:.2f}", *row->share_of_limit) : "-";
  return fmt::format(" {:>8} {:>6} {:>6} {:>5}", figure(row->time_us), figure(row->algbw_gbps), figure(row->busbw_gbps),
                     wrong_text(*row)) +
         (shares ? fmt::format(" {:>5}", share) : "");
}

std::string detail(const char* name, const std::optional<Row>& row) {
  if (!row) return "";
  std::string text = fmt::format("#   {}: p50 {} us, p99 {} us, min {} us, max {} us", name, figure(row->p50_us),
                                 figure(row->p99_us), figure(row->min_us), figure(row->max_us));
  if (row->cpu_s_per_gb) text += fmt::format(", CPU {} s/GB", figure(*row->cpu_s_per_gb));
  if (row->limit_gbps) text += fmt::format(", limit {} GB/s", figure(*row->limit_gbps));
  return text;
}

// "all_reduce, 64 MiB, in place".
std::string what(const Row& row) {
  return fmt::format("{}, {}, {}", row.collective, size_text(row.bytes), row.in_place ? "in place" : "out of place");
}

// "all_reduce, 8 B, in place takes 8.71 us; a bare exchange of 8 B 5.80 us".
std::string latency_text(const std::vector<Row>& rows, const Limits& limits) {
  const Row& least = *std::min_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.bytes, a.time_us) < std::pair(b.bytes, b.time_us);
  });
  const std::string text = fmt::format("{} takes {} us", what(least), figure(least.time_us));
  if (limits.exchange_us <= 0) return text;
  return text + fmt::format("; a bare exchange of 8 B over TCP {} us", figure(limits.exchange_us));
}

// "4 ranks reach 1.80 GB/s of bus bandwidth (all_reduce, 64 MiB, in place);", and on a line of its own, because a line
// has at most 100 columns, "the limit here is 2.10 GB/s, by raw TCP".
// Rows with a limit are preferred, if there are any.
std::string rate_text(const std::vector<Row>& rows) {
  const Row& best = *std::max_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.limit_gbps.has_value(), a.busbw_gbps) < std::pair(b.limit_gbps.has_value(), b.busbw_gbps);
  });
  const std::string text =
      fmt::format("{} rank{} reach{} {} GB/s of bus bandwidth ({})", best.world, best.world == 1 ? "" : "s",
                  best.world == 1 ? "es" : "", figure(best.busbw_gbps), what(best));
  return best.limit_gbps ? text + fmt::format(";\n# the limit here is {} GB/s, by raw TCP", figure(*best.limit_gbps))
                         : text;
}

}  // namespace

std::string table_header(bool shares) {
  const auto half_of = [&](const char* time, const char* algbw, const char* busbw, const char* wrong,
                           const char* share) {
    const std::string half = fmt::format(" {:>8} {:>6} {:>6} {:>5}", time, algbw, busbw, wrong);
    return shares ? half + fmt::format(" {:>5}", share) : half;
  };
  const std::string names = half_of("time", "algbw", "busbw", "wrong", "share");
  const std::string units = half_of("(us)", "(GB/s)", "(GB/s)", "", "");
  return fmt::format("#{:>11}{:>{}}{:>{}}\n", "", "out of place", names.size(), "in place", names.size()) +
         fmt::format("#{:>11}{}{}  algorithm\n", "size", names, names) +
         fmt::format("#{:>11}{}{}", "(B)", units, units.substr(0, units.find_last_not_of(' ') + 1));
}

std::string table_line(const Line& line, bool shares) {
  const Row& row = line.in_place ? *line.in_place : line.out_of_place.value();
  return fmt::format(" {:>11}{}{}  {}", line.bytes, half(line.out_of_place, shares), half(line.in_place, shares),
                     row.algorithm);
}

std::string verbose_lines(const Line& line) {
  const std::string first = detail("out-of-place", line.out_of_place), second = detail("in-place", line.in_place);
  return first + (first.empty() || second.empty() ? "" : "\n") + second;
}

std::string table_footer(const std::vector<Row>& rows, const Limits& limits) {
  uint64_t wrong = 0;
  bool checked = !rows.empty();
  for (const Row& row : rows) {
    wrong += row.wrong.value_or(0);
    checked = checked && row.wrong.has_value();
  }
  const std::string verdict = fmt::format("# Wrong values: {}", checked ? fmt::format("{}", wrong) : "not checked");
  if (rows.empty()) return verdict;
  return fmt::format("{}\n# {}\n# {}", verdict, latency_text(rows, limits), rate_text(rows));
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
    out.push_back(fmt::format("the host was busy in the minute before: load average {:.2f} (a build counts, too)",
                              machine.load_average));
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
