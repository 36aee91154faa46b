// plan_dump: prints plans, so that a person can read them and a program can draw them.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "ring/plan/build.h"
#include "ring/plan/describe.h"
#include "ring/plan/simulate.h"
#include "ring/plan/verify.h"
#include "rondo/error.h"
#include "tools/plan/picture.h"
#include "tools/plan/plan_json.h"

namespace {

using namespace rondo;

// Worlds past this print more than anybody reads.
constexpr int kMostRanks = 1024;

struct Options {
  std::string collective = "all_reduce", algorithm = "ring";
  std::vector<int> hosts;
  int world = 0, root = 0, rank = -1, lanes = 1, chunks_in_flight = 4;
  bool share_memory = false, scale_at_source = false, json = false, verify = false;
  uint64_t bytes = 0;
};

template <typename Enum, typename Name>
std::vector<std::string> names(int count, Name name) {
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) list.push_back(name(static_cast<Enum>(i)));
  return list;
}

std::vector<std::string> collectives() { return names<Collective>(kCollectives, collective_name); }
std::vector<std::string> algorithms() { return names<Algorithm>(kAlgorithms, algorithm_name); }

template <typename Enum>
Enum named(const std::vector<std::string>& list, const std::string& name) {
  return static_cast<Enum>(std::find(list.begin(), list.end(), name) - list.begin());
}

void declare(CLI::App& app, Options& options) {
  app.add_option("--collective", options.collective)->check(CLI::IsMember(collectives()))->capture_default_str();
  app.add_option("--algorithm", options.algorithm)->check(CLI::IsMember(algorithms()))->capture_default_str();
  auto* world = app.add_option("--world", options.world, "Ranks")->check(CLI::Range(1, kMostRanks));
  auto* hosts = app.add_option("--hosts", options.hosts, "Ranks of each host instead, in order: 4,4")->delimiter(',');
  world->excludes(hosts);
  app.add_option("--rank", options.rank, "Only the steps of this rank; else of all, and a picture")
      ->check(CLI::Range(0, kMostRanks - 1));
  app.add_option("--root", options.root, "Where the collective has one")->check(CLI::Range(0, kMostRanks - 1));
  app.add_option("--lanes", options.lanes)->check(CLI::Range(1, 16))->capture_default_str();
  app.add_option("--chunks-in-flight", options.chunks_in_flight, "Chunks that a link may hold at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--share-memory", options.share_memory, "The ranks of a host share memory");
  app.add_flag("--scale-at-source", options.scale_at_source, "Each rank scales its own contribution");
  app.add_flag("--json", options.json, "One JSON object a line and rank, instead of words");
  app.add_flag("--verify", options.verify, "Prove the plans; the exit code is 1 if that fails");
  app.add_option("--bytes", options.bytes, "Simulate a call of N bytes by the default cost model");
}

PlanRequest request_of(const Options& options) {
  PlanRequest request;
  request.collective = named<Collective>(collectives(), options.collective);
  request.algorithm = named<Algorithm>(algorithms(), options.algorithm);
  request.lanes = options.lanes;
  request.chunks_in_flight = options.chunks_in_flight;
  request.scale_at_source = options.scale_at_source;
  request.root = collective_has_root(request.collective) ? options.root : -1;
  std::vector<int>& host = request.topology.host;
  host.assign(static_cast<size_t>(options.world), 0);
  for (size_t h = 0; h < options.hosts.size(); ++h) {
    const int ranks = std::clamp(options.hosts[h], 0, kMostRanks);
    host.insert(host.end(), static_cast<size_t>(ranks), static_cast<int>(h));
  }
  if (options.share_memory) request.topology.island = host;
  return request;
}

int dump(const Options& options) {
  PlanRequest request = request_of(options);
  if (request.topology.world() > kMostRanks) throw Exception(ErrorCode::kInvalid, "more than 1024 ranks");
  if (options.rank >= std::max(1, request.topology.world())) {
    throw Exception(ErrorCode::kInvalid, fmt::format("no rank {} in this world", options.rank));
  }
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank == 0 || request.rank < request.topology.world(); ++request.rank) {
    plans.push_back(build_plan(request));
  }
  for (const Plan& plan : plans) {
    if (options.rank >= 0 && plan.rank != options.rank) continue;
    fmt::print("{}", options.json ? plan_json(plan).dump() + "\n" : describe(plan));
  }
  if (options.rank < 0 && !options.json) fmt::print("\n{}", picture(plans));
  if (options.bytes > 0) {
    SimulationRequest simulated;
    simulated.bytes = options.bytes;
    simulated.slices_per_chunk = std::max(1u, simulated.slices_per_chunk / plans[0].chunks_in_flight);
    fmt::print(stderr, "simulated: {:.1f} us for {} bytes\n", simulate(plans, simulated).time_us, options.bytes);
  }
  if (!options.verify) return 0;
  const Verdict verdict = verify(plans, options.scale_at_source ? Scaling::kAtSource : Scaling::kAtFold);
  fmt::print(stderr, "{}\n", verdict.ok ? "proven" : verdict.failure);
  return verdict.ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kUsageError = 2;
  Options options;
  CLI::App app("Prints the plans of a collective.", "plan_dump");
  declare(app, options);
  try {
    app.parse(argc, argv);
    return dump(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  } catch (const Exception& error) {
    fmt::print(stderr, "plan_dump: {}\nTry 'plan_dump --help'.\n", error.what());
    return kUsageError;
  }
}
