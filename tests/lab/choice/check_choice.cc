// check_choice: measures what the library chooses beside each way to run the same calls that gives the same bits
// (tests/lab/README.md).
//   rondo-run -n 4 check_choice [rondo-bench options]    none: kDefaults

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/loop/buffers.h"
#include "bench/loop/sizes.h"
#include "bench/options.h"
#include "bench/rondo_group.h"
#include "ring/plan/build.h"
#include "ring/plan/fold_class.h"
#include "rondo/communicator.h"
#include "rondo/error.h"
#include "tests/lab/choice/choice.h"

namespace rondo::bench {
namespace {

using Clock = std::chrono::steady_clock;

const std::vector<std::string> kDefaults{"--sizes", "4K,16K,64K,256K,1M,4M,16M,64M", "--collective",
                                         "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all"};
constexpr int kRounds = 40;
constexpr double kBlockUs = 2000;
constexpr uint32_t kFirstCalls = 200;
// A way that takes so much longer than what is chosen is no candidate: it is left out, to save time.
constexpr double kHopeless = 4;
constexpr double kMostRatio = 1.10, kMostRatioNoisy = 1.25, kMostFirst = 1.5;

// One case: a collective and a size.
class ChoiceCase {
 public:
  ChoiceCase(Communicator& communicator, const Options& options, Benchmark benchmark, uint64_t bytes)
      : communicator_(communicator),
        options_(options),
        collective_(*benchmark_collective(benchmark)),
        extent_(extent_of(benchmark, bytes, DType::kFloat32, communicator.size())),
        auto_(communicator, calls_of(Algorithm::kAuto)),
        buffers_(auto_, exercise_of(benchmark), extent_) {}

  struct Result {
    std::string chosen;
    ChoiceVerdict verdict;
    double first_ratio = 0;  // of the first 200 calls, to the best
  };
  Result run() {
    buffers_.refill();
    chosen_at_first_ = algorithm();
    const double first_us = block_us(auto_, kFirstCalls);
    const std::vector<Route> routes = routes_beside(first_us);
    RouteTimes chosen{"auto", {}};
    std::vector<RouteTimes> times;
    for (const Route& route : routes) times.push_back({algorithm_name(route.algorithm), {}});
    for (int round = 0; round < kRounds; ++round) {
      chosen.us.push_back(block_us(auto_, operations_of(first_us)));
      for (size_t i = 0; i < routes.size(); ++i) {
        times[i].us.push_back(block_us(*routes[i].group, operations_of(routes[i].us)));
      }
    }
    Result result;
    result.chosen = algorithm_name(algorithm());
    result.verdict = judge_choice(chosen, times);
    result.first_ratio = first_us / result.verdict.best_us;
    return result;
  }

 private:
  struct Route {
    Algorithm algorithm = Algorithm::kAuto;
    std::unique_ptr<RondoGroup> group;
    double us = 0;
  };

  RondoCalls calls_of(Algorithm algorithm) const {
    return {.algorithm = algorithm, .buffers = options_.buffers, .blocking = options_.blocking};
  }
  Exercise exercise_of(Benchmark benchmark) const {
    Exercise exercise;
    exercise.benchmark = benchmark;
    exercise.world = communicator_.size();
    const bool in_place =
        benchmark_has(benchmark, Placement::kInPlace) && !benchmark_has(benchmark, Placement::kOutOfPlace);
    exercise.placement = in_place ? Placement::kInPlace : Placement::kOutOfPlace;
    return exercise;
  }
  Algorithm algorithm() const {
    return communicator_.algorithm_for(collective_, extent_.count, DType::kFloat32, Op::kSum,
                                       options_.buffers == BufferKind::kRegistered);
  }
  static uint32_t operations_of(double us) {
    return static_cast<uint32_t>(std::clamp(std::ceil(kBlockUs / std::max(us, 0.01)), 1.0, 1e5));
  }

  // Microseconds of one operation, on the slowest rank; the same on all ranks.
  double block_us(RondoGroup& group, uint32_t operations) {
    group.barrier();
    const auto begin = Clock::now();
    for (uint32_t i = 0; i < operations; ++i) group.run(buffers_.call(i));
    return group.max(std::chrono::duration<double, std::micro>(Clock::now() - begin).count()) / operations;
  }

  // Those that give the same bits, work here, and are not hopeless.
  std::vector<Route> routes_beside(double auto_us) {
    std::vector<Route> routes;
    for (int i = 1; i < kAlgorithms; ++i) {
      Route route{static_cast<Algorithm>(i), nullptr, 0};
      const bool candidate = route.algorithm != Algorithm::kWindow &&
                             plan_available(collective_, route.algorithm, communicator_.topology()) &&
                             fold_alike(collective_, route.algorithm, chosen_at_first_, communicator_.size());
      if (!candidate || (route.algorithm == Algorithm::kRegistered && options_.buffers == BufferKind::kPlain)) continue;
      route.group = std::make_unique<RondoGroup>(communicator_, calls_of(route.algorithm));
      try {
        block_us(*route.group, 2);  // what is made at first use
        route.us = block_us(*route.group, operations_of(auto_us));
      } catch (const Exception& refused) {
        if (refused.code() != ErrorCode::kInvalid) throw;
        continue;  // on all ranks alike: the kernel does not let ranks read each other's memory
      }
      if (routes.empty() || route.us < kHopeless * auto_us) routes.push_back(std::move(route));
    }
    return routes;
  }

  Communicator& communicator_;
  const Options& options_;
  const Collective collective_;
  const Extent extent_;
  RondoGroup auto_;
  Buffers buffers_;
  Algorithm chosen_at_first_ = Algorithm::kAuto;
};

// Where what is measured changes more from block to block.
bool is_noisy(const Communicator& communicator) {
  const Topology& topology = communicator.topology();
  return !topology.one_island() || crowded(topology, communicator.rank(), communicator.size());
}

void print_row(Benchmark benchmark, uint64_t bytes, const ChoiceCase::Result& result, bool missed) {
  fmt::print("{:<15} {:>8} {:>18} {:>10.1f} {:>18} {:>10.1f} {:>7.2f} {:>9.2f}{}\n", benchmark_name(benchmark),
             size_text(bytes), result.chosen, result.verdict.chosen_us, result.verdict.best, result.verdict.best_us,
             result.verdict.ratio, result.first_ratio, missed ? "  missed" : "");
  std::fflush(stdout);
}

// Collective; rank 0 prints a line for each collective and size. Returns 1 on all ranks if a bound is missed.
int check_choices(Communicator& communicator, const Options& options) {
  const bool speaks = communicator.rank() == 0;
  const double most = is_noisy(communicator) ? kMostRatioNoisy : kMostRatio;
  if (speaks) {
    fmt::print("# {} ranks; auto / best at most {:.2f}, first {} calls {:.1f}\n", communicator.size(), most,
               kFirstCalls, kMostFirst);
    fmt::print("# {:<13} {:>8} {:>18} {:>10} {:>18} {:>10} {:>7} {:>9}\n", "collective", "size", "auto", "us", "best",
               "us", "ratio", "first");
  }
  communicator.barrier();
  int missed = 0;
  for (const Benchmark benchmark : options.benchmarks) {
    if (!benchmark_collective(benchmark) || benchmark == Benchmark::kBarrier) continue;
    for (const uint64_t bytes : options.sizes) {
      const ChoiceCase::Result result = ChoiceCase(communicator, options, benchmark, bytes).run();
      const bool misses = result.verdict.ratio > most || result.first_ratio > kMostFirst;
      missed += misses ? 1 : 0;
      if (speaks) print_row(benchmark, bytes, result, misses);
    }
  }
  if (speaks) fmt::print("# {} missed\n", missed);
  return missed > 0 ? 1 : 0;
}

int run(const std::vector<std::string>& args) {
  const std::variant<Options, Stop> parsed = parse_options(args.empty() ? kDefaults : args);
  if (const Stop* stop = std::get_if<Stop>(&parsed)) {
    std::fputs(stop->text.c_str(), stderr);
    return stop->code;
  }
  const auto& options = std::get<Options>(parsed);
  JoinOptions join;
  join.config.timeout_ms = options.timeout_ms;
  Communicator communicator = Communicator::join(join);
  const int code = check_choices(communicator, options);
  communicator.destroy();
  return code;
}

}  // namespace

}  // namespace rondo::bench

int main(int argc, char** argv) {
  try {
    return rondo::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check_choice: %s\n", error.what());
    return 1;
  }
}
