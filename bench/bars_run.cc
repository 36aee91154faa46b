#include "bench/bars_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "bench/bars.h"
#include "bench/compare.h"
#include "bench/contest.h"
#include "bench/fused_pass.h"
#include "bench/limit_source.h"
#include "bench/network_namespace.h"
#include "bench/progress.h"
#include "bench/raw_ring.h"
#include "bench/statistics.h"

namespace rondo::bench {
namespace {

constexpr double kProgramSeconds = 40;
constexpr double kExchangeSeconds = 0.3;

const std::vector<std::string> kMpis{"openmpi", "mpich", "intelmpi"};
const std::vector<std::string> kGloos{"gloo", "gloo-sync", "gloo-busy"};

// All that is measured in turn, and what each run saw of it.
class BarRuns {
 public:
  BarRuns(const Options& options, const Machine& machine, const LimitCache& cache)
      : options_(options), machine_(machine), cache_(cache), namespaces_(network_namespaces_work("reno")) {
    for (const Bar& bar : all_bars()) {
      const bool world = options.ranks == 0 || options.ranks == bar.world;
      if (world && (options.transport.empty() || options.transport == bar.transport)) bars_.push_back(bar);
    }
    for (const Bar& bar : bars_) {
      add_question(bar);
    }
  }

  // Whoever we are compared with takes as many turns as we do. The machine is measured as often as we answer: three
  // settings of raw TCP one after the other meet the cores in one place, and our answers in several.
  void run_once(const Contest::OnProgress& on_progress) {
    limits_.emplace_back();
    for (Contest& contest : contests_) contest.begin_run();
    for (int turn = 0; turn < options_.turns; ++turn) {
      for (Contest& contest : contests_) contest.take_turn(on_progress);
      for (const Bar& bar : bars_) {
        size_t& taken = limits_.back().turns[&bar];
        const Contest* contest = contest_of(question_of(bar));
        const size_t wanted = contest == nullptr ? 0 : contest->answers("rondo", bar.bytes);
        for (size_t left = std::max<size_t>(wanted, taken + 1) - taken; left > 0; --left, ++taken) {
          take_limit_turn(bar, limits_.back(), on_progress);
        }
      }
    }
  }

  std::vector<Judged> judged() const {
    std::vector<Judged> out;
    for (const Bar& bar : bars_) out.push_back(judged_bar(bar));
    return out;
  }
  const std::vector<Contest>& contests() const { return contests_; }

 private:
  Question question_of(const Bar& bar) const {
    Question question;
    question.world = bar.world;
    question.transport = bar.transport;
    question.congestion = bar.congestion;
    question.buffers = bar.buffers;
    question.seconds = options_.effort.seconds / options_.turns;
    return question;
  }

  const Contest* contest_of(const Question& question) const {
    for (const Contest& contest : contests_) {
      if (contest.question() == question) return &contest;
    }
    return nullptr;
  }

  void add_question(const Bar& bar) {
    const Question question = question_of(bar);
    if ((!question.congestion.empty() && !namespaces_) || contest_of(question) != nullptr) return;
    std::vector<std::string> libraries{"rondo"};
    const auto wanted = [&](const std::vector<std::string>& group) {
      return std::any_of(bars_.begin(), bars_.end(), [&](const Bar& other) {
        const std::vector<std::string> peers = peers_of(other);
        return question_of(other) == question && std::find(peers.begin(), peers.end(), group[0]) != peers.end();
      });
    };
    if (bar.buffers == "plain" && wanted(kMpis)) libraries.insert(libraries.end(), kMpis.begin(), kMpis.end());
    if (wanted(kGloos)) libraries.insert(libraries.end(), kGloos.begin(), kGloos.end());
    size_t settings = 1;
    for (const Bar& other : bars_) {
      if (question_of(other) == question) settings = std::max(settings, settings_of(other.against));
    }
    contests_.emplace_back(question, libraries, default_places(), machine_.cores, kProgramSeconds, settings);
  }

  // Of the machine.
  static size_t settings_of(Against against) {
    return against == Against::kRawTcp || against == Against::kRawWalk ? kLimitSettings : 1;
  }

  // What the machine does without any library; of a run's turns the fastest.
  struct MachineLimits {
    std::map<const Bar*, size_t> turns;         // taken
    std::map<int, double> raw_gbps, walk_gbps;  // by world
    double exchange_us = std::numeric_limits<double>::infinity();
    double fused_us = std::numeric_limits<double>::infinity();
  };

  // Nothing, for a bar against other libraries.
  void take_limit_turn(const Bar& bar, MachineLimits& limits, const Contest::OnProgress& on_progress) {
    if (bar.against == Against::kRawTcp) {
      const auto use = remeasured_.insert(bar.world).second ? options_.limit : Options::LimitUse::kCached;
      const Limits raw = obtain_limits(cache_, use, bar.world, {bar.bytes}, machine_, on_progress);
      double& best = limits.raw_gbps[bar.world];
      best = std::max(best, raw.stream(bar.world, bar.bytes)->gbps);
    } else if (bar.against == Against::kRawWalk) {
      on_progress(fmt::format("raw TCP through the whole buffer, {} ranks", bar.world));
      const auto known = walks_.find(bar.world);
      const StreamLimit walk = known == walks_.end() ? measure_stream_limit(bar.world, bar.bytes, Memory::kWalk)
                                                     : measure_again(known->second);
      walks_.insert_or_assign(bar.world, walk);
      double& best = limits.walk_gbps[bar.world];
      best = std::max(best, walk.gbps);
    } else if (bar.against == Against::kExchange) {
      on_progress("bare exchange");
      const double us = RawRing(bar.world, 4096).exchange_us(exchange_congestion(), kExchangeSeconds);
      limits.exchange_us = std::min(limits.exchange_us, us);
    } else if (bar.against == Against::kFusedPass) {
      on_progress("fused pass");
      limits.fused_us = std::min(limits.fused_us, fused_pass_us(bar.world, bar.bytes));
    }
  }

  std::string exchange_congestion() const {
    const auto& allowed = machine_.congestion_controls;
    return std::find(allowed.begin(), allowed.end(), "reno") != allowed.end() ? "reno" : machine_.congestion_control;
  }

  static std::vector<std::string> peers_of(const Bar& bar) {
    if (against_the_machine(bar.against)) return {};
    std::vector<std::string> peers;
    if (bar.against != Against::kGloo) peers = kMpis;
    const bool gloo = bar.against != Against::kBestMpi && bar.transport == "tcp";
    if (gloo) peers.insert(peers.end(), kGloos.begin(), kGloos.end());
    return peers;
  }

  // The fastest peer's row of a run.
  static std::optional<Row> fastest(const Contest& contest, size_t run, const Bar& bar) {
    std::optional<Row> best;
    for (const std::string& library : peers_of(bar)) {
      const std::optional<Row> row = contest.best(run, library, bar.bytes);
      if (row && (!best || row->time_us < best->time_us)) best = row;
    }
    return best;
  }

  // Peers over plain buffers are what registered ones are compared with, too.
  const Contest* peers_contest(const Bar& bar) const {
    Question question = question_of(bar);
    question.buffers = "plain";
    return contest_of(question);
  }

  std::optional<double> ratio(const Bar& bar, const Row& ours, size_t run) const {
    switch (bar.against) {
      case Against::kRawTcp:
        return ours.busbw_gbps / limits_.at(run).raw_gbps.at(bar.world);
      case Against::kRawWalk:
        return ours.busbw_gbps / limits_.at(run).walk_gbps.at(bar.world);
      case Against::kExchange:
        return ours.time_us / limits_.at(run).exchange_us;
      case Against::kFusedPass:
        return limits_.at(run).fused_us / ours.time_us;
      default:
        break;
    }
    const Contest* peers = peers_contest(bar);
    const std::optional<Row> theirs = peers != nullptr ? fastest(*peers, run, bar) : std::nullopt;
    if (!theirs) return std::nullopt;
    if (bar.against != Against::kPeerCpu) return ours.time_us / theirs->time_us;
    if (!ours.cpu_s_per_gb || theirs->cpu_s_per_gb.value_or(0) <= 0) return std::nullopt;
    return *ours.cpu_s_per_gb / *theirs->cpu_s_per_gb;
  }

  // "" if all libraries that the bar needs have an answer. The best of some MPIs would be no bar at all.
  std::string why_not(const Bar& bar) const {
    const Contest* ours = contest_of(question_of(bar));
    if (ours == nullptr) return "no network namespace to set the congestion control in (needs root)";
    std::string why = ours->why_missing("rondo");
    if (!why.empty()) return "rondo: " + why;
    if (against_the_machine(bar.against)) return "";
    const Contest* peers = peers_contest(bar);
    for (const std::string& library : bar.against == Against::kGloo ? std::vector<std::string>{"gloo"} : kMpis) {
      why = peers == nullptr ? "not asked" : peers->why_missing(library);
      const bool ran = why.find("did not finish") != std::string::npos;  // slow is an answer
      if (!why.empty() && !ran) return library + ": " + why;
    }
    return "";
  }

  Judged judged_bar(const Bar& bar) const {
    Judged judged{bar, {}, why_not(bar)};
    if (!judged.missing.empty()) return judged;
    const Contest* contest = contest_of(question_of(bar));
    for (size_t run = 0; run < contest->runs(); ++run) {
      const std::optional<Row> ours = contest->best(run, "rondo", bar.bytes);
      const std::optional<double> value = ours ? ratio(bar, *ours, run) : std::nullopt;
      if (value) judged.ratios.push_back(*value);
    }
    if (judged.ratios.empty()) judged.missing = "no run has both figures";
    const bool raw = bar.against == Against::kRawTcp || bar.against == Against::kRawWalk;
    if (raw && !judged.ratios.empty() && median(judged.ratios) > kHighestShare) {
      judged.missing = fmt::format("a share of {:.2f}: the limit is wrong", median(judged.ratios));
      judged.ratios.clear();
    }
    return judged;
  }

  const Options& options_;
  const Machine& machine_;
  const LimitCache& cache_;
  bool namespaces_;
  std::vector<Bar> bars_;
  std::vector<Contest> contests_;
  std::map<int, StreamLimit> walks_;   // by world; its settings were chosen in the first turn
  std::set<int> remeasured_;           // worlds whose raw settings were chosen, in the first turn
  std::vector<MachineLimits> limits_;  // of each run
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
