#include "tools/plan/plan_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "rondo/config.h"
#include "rondo/error.h"

namespace rondo {
namespace {

constexpr int kDefaultWorld = 4;

template <typename Enum, typename Name>
std::vector<std::string> names(int count, Name name) {
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) list.push_back(name(static_cast<Enum>(i)));
  return list;
}

std::vector<std::string> collectives() { return names<Collective>(kCollectives, collective_name); }
std::vector<std::string> algorithms() { return names<Algorithm>(kAlgorithms, algorithm_name); }

template <typename Enum>
Enum named(const char* what, const std::vector<std::string>& list, const std::string& name) {
  const auto found = std::find(list.begin(), list.end(), name);
  if (found == list.end()) {
    throw Exception(ErrorCode::kInvalid, fmt::format("no {} '{}': one of {}", what, name, fmt::join(list, ", ")));
  }
  return static_cast<Enum>(found - list.begin());
}

// Algorithms that a request cannot name, or not for these hosts. Throws Exception(kInvalid).
void check_algorithm(const PlanRequest& request) {
  const char* name = algorithm_name(request.algorithm);
  if (request.algorithm == Algorithm::kAuto || request.algorithm == Algorithm::kWindow) {
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("--algorithm {}: ranks choose when they run; name one (docs/plans.md, \"Choosing\")", name));
  }
  if (in_island(request.algorithm) && !request.topology.one_host()) {
    throw Exception(ErrorCode::kInvalid, fmt::format("--algorithm {} works inside one host: leave --hosts out", name));
  }
}

}  // namespace

void declare_plan_options(CLI::App& app, PlanOptions& options, int most) {
  app.failure_message([](const CLI::App* program, const CLI::Error& error) {
    return fmt::format("{}: {}\nTry '{} --help'.\n", program->get_name(), error.what(), program->get_name());
  });
  const auto ranks = CLI::Range(1, most);
  app.add_option("--collective", options.collective)->check(CLI::IsMember(collectives()))->capture_default_str();
  app.add_option("--algorithm", options.algorithm)->check(CLI::IsMember(algorithms()))->capture_default_str();
  app.add_option("--world", options.world, "Ranks (4, or the sum of --hosts)")->check(ranks);
  app.add_option("--hosts", options.hosts, "Ranks of each host, in order: 4,4 (one host)")
      ->delimiter(',')
      ->check(ranks);
  app.add_option("--root", options.root, "Where the collective has one (0)")->check(CLI::Range(0, most - 1));
  app.add_flag("--share-memory", options.share_memory,
               "The ranks of a host share memory (always so where the algorithm needs it)");
}

// Ranks are numbered host by host.
PlanRequest request_of(const PlanOptions& options, int most) {
  std::vector<int> hosts = options.hosts;
  if (hosts.empty()) hosts.push_back(options.world == 0 ? kDefaultWorld : options.world);
  const int64_t sum = std::accumulate(hosts.begin(), hosts.end(), int64_t{0});
  if (options.world != 0 && sum != options.world) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("--hosts {} has {} ranks, and --world says {}: leave one of them out",
                                fmt::join(hosts, ","), sum, options.world));
  }
  if (sum > most) throw Exception(ErrorCode::kInvalid, fmt::format("{} ranks: at most {} are shown", sum, most));
  PlanRequest request;
  request.collective = named<Collective>("collective", collectives(), options.collective);
  request.algorithm = named<Algorithm>("algorithm", algorithms(), options.algorithm);
  request.chunks_in_flight = static_cast<int>(Config{}.slices_per_chunk);
  request.root = collective_has_root(request.collective) ? options.root : -1;
  std::vector<int>& host = request.topology.host;
  for (size_t h = 0; h < hosts.size(); ++h) {
    host.insert(host.end(), static_cast<size_t>(hosts[h]), static_cast<int>(h));
  }
  check_algorithm(request);
  if (options.share_memory || in_island(request.algorithm)) request.topology.island = host;
  return request;
}

// Every rank builds its plan from the same request but for its own number: no rank needs another's plan.
std::vector<Plan> plans_of_all(PlanRequest request) {
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < request.topology.world(); ++request.rank) plans.push_back(build_plan(request));
  return plans;
}

SimulationRequest simulation_of(const std::vector<Plan>& plans, const Topology& topology, uint64_t bytes) {
  SimulationRequest request;
  request.bytes = bytes;
  request.slices_per_chunk = std::max(1u, request.slices_per_chunk / plans[0].chunks_in_flight);
  request.topology = topology;
  return request;
}

}  // namespace rondo
