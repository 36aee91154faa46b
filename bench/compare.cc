#include "bench/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/baseline.h"
#include "bench/network_namespace.h"
#include "bench/output.h"
#include "bench/progress.h"
#include "bench/sizes.h"
#include "bench/table.h"

namespace rondo::bench {
namespace {

constexpr double kProgramSeconds = 40;
constexpr const char* kUnpaced = "reno";

std::string sizes_text(const Options& options) {
  return options.list.empty() ? fmt::format("{}", fmt::join(options.sizes, ",")) : options.list;
}

std::string figure(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0); }

void print_row(const Row& row, const std::optional<Row>& ours) {
  const std::string ratio =
      ours && ours->library != row.library ? fmt::format("{:.2f}", ours->time_us / row.time_us) : "-";
  fmt::print("{:>10} {:<10} {:>11} {:>8.3f} {:>9} {:>6}   {}\n", size_text(row.bytes), row.library, figure(row.time_us),
             row.busbw_gbps, row.cpu_s_per_gb ? fmt::format("{:.3f}", *row.cpu_s_per_gb) : "-", ratio, row.algorithm);
}

void print_contest(const Contest& contest) {
  fmt::print("#\n# {}\n# {:>8} {:<10} {:>11} {:>8} {:>9} {:>6}   {}\n", contest.question().text(), "size", "library",
             "time (us)", "busbw", "CPU s/GB", "ours/", "best setting");
  for (uint64_t bytes : contest.sizes()) {
    const std::optional<Row> ours = contest.median(contest.libraries().front(), bytes);
    for (const std::string& library : contest.libraries()) {
      if (const std::optional<Row> row = contest.median(library, bytes)) print_row(*row, ours);
    }
  }
  for (const std::string& library : contest.libraries()) {
    const std::string why = contest.why_missing(library);
    if (!why.empty()) fmt::print("# {} is missing: {}\n", library, why);
  }
  for (const Contest::Tried& tried : contest.tried()) {
    fmt::print("# ran {} ({}){}: {}\n", tried.entrant.library, tried.entrant.setting,
               tried.status.empty() ? "" : ", " + tried.status, tried.entrant.command());
  }
  std::fflush(stdout);
}

bool measured_ours(const std::vector<Contest>& contests) {
  return std::any_of(contests.begin(), contests.end(),
                     [](const Contest& contest) { return contest.why_missing(contest.libraries().front()).empty(); });
}

int judge_baseline(const Options& options, const std::vector<Contest>& contests, const Machine& machine) {
  const std::vector<Ratio> ratios = ratios_of(contests);
  if (!options.write_baseline.empty()) write_baseline(options.write_baseline, ratios, machine);
  if (options.baseline.empty()) return 0;
  int fallen = 0, compared = 0;
  for (const BaselineVerdict& verdict : compare_with_baseline(ratios, read_baseline(options.baseline))) {
    fmt::print("{}\n", verdict.text);
    fallen += verdict.fell;
    ++compared;
  }
  fmt::print("# {} ratios compared with {}, {} fell\n", compared, options.baseline, fallen);
  return fallen > 0 || compared == 0 ? 1 : 0;
}

std::vector<Row> rows_of(const std::vector<Contest>& contests) {
  std::vector<Row> rows;
  for (const Contest& contest : contests) {
    const Question& question = contest.question();
    for (uint64_t bytes : contest.sizes()) {
      for (const std::string& library : contest.libraries()) {
        std::optional<Row> row = contest.median(library, bytes);
        if (!row) continue;
        row->transport =
            question.congestion.empty() ? question.transport : question.transport + "@" + question.congestion;
        rows.push_back(*row);
      }
    }
  }
  return rows;
}

}  // namespace

std::vector<Question> questions_of(const Options& options, const Machine& machine) {
  std::vector<Question> out;
  std::vector<std::string> transports{"shm", "tcp"};
  if (!options.transport.empty()) transports = {options.transport};
  const bool paced = machine.congestion_control != kUnpaced && network_namespaces_work(kUnpaced);
  for (Benchmark benchmark : options.benchmarks) {
    for (const std::string& transport : transports) {
      Question question{options.ranks,
                        transport,
                        "",
                        buffer_kind_name(options.buffers),
                        benchmark_name(benchmark),
                        sizes_text(options),
                        options.effort.seconds / options.turns};
      out.push_back(question);
      question.congestion = kUnpaced;
      if (transport == "tcp" && paced) out.push_back(question);
    }
  }
  return out;
}

int publish(const Options& options, const Machine& machine, const std::vector<Contest>& contests,
            const std::vector<Judged>& bars) {
  for (const Contest& contest : contests) print_contest(contest);
  if (const auto warning = steal_warning(machine.steal_share())) fmt::print("# warning: {}\n", *warning);
  const std::vector<Row> rows = rows_of(contests);
  if (!options.json.empty()) write_json(options.json, machine, {}, rows, bars);
  if (!options.csv.empty()) write_csv(options.csv, rows);
  const int fallen = judge_baseline(options, contests, machine);
  for (const Judged& bar : bars) fmt::print("{}\n", judged_text(bar));
  return measured_ours(contests) ? std::max(fallen, bars_exit_code(bars)) : 1;
}

int run_compare(const Options& options, const Machine& machine) {
  std::vector<std::string> libraries{"rondo"};
  libraries.insert(libraries.end(), options.compare.begin(), options.compare.end());
  std::vector<Contest> contests;
  for (const Question& question : questions_of(options, machine)) {
    contests.emplace_back(question, libraries, default_places(), machine.cores, kProgramSeconds);
  }
  for (int run = 1; run <= options.runs; ++run) {
    Progress progress;
    const auto show = [&](const std::string& text) {
      progress.show(fmt::format("run {} of {}: {}", run, options.runs, text));
    };
    for (Contest& contest : contests) contest.begin_run();
    for (int turn = 0; turn < options.turns; ++turn) {
      for (Contest& contest : contests) contest.take_turn(show);
    }
  }
  return publish(options, machine, contests);
}

}  // namespace rondo::bench
