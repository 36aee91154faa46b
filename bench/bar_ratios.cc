#include "bench/bar_ratios.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "bench/bar_questions.h"
#include "bench/limit.h"
#include "bench/statistics.h"

namespace rondo::bench {
namespace {

using AllAnswers = std::span<const RunAnswers* const>;

const RunAnswers* answers_of(const Bar& bar, AllAnswers all) {
  for (const RunAnswers* answers : all) {
    if (answers->question() == question_of(bar, answers->question().seconds)) return answers;
  }
  return nullptr;
}

// Peers over plain buffers are what registered ones are compared with, too.
const RunAnswers* peers_answers_of(Bar bar, AllAnswers all) {
  bar.buffers = "plain";
  return answers_of(bar, all);
}

// "" if all libraries that the bar needs have an answer.
std::string why_not(const Bar& bar, AllAnswers all) {
  const RunAnswers* ours = answers_of(bar, all);
  if (ours == nullptr) return "no network namespace to set the congestion control in (needs root)";
  std::string why = ours->why_missing("rondo");
  if (!why.empty()) return "rondo: " + why;
  const RunAnswers* peers = peers_answers_of(bar, all);
  for (const std::string& library : needed_peers_of(bar)) {
    why = peers == nullptr ? "not asked" : peers->why_missing(library);
    const bool ran = why.find("did not finish") != std::string::npos;  // slow is an answer
    if (!why.empty() && !ran) return library + ": " + why;
  }
  return "";
}

std::optional<Row> fastest_peer(const Bar& bar, const RunAnswers& answers, size_t run) {
  std::optional<Row> best;
  for (const std::string& library : peers_of(bar)) {
    const std::optional<Row> row = answers.best(run, library, bar.bytes);
    if (row && (!best || row->time_us < best->time_us)) best = row;
  }
  return best;
}

std::optional<double> ratio_to_peers(const Bar& bar, const Row& ours, const RunAnswers& peers, size_t run) {
  const std::optional<Row> theirs = fastest_peer(bar, peers, run);
  if (!theirs) return std::nullopt;
  if (bar.against != Against::kPeerCpu) return ours.time_us / theirs->time_us;
  if (!ours.cpu_s_per_gb || theirs->cpu_s_per_gb.value_or(0) <= 0) return std::nullopt;
  return *ours.cpu_s_per_gb / *theirs->cpu_s_per_gb;
}

double ratio_to_machine(const Bar& bar, const Row& ours, const MachineFigures& machine) {
  switch (bar.against) {
    case Against::kRawTcp:
      return ours.busbw_gbps / machine.raw_gbps.at(bar.world);
    case Against::kRawWalk:
      return ours.busbw_gbps / machine.walk_gbps.at(bar.world);
    case Against::kExchange:
      return ours.time_us / machine.exchange_us;
    default:
      return machine.fused_us / ours.time_us;
  }
}

}  // namespace

Judged judge_runs(const Bar& bar, AllAnswers all, std::span<const MachineFigures> machine) {
  Judged judged{bar, {}, why_not(bar, all)};
  if (!judged.missing.empty()) return judged;
  const RunAnswers& answers = *answers_of(bar, all);
  for (size_t run = 0; run < answers.runs(); ++run) {
    const std::optional<Row> ours = answers.best(run, "rondo", bar.bytes);
    if (!ours) continue;
    const std::optional<double> ratio = against_the_machine(bar.against)
                                            ? ratio_to_machine(bar, *ours, machine[run])
                                            : ratio_to_peers(bar, *ours, *peers_answers_of(bar, all), run);
    if (ratio) judged.ratios.push_back(*ratio);
  }
  if (judged.ratios.empty()) {
    judged.missing = "no run has both figures";
    return judged;
  }
  const bool raw = bar.against == Against::kRawTcp || bar.against == Against::kRawWalk;
  if (raw && median(judged.ratios) > kHighestShare) {
    judged.missing = fmt::format("a share of {:.2f}: the limit is wrong", median(judged.ratios));
    judged.ratios.clear();
  }
  return judged;
}

}  // namespace rondo::bench
