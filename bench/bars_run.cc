#include "bench/bars_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/bar_questions.h"
#include "bench/bar_ratios.h"
#include "bench/compare.h"
#include "bench/contest.h"
#include "bench/fused_pass.h"
#include "bench/limit_source.h"
#include "bench/network_namespace.h"
#include "bench/progress.h"
#include "bench/raw_ring.h"

namespace rondo::bench {
namespace {

constexpr double kProgramSeconds = 40;
constexpr double kExchangeSeconds = 0.3;

// All that is measured in turn, and what each run saw of it.
class BarRuns {
 public:
  BarRuns(const Options& options, const Machine& machine, const LimitCache& cache)
      : options_(options), machine_(machine), cache_(cache), turn_seconds_(options.effort.seconds / options.turns) {
    for (const Bar& bar : all_bars()) {
      const bool world = options.ranks == 0 || options.ranks == bar.world;
      if (world && (options.transport.empty() || options.transport == bar.transport)) bars_.push_back(bar);
    }
    const bool namespaces = network_namespaces_work("reno");
    for (const BarQuestion& asked : questions_of(bars_, turn_seconds_)) {
      if (!asked.question.congestion.empty() && !namespaces) continue;
      contests_.emplace_back(asked.question, asked.libraries, default_places(), machine_.cores, kProgramSeconds,
                             asked.settings);
    }
  }

  // Whoever we are compared with takes as many turns as we do. The machine is measured as often as we answer: three
  // settings of raw TCP one after the other meet the cores in one place, and our answers in several.
  void run_once(const Contest::OnProgress& on_progress) {
    MachineFigures& figures = figures_.emplace_back();
    std::map<const Bar*, size_t> taken;  // turns of the machine
    for (Contest& contest : contests_) contest.begin_run();
    for (int turn = 0; turn < options_.turns; ++turn) {
      for (Contest& contest : contests_) contest.take_turn(on_progress);
      for (const Bar& bar : bars_) {
        const size_t wanted = our_answers(bar);
        size_t& so_far = taken[&bar];
        for (size_t left = std::max(wanted, so_far + 1) - so_far; left > 0; --left, ++so_far) {
          measure_machine(bar, figures, on_progress);
        }
      }
    }
  }

  std::vector<Judged> judged() const {
    std::vector<const RunAnswers*> answers;
    for (const Contest& contest : contests_) answers.push_back(&contest);
    std::vector<Judged> out;
    for (const Bar& bar : bars_) out.push_back(judge_runs(bar, answers, figures_));
    return out;
  }
  const std::vector<Contest>& contests() const { return contests_; }

 private:
  // In this run.
  size_t our_answers(const Bar& bar) const {
    const Question question = question_of(bar, turn_seconds_);
    for (const Contest& contest : contests_) {
      if (contest.question() == question) return contest.answers("rondo", bar.bytes);
    }
    return 0;
  }

  // Nothing, for a bar against other libraries.
  void measure_machine(const Bar& bar, MachineFigures& figures, const Contest::OnProgress& on_progress) {
    if (bar.against == Against::kRawTcp) {
      const auto use = remeasured_.insert(bar.world).second ? options_.limit : Options::LimitUse::kCached;
      const Limits raw = obtain_limits(cache_, use, bar.world, {bar.bytes}, machine_, on_progress);
      double& best = figures.raw_gbps[bar.world];
      best = std::max(best, raw.stream(bar.world, bar.bytes)->gbps);
    } else if (bar.against == Against::kRawWalk) {
      on_progress(fmt::format("raw TCP through the whole buffer, {} ranks", bar.world));
      const auto known = walks_.find(bar.world);
      const StreamLimit walk = known == walks_.end() ? measure_stream_limit(bar.world, bar.bytes, Memory::kWalk)
                                                     : measure_again(known->second);
      walks_.insert_or_assign(bar.world, walk);
      double& best = figures.walk_gbps[bar.world];
      best = std::max(best, walk.gbps);
    } else if (bar.against == Against::kExchange) {
      on_progress("bare exchange");
      const double us = RawRing(bar.world, 4096).exchange_us(exchange_congestion(), kExchangeSeconds);
      figures.exchange_us = std::min(figures.exchange_us, us);
    } else if (bar.against == Against::kFusedPass) {
      on_progress("fused pass");
      figures.fused_us = std::min(figures.fused_us, fused_pass_us(bar.world, bar.bytes));
    }
  }

  std::string exchange_congestion() const {
    const auto& allowed = machine_.congestion_controls;
    return std::find(allowed.begin(), allowed.end(), "reno") != allowed.end() ? "reno" : machine_.congestion_control;
  }

  const Options& options_;
  const Machine& machine_;
  const LimitCache& cache_;
  double turn_seconds_;
  std::vector<Bar> bars_;
  std::vector<Contest> contests_;
  std::map<int, StreamLimit> walks_;     // by world; its settings were chosen in the first turn
  std::set<int> remeasured_;             // worlds whose raw settings were chosen, in the first turn
  std::vector<MachineFigures> figures_;  // of each run
};

}  // namespace

int run_bars(const Options& options, const Machine& machine, const LimitCache& cache) {
  BarRuns runs(options, machine, cache);
  for (int i = 1; i <= options.runs; ++i) {
    Progress progress;
    runs.run_once(
        [&](const std::string& text) { progress.show(fmt::format("run {} of {}: {}", i, options.runs, text)); });
  }
  return publish(options, machine, runs.contests(), runs.judged());
}

}  // namespace rondo::bench
