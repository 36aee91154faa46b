// Processes over TCP whose links send everything from the caller's memory (MSG_ZEROCOPY): sums are exact, though
// buffers change as soon as a call returns.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/collective_call.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// Small ones take long: loopback acknowledges after 40 ms what is no whole segment of 64 KiB.
constexpr int kRounds = 3;

RankGroup group_of(int world, uint32_t connections) {
  RankGroup group;
  group.world = world;
  group.config.transport = "tcp";
  group.config.connections = connections;
  group.config.zerocopy_bytes = 1;
  group.config.zerocopy_always = true;
  return group;
}

// Small whole numbers, whose sums are exact; others in every round.
float value_of(int rank, int round, uint64_t i) {
  return static_cast<float>((i * 7 + static_cast<uint64_t>(rank) * 13 + static_cast<uint64_t>(round) * 31) % 101);
}

void check_sum(const Communicator& group, int round, const std::vector<float>& sums) {
  for (uint64_t i = 0; i < sums.size(); ++i) {
    float sum = 0;
    for (int rank = 0; rank < group.size(); ++rank) sum += value_of(rank, round, i);
    expect(sums[i] == sum, [&] {
      return fmt::format("round {}: element {} of {} is {}, not {}", round, i, sums.size(), sums[i], sum);
    });
  }
}

// Buffers are overwritten at once, with what no sum of the next round contains.
void sum_in_rounds(Communicator& group, uint64_t count, Algorithm algorithm) {
  std::vector<float> input(count), output(count), sums;
  for (int round = 0; round < kRounds; ++round) {
    const bool in_place = round % 2 == 0;
    for (uint64_t i = 0; i < count; ++i) input[i] = value_of(group.rank(), round, i);
    float* to = in_place ? input.data() : output.data();
    group.all_reduce(input.data(), to, count, DType::kFloat32, Op::kSum, {.algorithm = algorithm});
    sums.assign(to, to + count);
    std::fill(input.begin(), input.end(), -1e9f);
    std::fill(output.begin(), output.end(), -1e9f);
    check_sum(group, round, sums);
  }
}

}  // namespace

TEST_CASE("all_reduce from the callers' memory is exact in worlds 2 and 4, small and large") {
  // Proves: no step overwrites, and no call gives back, memory that the kernel has yet to send.
  for (const int world : {2, 4}) {
    CAPTURE(world);
    CHECK(run_processes(group_of(world, world == 2 ? 1 : 3), [](Communicator& group) {
            for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
              for (const uint64_t count : {1, 1'000, 100'003, 1 << 20}) sum_in_rounds(group, count, algorithm);
            }
          }) == "");
  }
}

TEST_CASE("after a failure the caller's memory is its own, while others still read") {
  // Proves: a rank whose call has failed may write to its buffers: the others have the right sums or an error.
  CHECK(run_processes(group_of(3, 1), [](Communicator& group) {
          std::vector<float> data(4 << 20);
          for (uint64_t i = 0; i < data.size(); ++i) data[i] = value_of(group.rank(), 0, i);
          CollectiveCall call;
          call.input = call.output = data.data();
          call.count = data.size();
          std::string said;
          try {
            group.barrier();  // most are about to call; who is slow meets the abort before its call
            Work work = start(group, call);
            if (group.rank() == 1) group.abort("enough");
            work.wait();
          } catch (const Exception& failure) {
            said = error_code_name(failure.code());
          }
          if (said.empty()) {
            check_sum(group, 0, data);
          } else {
            expect(said == "ABORTED", said);
            std::fill(data.begin(), data.end(), -1e9f);
          }
        }) == "");
}

TEST_CASE("threads of messages beside it: sends and receives copy, as ever") {
  // Proves: a message's buffer is free when its send returns.
  CHECK(run_processes(group_of(2, 1), [](Communicator& group) {
          const int other = 1 - group.rank();
          std::vector<float> out(300'000), in(300'000);
          for (int round = 0; round < kRounds; ++round) {
            for (uint64_t i = 0; i < out.size(); ++i) out[i] = value_of(group.rank(), round, i);
            group.sendrecv(out.data(), out.size(), other, in.data(), in.size(), other, DType::kFloat32);
            std::fill(out.begin(), out.end(), -1e9f);
            for (uint64_t i = 0; i < in.size(); ++i) expect(in[i] == value_of(other, round, i), "a wrong element");
          }
        }) == "");
}

}  // namespace rondo::testing
