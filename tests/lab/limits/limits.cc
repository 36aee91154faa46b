// What bars compare with beyond what rondo-bench itself shows. It forks and spins, and prints a line of JSON.
//   limits walk --ranks N --sizes S          {"gbps": ...}: the best that raw TCP does through the whole buffer
//   limits fused-pass --ranks N --sizes S    {"us": ...}: one pass over memory that the ranks share
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "bench/limit/limit.h"
#include "bench/limit/processes.h"
#include "bench/options.h"
#include "bench/output/files.h"
#include "kernels/combine.h"

namespace rondo::bench {
namespace {

constexpr double kSeconds = 0.2;  // some forty passes over 64 MiB

void fold_share(std::byte* memory, int rank, int world, uint64_t bytes) {
  const uint64_t elements = bytes / sizeof(float);
  const uint64_t begin = elements * static_cast<uint64_t>(rank) / static_cast<uint64_t>(world);
  const uint64_t end = elements * static_cast<uint64_t>(rank + 1) / static_cast<uint64_t>(world);
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (int i = 0; i < world; ++i) {
    std::byte* const at = memory + static_cast<uint64_t>(i) * bytes + begin * sizeof(float);
    sources.push_back(at);
    targets.push_back(at);
  }
  const auto count = static_cast<uint8_t>(world);
  combine({DType::kFloat32, Op::kSum, 1.0, 1}, {sources.data(), targets.data(), 0, count, count, false}, end - begin);
}

// What an all_reduce over memory that all ranks map cannot beat: `world` processes, each of which folds its share of
// `bytes` from all ranks' buffers (float32 sums) and writes it to all of them, in one pass of the library's own kernel;
// microseconds, from a meeting of all until the slowest one is done, the median of several passes.
// Forks. Throws Exception(kSystem).
double fused_pass_us(int world, uint64_t bytes) {
  const SharedArea result(sizeof(double)), memory(bytes * static_cast<uint64_t>(world));
  auto& us = *new (result.get()) double{};
  run_in_processes(world, [&](Measurer& process) {
    std::memset(memory.get() + static_cast<uint64_t>(process.rank()) * bytes, 0, bytes);
    us = process.batch_us(kSeconds, 0.5, [&] { fold_share(memory.get(), process.rank(), world, bytes); });
  });
  return us;
}

std::string answer(const std::vector<std::string>& args) {
  const std::string name = args.empty() ? "" : args.front();
  const std::variant<Options, Stop> parsed = parse_options({args.begin() + (args.empty() ? 0 : 1), args.end()});
  if (const Stop* stop = std::get_if<Stop>(&parsed)) throw std::invalid_argument(stop->text);
  const auto& options = std::get<Options>(parsed);
  const bool known = name == "walk" || name == "fused-pass";
  if (!known || options.ranks < 2 || options.sizes.size() != 1) {
    throw std::invalid_argument("limits walk | fused-pass --ranks N --sizes S");
  }
  const uint64_t bytes = options.sizes.front();
  if (name == "walk") return json_of(measure_stream_limit(options.ranks, bytes, Memory::kWalk));
  return json_of_time(fused_pass_us(options.ranks, bytes));
}

}  // namespace
}  // namespace rondo::bench

int main(int argc, char** argv) {
  try {
    std::puts(rondo::bench::answer({argv + 1, argv + argc}).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "limits: %s\n", error.what());
    return 1;
  }
}
