#include "bench/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <exception>
#include <thread>

#include "bench/calibrate_run.h"
#include "bench/cases.h"
#include "bench/children.h"
#include "bench/limit_source.h"
#include "bench/reporter.h"
#include "bench/rondo_group.h"
#include "rondo/communicator.h"
#include "transport/rendezvous/launch.h"

namespace rondo::bench {
namespace {

constexpr double kForever = 1e8;           // seconds; operations have deadlines of their own
constexpr double kRemeasureSeconds = 300;  // some 10 s for each size
constexpr int64_t kLimitWaitMs = 180'000;  // the other ranks' patience with rank 0 while it measures the limits
constexpr size_t kLongestSocketPath = 90;  // sockaddr_un has 108 bytes

Config config_of(const Options& options) {
  Config config = Config::from_environment();
  if (!options.transport.empty()) config.transport = options.transport;
  if (options.lanes > 0) config.lanes = options.lanes;
  if (options.connections > 0) config.connections = options.connections;
  config.timeout_ms = options.timeout_ms;
  config.start_timeout_ms = options.timeout_ms;
  const bool measures = options.limit != Options::LimitUse::kNone && config.transport == "tcp";
  if (measures) config.start_timeout_ms += kLimitWaitMs;
  return config;
}

Limits limits_now(Options options, const Machine& machine, const LimitCache& cache, int world) {
  options.transport = config_of(options).transport;
  Progress progress;
  try {
    return obtain_limits(cache, options.limit, world, limited_sizes(options, world), machine,
                         [&](const std::string& text) { progress.show(text); });
  } catch (const Exception& error) {
    progress.clear();
    fmt::print(stderr, "rondo-bench: shares of the limit are left out: {}\n", error.what());
    return cache.load();
  }
}

// In a process of its own, since this one has threads by now.
std::optional<Limits> remeasure_limits(const LimitCache& cache, int world, const std::vector<uint64_t>& sizes,
                                       Options::LimitUse use) {
  const bool sweeps = use == Options::LimitUse::kRemeasure;
  Children children;
  children.start({own_program(),
                  {"--limit-only", sweeps ? "--remeasure-limit" : "--limit", "--ranks", std::to_string(world),
                   "--sizes", fmt::format("{}", fmt::join(sizes, ",")), "--limit-cache", cache.path()},
                  {},
                  "/dev/null"});
  if (children.wait(kRemeasureSeconds) != 0) return std::nullopt;
  return cache.load();
}

std::string rendezvous_in(const PrivateDirectory& directory) {
  const std::string path = directory.path() + "/store";
  return (path.size() <= kLongestSocketPath ? "unix://" : "file://") + path;
}

// Where this process stands, from the options or from its launcher.
JoinOptions join_options(const Options& options, const Launch& launch, const Config& config) {
  JoinOptions join;
  join.config = config;
  if (options.spawned_rank < 0) return join;
  join.rank = launch.place.rank;
  join.world = launch.place.world;
  join.rendezvous = options.rendezvous;
  join.job_id = options.rendezvous;
  return join;
}

Launch launch_of(const Options& options, const Config& config) {
  if (options.spawned_rank < 0) {
    try {
      return find_launch({}, config);
    } catch (const Exception& error) {
      throw Exception(error.code(), fmt::format("{} (or start ranks here: --ranks N)", error.what()));
    }
  }
  Launch launch;
  launch.place.rank = options.spawned_rank;
  launch.place.world = options.ranks;
  launch.one_host = true;
  return launch;
}

}  // namespace

int start_ranks(const Options& options, const Machine& machine, const std::vector<std::string>& args) {
  cases_of(options, options.ranks);  // a bad request fails once, here
  const PrivateDirectory directory;
  const LimitCache cache = open_cache(options, machine, directory.path() + "/limits.json");
  limits_now(options, machine, cache, options.ranks);
  Children children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    Children::Program program{own_program(), args, {}, ""};
    program.args.insert(program.args.end(),
                        {"--spawned-rank", std::to_string(rank), "--rendezvous", rendezvous_in(directory),
                         "--load-average", fmt::format("{}", machine.load_average)});
    if (options.limit_cache.empty()) program.args.insert(program.args.end(), {"--limit-cache", cache.path()});
    const std::string world = std::to_string(options.ranks);
    program.environment = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", world},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"LOCAL_WORLD_SIZE", world}};
    children.start(program);
  }
  const int code = children.wait(kForever);
  if (code > 128 && !children.interrupted()) {
    fmt::print(stderr, "rondo-bench: a rank was ended by signal {} ({}); the others were stopped\n", code - 128,
               strsignal(code - 128));
  }
  return code;
}

int run_inproc(const Options& options, const Machine& machine) {
  cases_of(options, options.ranks);
  std::vector<Communicator> communicators = Communicator::inproc(options.ranks, config_of(options));
  Reporter reporter(options, machine, options.ranks);
  reporter.begin("inproc");
  const SessionSetup setup{"inproc", {}};
  std::vector<std::exception_ptr> failures(communicators.size());
  std::vector<Row> rows;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        RondoGroup group(communicators[rank], options.algorithm, options.buffers, options.fused);
        std::vector<Row> own = run_session(group, options, setup, rank == 0 ? reporter.events() : SessionEvents{});
        if (rank == 0) rows = std::move(own);
      } catch (...) {
        failures[rank] = std::current_exception();
        communicators[rank].abort("another rank of the bench failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return reporter.finish(std::move(rows), {}, [](const auto&, auto) { return std::nullopt; });
}

int run_rank(const Options& options, const Machine& machine) {
  const Config config = config_of(options);
  const Launch launch = launch_of(options, config);
  const bool speaks = launch.place.rank == 0;
  const int world = launch.place.world;
  const LimitCache cache = open_cache(options, machine, "");
  SessionSetup setup{config.transport, {}};
  // The limits are those of TCP: "auto" may share memory.
  if (speaks && config.transport == "tcp" && launch.one_host && options.limit != Options::LimitUse::kNone) {
    // What start_ranks() could measure is in the cache by now.
    setup.limits = options.spawned_rank >= 0 ? cache.load() : limits_now(options, machine, cache, world);
  }
  const bool calibrates = !options.calibrate.empty();
  const CostModel base = calibrates && speaks ? calibration_base(options.calibrate) : CostModel{};
  Communicator communicator = Communicator::join(join_options(options, launch, config));
  if (calibrates) {
    const int code = run_calibration(communicator, options, base);
    communicator.destroy();
    return code;
  }
  Reporter reporter(options, machine, world);
  if (speaks) reporter.begin(setup.transport);
  RondoGroup group(communicator, options.algorithm, options.buffers, options.fused);
  std::vector<Row> rows = run_session(group, options, setup, speaks ? reporter.events() : SessionEvents{});
  communicator.destroy();
  if (!speaks) return 0;
  return reporter.finish(std::move(rows), setup.limits, [&](const std::vector<uint64_t>& sizes, Options::LimitUse use) {
    return remeasure_limits(cache, world, sizes, use);
  });
}

}  // namespace rondo::bench
