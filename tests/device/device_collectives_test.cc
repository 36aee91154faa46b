// Every collective on device memory gives the reference result on processes: by kernels over the memory of all ranks,
// from registered and from plain buffers and from both, by posts, by the ring, and staged; over a device that is made
// of threads and memory that the host cannot touch, with one queue for all streams.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/device/device_call.h"
#include "tests/device/device_cases.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {
namespace {

void check(const RankGroup& ranks, const std::vector<CollectiveCase>& cases,
           BufferKind kind = BufferKind::kOddRegistered, Taken taken = Taken::kAsKernels) {
  CAPTURE(static_cast<int>(kind));
  check_processes({ranks}, [&](Communicator& group) { run_on_device(group, cases, kind, taken); });
}

std::vector<CollectiveCase> some_shapes(int world) { return all_shapes({world, {1237}, {world / 2}}); }

// A device a rank. pairs: FAKE_CUDA_PEERS.
RankGroup devices_group(int world, const char* pairs) {
  return on_devices(world, small_windows(device_group(world, "shm", {{"FAKE_CUDA_PEERS", pairs}})));
}

}  // namespace

TEST_CASE("every collective, uneven ones too") {
  for (const int world : {1, 2, 3, 4}) {
    const auto cases = all_shapes({world, {0, 1, uint64_t(world + 1), 1237}, {world / 2}});
    check(device_group(world, "tcp"), cases, BufferKind::kPlain, Taken::kStaged);
    for (const BufferKind kind : kKinds) check(registered_group(world), cases, kind);
    check(device_group(world, "shm"), cases);
    check(ring_group(world), cases);
  }
}

TEST_CASE("8 processes") {
  check(device_group(8), all_shapes({8, {777}, {3}}), BufferKind::kPlain);
  check(registered_group(8), all_shapes({8, {777}, {3}}), BufferKind::kPlain);
  check(ring_group(8), all_shapes({8, {1, 9, 1237}, {4}}));
}

TEST_CASE("processes in turn on 2 to 8 devices") {
  for (const int devices : {2, 4}) {
    CAPTURE(devices);
    for (const RankGroup& group :
         {device_group(4), registered_group(4), ring_group(4), small_windows(device_group(4))}) {
      check(on_devices(devices, group), all_shapes({4, {1, 20'000}, {1}}));
    }
    check(on_devices(devices, staged_group(4)), some_shapes(4), BufferKind::kPlain, Taken::kStaged);
  }
  check(on_devices(8, device_group(8)), all_shapes({8, {777}, {3}}));
  check(on_devices(8, registered_group(8)), all_shapes({8, {777}, {3}}));
  check(on_devices(8, ring_group(8)), some_shapes(8));
}

TEST_CASE("every dtype with every op") {
  check(device_group(3), all_reductions(3));
  check(registered_group(3), all_reductions(3));
  check(ring_group(3), all_reductions(3));
}

TEST_CASE("posts up to the longest, of one lane and of all, and of ends of words; one element more") {
  for (const char* blocks : {"1", "400"}) {
    const Settings processors{{"FAKE_CUDA_MULTIPROCESSORS", blocks}};
    for (const DType dtype : {DType::kUint8, DType::kFloat16, DType::kFloat64}) {
      const uint64_t most = kMostPostBytes / dtype_bytes(dtype);
      std::vector<CollectiveCase> cases = all_shapes({3, {1, 2047, most - 1, most, most + 1}, {1}});
      std::erase_if(cases, [](const CollectiveCase& what) { return !what.counts.empty(); });
      for (CollectiveCase& what : cases) what.dtype = dtype;
      check(device_group(3, "shm", processors), cases);
    }
  }
}

TEST_CASE("by posts and over all memory: the same bits") {
  constexpr uint64_t kSeed = 20261128;
  constexpr size_t kCount = 1003;
  check_processes({device_group(5)}, [](Communicator& group) {
    Mirror mirror;
    std::pmr::vector<float> input(kCount, 0, &mirror), posts(kCount, 0, &mirror), passes(kCount, 0, &mirror);
    std::mt19937_64 random(kSeed + static_cast<uint64_t>(group.rank()));
    std::normal_distribution<float> normal(0, 1e3f);
    for (float& value : input) value = normal(random);
    mirror.to_device();
    const auto reduce = [&](std::pmr::vector<float>& output, Algorithm algorithm) {
      group.all_reduce(mirror.image(input.data()), mirror.image(output.data()), kCount, DType::kFloat32, Op::kAverage,
                       {.algorithm = algorithm, .stream = mirror.stream()});
    };
    reduce(posts, Algorithm::kAuto);
    reduce(passes, Algorithm::kRegistered);
    mirror.to_host();
    expect(std::memcmp(posts.data(), passes.data(), sizeof(float) * kCount) == 0,
           "other bits, seed " + std::to_string(kSeed));
  });
}

TEST_CASE("calls of many pieces: kernels, and messages of the ring that take the places in turn") {
  for (const BufferKind kind : kKinds) check(small_windows(device_group(3)), large_shapes(3), kind);
  check(small_windows(ring_group(3)), large_shapes(3));
}

TEST_CASE("staged calls of several pieces of 4 MiB") {
  std::vector<CollectiveCase> cases;
  for (CollectiveCase what : all_shapes({2, {1'400'001}, {1}})) {
    if (what.misalign != 0 || what.in_place != what.counts.empty()) continue;
    what.dtype = DType::kFloat32;
    if (what.counts.empty()) what.count *= 2;
    cases.push_back(what);
  }
  check(staged_group(2), cases, BufferKind::kPlain, Taken::kStaged);
  check(staged_group(2, "tcp"), cases, BufferKind::kPlain, Taken::kStaged);
}

TEST_CASE("no windows; a device shares no memory, maps none, or runs one process; no ring: all ranks stage") {
  if (on_a_gpu()) return;
  for (const RankGroup& ranks : {staged_group(3), device_group(3, "shm", {{"FAKE_CUDA_SHARES", "0", 1}}),
                                 device_group(3, "shm", {{"FAKE_CUDA_IMPORTS", "0", 2}}),
                                 device_group(3, "shm", {{"FAKE_CUDA_MPS", "0"}}), devices_group(3, "01 10 12")}) {
    check(ranks, some_shapes(3), BufferKind::kOddRegistered, Taken::kStaged);
  }
}

TEST_CASE("devices that reach their neighbors only, in the order of ranks or in another: the ring, else staged") {
  if (on_a_gpu()) return;
  for (const char* pairs : {"01 10 12 21 23 32 30 03", "02 20 21 12 13 31 30 03", "03 30 31 13 12 21 20 02 10"}) {
    CAPTURE(std::string(pairs));
    check(devices_group(4, pairs), all_shapes({4, {3, 1237}, {1}}));
    check(devices_group(4, pairs), large_shapes(4));
  }
}

TEST_CASE("processes that use the device one at a time") {
  if (on_a_gpu()) return;
  const TempFolder folder;
  const Settings slices{{"FAKE_CUDA_SLICES", folder.path("slices")}};
  check(device_group(3, "shm", slices), some_shapes(3));
  check(ring_group(3, slices), some_shapes(3));
}

}  // namespace rondo::testing
