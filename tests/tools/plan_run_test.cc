// What plan_dump --run writes, for programs that draw plans: who holds what at which step, and what links carry when.
#include "tools/plan/plan_run.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ring/plan/simulate.h"
#include "ring/plan/values.h"
#include "rondo/error.h"
#include "tools/plan/plan_options.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

PlanRequest request_for(const std::string& collective, const std::string& algorithm, std::vector<int> hosts) {
  PlanOptions options;
  options.collective = collective;
  options.algorithm = algorithm;
  options.hosts = std::move(hosts);
  return request_of(options, 64);
}

std::string refusal(const PlanOptions& options) {
  try {
    request_of(options, 64);
  } catch (const Exception& error) {
    CHECK(error.code() == ErrorCode::kInvalid);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the ring's trace: block c is folded from rank c on, a rank a message") {
  const int n = 4;
  const std::vector<Plan> plans = plans_of_all(request_for("all_reduce", "ring", {n}));
  const ValueTrace trace = trace_values(plans);
  CHECK_EQ(trace.messages.size(), 2 * n * (n - 1));
  for (const ValueTrace::Executed& executed : trace.steps) {
    CHECK_EQ(executed.depth, executed.step);
    const ValueTrace::Held& held = trace.values[executed.value];
    REQUIRE_EQ(held.ranks.size(), std::min<size_t>(executed.step + 1, n));
    for (size_t i = 0; i < held.ranks.size(); ++i) {  // what arrives is folded with the rank's own, in hop order
      const auto first = static_cast<size_t>(held.block);
      CHECK(std::find(held.ranks.begin(), held.ranks.end(), static_cast<int>((first + i) % n)) != held.ranks.end());
    }
    CHECK_EQ(held.finished, executed.step >= n - 1);
  }
  for (const ValueTrace::Message& message : trace.messages) {
    CHECK_LT(message.sent, message.received);
    CHECK_EQ(trace.steps[message.received].rank, (trace.steps[message.sent].rank + 1) % n);
  }
}

TEST_CASE("recorded transfers: the same time as without, and the star's root has every byte on its port") {
  const uint64_t bytes = 1 << 20;
  for (const char* algorithm : {"ring", "star", "direct", "halving_doubling", "tree"}) {
    CAPTURE(algorithm);
    const PlanRequest request = request_for("all_reduce", algorithm, {8});
    const std::vector<Plan> plans = plans_of_all(request);
    const SimulationRequest simulated = simulation_of(plans, request.topology, bytes);
    const RecordedSimulation recorded = simulate_recorded(plans, simulated);
    REQUIRE(recorded.finished);
    CHECK_EQ(recorded.time_us, simulate(plans, simulated).time_us);
    CHECK_EQ(recorded.moves.size(), recorded.slices);
    std::map<int, uint64_t> out, in;
    double last = 0;
    for (const Machine::Transfer& transfer : recorded.transfers) {
      const double beta = simulated.cost.loopback.beta_us_per_byte;
      CHECK_GE(transfer.end_us - transfer.begin_us,
               simulated.cost.loopback.alpha_us + beta * static_cast<double>(transfer.bytes) - 1e-6);
      out[transfer.from] += transfer.bytes;
      in[transfer.to] += transfer.bytes;
      last = std::max(last, transfer.end_us);
    }
    CHECK_LE(last, recorded.time_us);
    const std::string name = algorithm;
    if (name == "ring") CHECK_EQ(in[3], 2 * 7 * bytes / 8);
    if (name == "star")
      CHECK_EQ(std::vector<uint64_t>{in[0], out[0], in[1], out[1]},
               std::vector<uint64_t>{7 * bytes, 7 * bytes, bytes, bytes});
    if (name == "direct") CHECK_EQ(in[5], 7 * bytes);
  }
}

TEST_CASE("a run as one object: the numbers of the examples, and what is written where") {
  const Json run = plan_run_json(request_for("all_reduce", "ring", {4}), {1 << 20, 2});
  CHECK_EQ(run["depth"], 6);
  CHECK_EQ(run["rows"], Json::array({"data"}));
  std::map<std::string, Json> held;
  for (const Json& event : run["events"]) {
    for (const Json& cell : event["writes"]) held[cell.dump()] = run["values"][event["value"].get<size_t>()];
  }
  REQUIRE_EQ(held.size(), 16);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string begin = "[" + std::to_string(rank) + ",0,";
    CHECK_EQ(held[begin + "0]"]["numbers"], Json::array({16}));
    CHECK_EQ(held[begin + "1]"]["numbers"], Json::array({20}));
    CHECK_EQ(held[begin + "2]"]["numbers"], Json::array());  // two elements fill two of four blocks
    CHECK_EQ(held[begin + "3]"]["finished"], true);
  }
  CHECK_EQ(run["moves"].size(), 24);
  for (const Json& move : run["moves"]) {
    CHECK_EQ(move["bytes"], (1 << 20) / 4);
    CHECK_EQ(move["phase"], move["begin"] < 3 ? "scatter-reduce" : "all-gather");
    CHECK_LT(move["begin_us"], move["end_us"]);
  }
}

TEST_CASE("windows: loads and stores instead of messages, no times, staging memory as a row") {
  const Json staged = plan_run_json(request_for("all_reduce", "staged", {2}), {});
  CHECK_EQ(staged["rows"], Json::array({"data", "staging"}));
  CHECK_EQ(staged["cost"]["timed"], false);
  CHECK_GT(staged["cost"]["time_us"], 0);
  std::map<std::string, int> kinds;
  for (const Json& move : staged["moves"]) {
    ++kinds[move["kind"].get<std::string>()];
    CHECK_FALSE(move.contains("begin_us"));
    if (move["kind"] == "signal") CHECK_EQ(move["phase"], "barrier");
  }
  CHECK_EQ(kinds, std::map<std::string, int>{{"load", 4}, {"signal", 4}});
  const Json registered = plan_run_json(request_for("all_reduce", "registered", {3}), {});
  kinds.clear();
  for (const Json& move : registered["moves"]) ++kinds[move["kind"].get<std::string>()];
  CHECK_EQ(kinds, std::map<std::string, int>{{"load", 6}, {"signal", 6}, {"store", 6}});
}

TEST_CASE("hosts and world must agree, and names must exist") {
  PlanOptions options;
  options.world = 4;
  options.hosts = {2, 3};
  CHECK_EQ(refusal(options), "--hosts 2,3 has 5 ranks, and --world says 4: leave one of them out");
  options = {};
  options.world = 65;
  CHECK_EQ(refusal(options), "65 ranks: at most 64 are shown");
  options = {};
  options.algorithm = "rings";
  CHECK_NE(refusal(options).find("no algorithm 'rings': one of auto, ring, direct"), std::string::npos);
  options = {};
  options.algorithm = "window";
  CHECK_NE(refusal(options).find("--algorithm window: ranks choose when they run"), std::string::npos);
  options.algorithm = "staged";
  options.hosts = {2, 2};
  CHECK_EQ(refusal(options), "--algorithm staged works inside one host: leave --hosts out");
  CHECK_THROWS_AS(plan_run_json(request_for("all_reduce", "ring", {2}), {1, 65}), Exception);
}

}  // namespace rondo
