// device_lanes [RANKS [MiB [LANES...]]]: when the lanes of an all_reduce begin, have run their passes and leave, and on
// which multiprocessors: of ranks on one GPU, each with a stream and a kernel of so many lanes, as those of threads.
// Prints rows of a table, in microseconds since the first lane of all began: the first and last lane, and every tenth
// of them between; and how many multiprocessors have so many lanes.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "kernels/device/gpu_lane.h"

namespace rondo::testing {
namespace {

constexpr int kCalls = 10;  // the last one is looked at

struct LaneTimes {
  uint64_t begin, end, leave;  // nanoseconds of the GPU's clock
  uint32_t multiprocessor;
};

// Notes when it has run its passes: it counts itself as left then.
struct TimedLane : GpuLane<int(DType::kFloat32)> {
  uint64_t* end;
  __device__ __forceinline__ uint32_t add_left(uint32_t* word) const {
    *end = now();
    return GpuLane::add_left(word);
  }
};

__global__ void __launch_bounds__(kThreadsABlock, kBlocksAMultiprocessor)
    timed_call(const __grid_constant__ DeviceCall call, LaneTimes* times) {
  __shared__ LaneState state;
  LaneTimes& own = times[blockIdx.x];
  TimedLane machine;
  machine.end = &own.end;
  if (threadIdx.x == 0) {
    own.begin = machine.now();
    asm volatile("mov.u32 %0, %%smid;" : "=r"(own.multiprocessor));
  }
  CallLane<TimedLane>(machine, call, state).run();
  if (threadIdx.x == 0) own.leave = machine.now();
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "device_lanes: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <class T>
T* device_memory(size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)), "allocating device memory");
  check(cudaMemset(memory, 0, count * sizeof(T)), "zeroing it");
  return static_cast<T*>(memory);
}

struct Rank {
  DeviceControl* control = device_memory<DeviceControl>(1);
  float *input, *output;
  LaneTimes* times = device_memory<LaneTimes>(kMaxLanes);
  CallStatus* status = nullptr;
  cudaStream_t stream = nullptr;

  explicit Rank(size_t count) : input(device_memory<float>(count)), output(device_memory<float>(count)) {
    check(cudaHostAlloc(reinterpret_cast<void**>(&status), sizeof(CallStatus), cudaHostAllocMapped), "host memory");
    *status = {};
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  }
};

// Each rank sums its block of the memory of all, and writes it to all.
DeviceCall call_of(const std::vector<Rank>& ranks, size_t own, size_t count, uint32_t number) {
  const size_t world = ranks.size();
  DeviceCall call = {};
  for (size_t r = 0; r < world; ++r) call.controls[r] = ranks[r].control;
  call.status = ranks[own].status;
  call.limit_ns = 5'000'000'000;
  for (uint64_t& print : call.prints) print = 7;
  call.arguments = {1, 1};
  call.number = number;
  call.rank = static_cast<uint8_t>(own);
  call.world = static_cast<uint8_t>(world);
  call.dtype = static_cast<uint8_t>(DType::kFloat32);
  const auto peers = static_cast<uint16_t>(((1u << world) - 1) & ~(1u << own));
  for (const uint8_t word : {0, 1}) {
    if (word == 1) call.steps[call.step_count++].kind = CallStep::kPass;
    for (const uint8_t kind : {CallStep::kSignal, CallStep::kAwait}) {
      call.steps[call.step_count++] = {kind, word, peers, 0};
    }
  }
  const size_t block = count / world;
  call.passes[0].count = block;
  call.passes[0].source_count = call.passes[0].target_count = static_cast<uint8_t>(world);
  call.passes[0].fold = static_cast<uint8_t>(Fold::kSum);
  for (size_t r = 0; r < world; ++r) {
    call.refs[r].offset = reinterpret_cast<uintptr_t>(ranks[r].input + own * block);
    call.refs[world + r].offset = reinterpret_cast<uintptr_t>(ranks[r].output + own * block);
  }
  return call;
}

void print_row(const std::string& name, std::vector<uint64_t> times, uint64_t first) {
  std::ranges::sort(times);
  std::printf("| %s |", name.c_str());
  for (size_t tenth = 0; tenth <= 10; ++tenth) {
    std::printf(" %.1f |", 1e-3 * double(times[(times.size() - 1) * tenth / 10] - first));
  }
  std::printf("\n");
}

void run(std::vector<Rank>& ranks, size_t count, unsigned lanes, size_t mebibytes, uint32_t& number) {
  for (int i = 0; i < kCalls; ++i) {
    ++number;
    for (size_t r = 0; r < ranks.size(); ++r) {
      timed_call<<<lanes, kThreadsABlock, 0, ranks[r].stream>>>(call_of(ranks, r, count, number), ranks[r].times);
      check(cudaGetLastError(), "launching a kernel");
    }
    for (const Rank& rank : ranks) check(cudaStreamSynchronize(rank.stream), "waiting for a kernel");
  }
  std::vector<uint64_t> begin, end, leave;
  std::map<uint32_t, int> lanes_on;
  for (const Rank& rank : ranks) {
    if (rank.status->failure != 0) {
      std::fprintf(stderr, "device_lanes: the kernels of %u lanes do not meet (%u)\n", lanes, rank.status->failure);
      std::exit(1);
    }
    std::vector<LaneTimes> times(lanes);
    check(cudaMemcpy(times.data(), rank.times, lanes * sizeof(LaneTimes), cudaMemcpyDeviceToHost), "copying times");
    for (const LaneTimes& lane : times) {
      begin.push_back(lane.begin);
      end.push_back(lane.end);
      leave.push_back(lane.leave);
      ++lanes_on[lane.multiprocessor];
    }
  }
  const uint64_t first = std::ranges::min(begin);
  const std::string name = std::to_string(ranks.size()) + " ranks, " + std::to_string(mebibytes) + " MiB, " +
                           std::to_string(lanes) + " lanes: ";
  print_row(name + "begin", begin, first);
  print_row(name + "end", end, first);
  print_row(name + "leave", leave, first);
  std::map<int, int> with;
  for (const auto& on : lanes_on) ++with[on.second];
  std::string text;
  for (const auto& on : with) text += ", " + std::to_string(on.second) + " with " + std::to_string(on.first);
  std::printf("# %smultiprocessors%s\n", name.c_str(), text.c_str());
}

int main_of(int count, char** arguments) {
  const auto argument = [&](int index, int otherwise) {
    return index < count ? std::atoi(arguments[index]) : otherwise;
  };
  const int world = argument(1, 4), mebibytes = argument(2, 64);
  if (world < 2 || world > kMaxDeviceRanks || mebibytes < 1) {
    std::fprintf(stderr, "usage: device_lanes [RANKS [MiB [LANES...]]]: 2 to %d ranks\n", kMaxDeviceRanks);
    return 2;
  }
  std::vector<Rank> ranks;
  const size_t elements = (size_t(mebibytes) << 20) / sizeof(float);
  for (int r = 0; r < world; ++r) ranks.emplace_back(elements);
  check(cudaDeviceSynchronize(), "zeroing memory");
  uint32_t number = 0;
  for (int i = 3; i < std::max(count, 4); ++i) {
    const int lanes = std::clamp(argument(i, 32), 1, int(kMaxLanes));
    run(ranks, elements, static_cast<unsigned>(lanes), static_cast<size_t>(mebibytes), number);
  }
  return 0;
}

}  // namespace
}  // namespace rondo::testing

int main(int count, char** arguments) { return rondo::testing::main_of(count, arguments); }
