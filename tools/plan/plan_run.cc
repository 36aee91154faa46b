#include "tools/plan/plan_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ring/plan/describe.h"
#include "ring/plan/goal.h"
#include "ring/plan/simulate.h"
#include "ring/plan/structure.h"
#include "ring/plan/values.h"
#include "rondo/error.h"
#include "tools/plan/example_values.h"
#include "tools/plan/plan_options.h"
#include "tools/plan/run_times.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
using Executed = ValueTrace::Executed;

// The part of the collective that moves this value. A value is complete when all ranks have contributed to it.
const char* phase_of(const Plan& plan, const ValueTrace::Held* held) {
  if (plan.collective != Collective::kAllReduce) return collective_name(plan.collective);
  const bool complete = held != nullptr && held->finished;
  switch (plan.algorithm) {
    case Algorithm::kDirect:
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kOneShot:
      return "exchange";
    case Algorithm::kTree:
    case Algorithm::kDoubleTree:
    case Algorithm::kStar:
      return complete ? "broadcast" : "reduce";
    default:
      return complete ? "all-gather" : "scatter-reduce";
  }
}

// The trace says who holds which data, the simulation when. json() is called once: it moves its parts out.
class Run {
 public:
  Run(const PlanRequest& request, const PlanRunOptions& options);
  Json json();

 private:
  const Plan& plan(const Executed& executed) const { return plans_[static_cast<size_t>(executed.rank)]; }
  const Step& step(const Executed& executed) const { return plan(executed).steps[executed.step]; }
  void add_rows();
  int row_of(const Ref& target) const;
  Json initial() const;
  Json values() const;
  Json event(size_t index);
  void add_window_moves(size_t index);
  void add_message(const ValueTrace::Message& message);
  Json move(size_t index, const char* kind, Value value) const;
  double end_us(const Executed& executed) const { return times_.end_us(executed.rank, executed.step); }
  void keep_until(const Executed& executed, Json& json) const;

  PlanRequest request_;
  PlanRunOptions options_;
  std::vector<Plan> plans_;
  ValueTrace trace_;
  RecordedSimulation simulation_;
  RunTimes times_;
  bool windows_ = false;
  std::vector<std::string> rows_;
  Json moves_ = Json::array();
};

Run::Run(const PlanRequest& request, const PlanRunOptions& options)
    : request_(request),
      options_(options),
      plans_(plans_of_all(request)),
      trace_(trace_values(plans_)),
      simulation_(simulate_recorded(plans_, simulation_of(plans_, request.topology, options.bytes))),
      times_(simulation_),
      windows_(has_windows(plans_)) {
  add_rows();
}

void Run::add_rows() {
  if (request_.collective == Collective::kBarrier) {
    rows_ = {"heard"};
  } else if (in_place_possible(request_.collective)) {
    rows_ = {"data"};
  } else {
    rows_ = {"input", "output"};
  }
  const auto staging = [](const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kStaging) != 0; };
  for (const Plan& p : plans_) {
    if (rows_.back() != "staging" && std::any_of(p.refs.begin(), p.refs.end(), staging)) rows_.push_back("staging");
  }
}

// The row that a target writes; -1: none that is shown. Staging, where there is any, is the last row.
int Run::row_of(const Ref& target) const {
  if (target.space == Space::kWindow && (target.flags & kStaging) != 0) return static_cast<int>(rows_.size()) - 1;
  if (target.space != Space::kOutput && target.space != Space::kWindow) return -1;
  return rows_[0] == "input" ? 1 : 0;
}

// What ranks hold before the first step: values with the contribution of one rank, where that rank has an input.
Json Run::initial() const {
  Json list = Json::array();
  for (Value v = 0; v < trace_.values.size(); ++v) {
    const ValueTrace::Held& held = trace_.values[v];
    // Leaves of later rounds have higher blocks.
    if (held.ranks.size() != 1 || held.finished || held.block >= plans_[0].blocks) continue;
    const Plan& p = plans_[static_cast<size_t>(held.ranks[0])];
    if (holds_input(p, held.block)) list.push_back({held.ranks[0], 0, held.block, v});
  }
  return list;
}

// Numbers are of the first round: blocks of later rounds have none.
Json Run::values() const {
  Json list = Json::array();
  for (const ValueTrace::Held& held : trace_.values) {
    Json json = {{"ranks", held.ranks}, {"block", held.block}, {"finished", held.finished}};
    if (options_.values > 0 && held.block < plans_[0].blocks) {
      json["numbers"] = example_numbers(plans_[0], held.block, held.ranks, options_.values);
    }
    list.push_back(std::move(json));
  }
  return list;
}

// What is kept for links and scratch only: until the last message has left and the last step has read it.
void Run::keep_until(const Executed& executed, Json& json) const {
  uint32_t until = executed.depth + 1;
  double until_us = end_us(executed);
  const auto kept = targets_of(plan(executed), step(executed));
  for (const Ref& ref : kept) {
    if (ref.space != Space::kMailbox) continue;
    until_us = std::max(until_us, times_.on_link_us(executed.rank, executed.step, ref.peer).second);
  }
  for (const Executed& later : trace_.steps) {
    if (later.rank != executed.rank || later.step <= executed.step) continue;
    const auto targets = targets_of(plan(later), step(later));
    const auto scratch = [](const Ref& ref) { return ref.space == Space::kScratch; };
    bool read = false, overwritten = false;
    for (const Ref& ref : kept) {
      if (!scratch(ref)) continue;
      const auto sources = sources_of(plan(later), step(later));
      read |= std::find_if(sources.begin(), sources.end(),
                           [&](const Ref& s) { return scratch(s) && s.block == ref.block; }) != sources.end();
      overwritten |= std::find(targets.begin(), targets.end(), ref) != targets.end();
    }
    if (read) {
      until = std::max(until, later.depth);
      until_us = std::max(until_us, end_us(later));
    }
    if (overwritten) break;
  }
  json["passes"] = true;
  json["until"] = until;
  json["until_us"] = until_us;
}

// A step that stores in no memory that is shown has its value on a link or in scratch: keep_until() says how long.
Json Run::event(size_t index) {
  const Executed& executed = trace_.steps[index];
  const Plan& p = plan(executed);
  const Step& s = step(executed);
  Json json = {{"rank", executed.rank}, {"step", executed.step}, {"depth", executed.depth}};
  if (!windows_) json["end_us"] = end_us(executed);
  if (executed.value == kNoValue) {
    json["value"] = -1;
    json["heard"] = executed.heard;
    return json;
  }
  json["value"] = executed.value;
  json["block"] = length_of(p, s) % p.blocks;
  Json writes = Json::array();
  for (const Ref& ref : targets_of(p, s)) {
    const int row = row_of(ref);
    if (row < 0) continue;
    writes.push_back({ref.space == Space::kWindow ? int{ref.peer} : executed.rank, row, ref.block % p.blocks});
  }
  const bool own_input = s.sources == 1 && p.refs[s.first].space == Space::kInput;
  if (writes.empty() && !own_input) keep_until(executed, json);
  json["writes"] = std::move(writes);
  return json;
}

// A move of no value is a signal, and has 0 bytes.
Json Run::move(size_t index, const char* kind, Value value) const {
  const Executed& executed = trace_.steps[index];
  const ValueTrace::Held* held = value == kNoValue ? nullptr : &trace_.values[value];
  const char* phase = windows_ && held == nullptr ? "barrier" : phase_of(plan(executed), held);
  Json json = {{"kind", kind}, {"event", index}, {"phase", phase}, {"bytes", 0}};
  if (held != nullptr) {
    json["value"] = value;
    json["block"] = held->block;
    json["bytes"] = simulation_.block_bytes[length_of(plan(executed), step(executed))];
  }
  return json;
}

// Other ranks' memory that a step loads from or stores to, shown before the step and after the signals that it waits
// for: loads in the first half of that time if both happen.
void Run::add_window_moves(size_t index) {
  const Executed& executed = trace_.steps[index];
  const Step& s = step(executed);
  const auto remote = [&](const Ref& ref) { return ref.space == Space::kWindow && ref.peer != executed.rank; };
  const auto sources = sources_of(plan(executed), s), targets = targets_of(plan(executed), s);
  const bool loads = std::any_of(sources.begin(), sources.end(), remote);
  const bool stores = std::any_of(targets.begin(), targets.end(), remote);
  const double end = executed.depth, begin = executed.depth == 0 ? -1 : end - 0.5;
  const double half = loads && stores ? (begin + end) / 2 : end;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!remote(sources[i])) continue;
    Json json = move(index, "load", executed.operands[i]);
    json.update({{"from", sources[i].peer}, {"to", executed.rank}, {"begin", begin}, {"end", half}});
    moves_.push_back(std::move(json));
  }
  for (const Ref& ref : targets) {
    if (!remote(ref)) continue;
    Json json = move(index, "store", executed.value);
    json.update({{"from", executed.rank}, {"to", ref.peer}, {"begin", loads ? half : begin}, {"end", end}});
    moves_.push_back(std::move(json));
  }
}

// With windows a message is a signal of half a step, and loads and stores fill the other half.
void Run::add_message(const ValueTrace::Message& message) {
  const Executed& sender = trace_.steps[message.sent];
  const int to = trace_.steps[message.received].rank;
  const bool signal = sender.value == kNoValue;
  Json json = move(message.sent, signal ? "signal" : "message", sender.value);
  json.update(
      {{"from", sender.rank}, {"to", to}, {"begin", sender.depth}, {"end", sender.depth + (windows_ ? 0.5 : 1)}});
  if (!windows_) {
    const auto [begin_us, last_us] = times_.on_link_us(sender.rank, sender.step, to);
    json.update({{"begin_us", begin_us}, {"end_us", last_us}});
  }
  moves_.push_back(std::move(json));
}

Json Run::json() {
  Json events = Json::array(), programs = Json::array();
  uint32_t depth = 0;
  for (size_t i = 0; i < trace_.steps.size(); ++i) {
    depth = std::max(depth, trace_.steps[i].depth);
    events.push_back(event(i));
    add_window_moves(i);
  }
  for (const ValueTrace::Message& message : trace_.messages) add_message(message);
  for (const Plan& p : plans_) {
    Json program = Json::array();
    for (const Step& s : p.steps) program.push_back(describe(p, s));
    programs.push_back(std::move(program));
  }
  return {{"collective", collective_name(request_.collective)},
          {"algorithm", algorithm_name(request_.algorithm)},
          {"reduces", collective_reduces(request_.collective)},
          {"world", request_.topology.world()},
          {"root", request_.root},
          {"hosts", request_.topology.host},
          {"bytes", options_.bytes},
          {"elements", options_.values},
          {"blocks", plans_[0].blocks},
          {"rows", rows_},
          {"depth", depth},
          // Loads and stores have no times of their own.
          {"cost", {{"time_us", simulation_.time_us}, {"timed", !windows_}}},
          {"values", values()},
          {"initial", initial()},
          {"events", std::move(events)},
          {"moves", std::move(moves_)},
          {"programs", std::move(programs)}};
}

}  // namespace

Json plan_run_json(const PlanRequest& request, const PlanRunOptions& options) {
  if (options.bytes == 0) throw Exception(ErrorCode::kInvalid, "a run of no bytes");
  if (options.values < 0 || options.values > kMostValues) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} values, not 0 .. {}", options.values, kMostValues));
  }
  return Run(request, options).json();
}

}  // namespace rondo
