// device_graphs RANKS BYTES...: microseconds of an all_reduce of float32 in place, on registered memory, in a graph of
// 100: the median of 20 replays. Ranks are processes, on the devices in turn. Over the fake driver it only shows that
// it runs.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/device_rates.h"
#include "bench/loop/statistics.h"
#include "tests/device/graph.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr int kCalls = 100, kReplays = 20;

double microseconds(Communicator& group, const Mirror& mirror, void* data, uint64_t bytes) {
  bench::DeviceRates rates(mirror.driver(), mirror.device(), mirror.stream());
  const Mirror captured;
  Graph graph(captured.stream());
  graph.record([&] {
    for (int i = 0; i < kCalls; ++i) {
      group.all_reduce(data, data, bytes / sizeof(float), DType::kFloat32, Op::kSum, {.stream = captured.stream()});
    }
  });
  std::vector<double> times;
  for (int replay = -1; replay < kReplays; ++replay) {
    group.barrier();
    rates.start();
    graph.replay(mirror.stream());
    const double seconds = rates.stop();
    if (replay >= 0) times.push_back(1e6 * seconds / kCalls);
  }
  group.barrier();  // of no rank is a call under way
  return bench::median(times);
}

int run(int world, const std::vector<uint64_t>& sizes) {
  RankGroup ranks{.world = world};
  ranks.config.device_library = device_library();
  ranks.before = [](int rank) {
    const auto driver = DeviceDriver::open(device_library());
    driver->check(driver->use(rank % driver->count()), "use");
  };
  const std::string wrong = run_processes(ranks, [&](Communicator& group) {
    for (const uint64_t bytes : sizes) {
      void* const data = group.allocate(bytes, Memory::kDevice);
      const Mirror mirror;
      const double found = microseconds(group, mirror, data, bytes);
      if (group.rank() == 0) std::printf(" %llu %.2f graph\n", static_cast<unsigned long long>(bytes), found);
    }
    std::fflush(stdout);
  });
  std::fprintf(stderr, "%s", wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace rondo::testing

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: device_graphs RANKS BYTES...\n");
    return 2;
  }
  std::vector<uint64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  return rondo::testing::run(std::atoi(argv[1]), sizes);
}
