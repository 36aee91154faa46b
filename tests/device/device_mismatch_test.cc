// Ranks that make different calls on device memory: every rank hears of it at once, with both calls, nothing is written
// where the caller did not allow it, and the device goes on. Passes over the memory of all ranks, of a ring, and staged
// calls.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory_resource>
#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/mismatch_cases.h"
#include "tests/support/fake_cuda/mirror.h"

namespace rondo::testing {
namespace {

Config device_config(uint64_t window_bytes) {
  Config config = fault_config();
  config.device_library = device_library();
  config.device_window_bytes = window_bytes;
  return config;
}

void run_rank(Here& here, const Mismatch& mismatch) {
  Communicator group = Communicator::join(here.options);
  group.attach_device();
  Mirror mirror;
  const OneCall& one = here.rank() == mismatch.odd_rank ? mismatch.odd : mismatch.usual;
  Guarded input(one.input_bytes(), 1, &mirror), output(one.output_bytes(), 2, &mirror);
  mirror.to_device();
  mirror.synchronize();
  group.barrier();
  here.say("ready");
  here.await();
  Call call = one.on(mirror.image(input.data()), mirror.image(output.data()));
  call.options.stream = mirror.stream();
  here.say(here.timed([&] {
    // A rank that only sends may be done before anybody looks; then its next call fails.
    Work first = group.start(call);
    Work second = group.barrier_async({.stream = mirror.stream()});
    first.wait();
    second.wait();
  }));
  here.say(outcome([&] { group.barrier(); }));
  here.say(group.error() ? describe(*group.error()) : "no error");
  mirror.to_host();  // the device goes on
  const bool reads = one.collective != Collective::kBroadcast;
  here.say((!reads || input.untouched()) && output.intact() ? "intact" : "overrun");
  here.say(here.timed([&] { group.destroy(); }));
}

void check(const Mismatch& mismatch, const Config& config) {
  check_mismatch(
      mismatch, [&](Here& here) { run_rank(here, mismatch); }, config, "on device memory");
}

// The same call of two ranks, with counts that only this pair knows.
void run_uneven(Here& here, uint64_t sends, uint64_t expects) {
  Communicator group = Communicator::join(here.options);
  group.attach_device();
  Mirror mirror;
  std::vector<uint64_t> to(3, 4), from(3, 4);
  if (here.rank() == 0) to[2] = sends;
  if (here.rank() == 2) from[0] = expects;
  Guarded input((8 + to[2]) * 4, 1, &mirror), output((8 + from[0]) * 4, 2, &mirror);
  mirror.to_device();
  mirror.synchronize();
  group.barrier();
  here.say("ready");
  here.await();
  const CallOptions options{.stream = mirror.stream()};
  here.say(here.timed([&] {
    group.all_to_all_v(mirror.image(input.data()), to, {}, mirror.image(output.data()), from, {}, DType::kFloat32,
                       options);
    group.barrier_async(options).wait();
  }));
  mirror.to_host();
  here.say(input.untouched() && output.intact() ? "intact" : "overrun");
}

}  // namespace

TEST_CASE("passes over shared memory: different calls end in the same mismatch on every rank, within a second") {
  const Config config = device_config(Config().device_window_bytes);
  for (const Mismatch& mismatch : mismatches()) check(mismatch, config);
}

TEST_CASE("passes of a ring end in it, too") {
  Config config = device_config(Config().device_window_bytes);
  config.algorithm = Algorithm::kRing;
  const std::vector<Mismatch> all = mismatches();
  for (const size_t i : {0, 1, 2, 4, 7, 9, 13, 16}) check(all[i], config);
}

TEST_CASE("staged calls end in it, too") {
  const std::vector<Mismatch> all = mismatches();
  for (const Mismatch& mismatch : all) {
    // Large calls are staged in pieces, whose counts the message shows.
    if (std::max(mismatch.usual.count, mismatch.odd.count) < 100) check(mismatch, device_config(0));
  }
}

TEST_CASE("uneven counts that only a pair knows are compared by the pair") {
  for (const auto& counts : std::vector<std::pair<uint64_t, uint64_t>>{{10, 12}, {300'000, 100'000}, {5, 0}}) {
    const uint64_t sends = counts.first, expects = counts.second;
    CAPTURE(sends);
    CAPTURE(expects);
    Job job;
    job.start(
        3, [&](Here& here) { run_uneven(here, sends, expects); }, device_config(Config().device_window_bytes));
    expect_pair_mismatch(job);
  }
}

TEST_CASE("a rank that sleeps in recv on a stream where the others are in a collective") {
  Job job;
  job.start(
      3,
      [&](Here& here) {
        Communicator group = Communicator::join(here.options);
        group.attach_device();
        Mirror mirror;
        std::pmr::vector<float> values(1 << 20, 1, &mirror);
        mirror.to_device();
        mirror.synchronize();
        group.barrier();
        here.say("ready");
        here.await();
        void* const data = mirror.image(values.data());
        const CallOptions options{.stream = mirror.stream()};
        here.say(here.timed([&] {
          if (here.rank() == 1) return void(group.recv(data, values.size(), DType::kFloat32, 2, 5, options));
          group.all_reduce_async(data, data, values.size(), DType::kFloat32, Op::kSum, options).wait();
        }));
        mirror.synchronize();
      },
      device_config(Config().device_window_bytes));
  expect_sleeper_mismatch(job, false);
}

}  // namespace rondo::testing
