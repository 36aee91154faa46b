// Ranks that make different calls: every rank hears of it at once, with both calls, and nothing is written where the
// caller did not allow it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/mismatch_cases.h"

namespace rondo::testing {
namespace {

void run_rank(Here& here, const Mismatch& mismatch, bool async) {
  Communicator group = Communicator::join(here.options);
  group.barrier();
  here.say("ready");  // all have left the barrier before one fails: it would fail there too
  here.await();
  const OneCall& one = here.rank() == mismatch.odd_rank ? mismatch.odd : mismatch.usual;
  Guarded input(one.input_bytes(), 1), output(one.output_bytes(), 2);
  const Call call = one.on(input.data(), output.data());
  here.say(here.timed([&] {
    // A rank that only sends may be done before anybody looks; then its next call fails.
    if (!async) return group.run(call), group.barrier();
    Work first = group.start(call);
    Work second = group.start(call);  // not made by all alike either: fails with the first
    const std::string late = outcome([&] { second.wait(); });
    if (late.find("MISMATCH") != 0) throw Exception(ErrorCode::kInternal, "the second Work: " + late);
    first.wait();
  }));
  here.say(outcome([&] { group.barrier(); }));
  here.say(group.error() ? describe(*group.error()) : "no error");
  here.say(input.untouched() && output.intact() ? "intact" : "overrun");
  here.say(here.timed([&] { group.destroy(); }));
}

void check(const Mismatch& mismatch, bool async) {
  CAPTURE(async);
  check_mismatch(mismatch, [&](Here& here) { run_rank(here, mismatch, async); });
}

}  // namespace

TEST_CASE("fault 39: different collective calls end in the same mismatch on every rank, within a second") {
  for (const Mismatch& mismatch : mismatches()) check(mismatch, false);
}

TEST_CASE("asynchronous calls end in it too, and those behind them") {
  const auto all = mismatches();
  for (const size_t i : {0, 2, 9}) check(all[i], true);
}

TEST_CASE("a rank that sleeps in send or recv where the others are in a collective is a mismatch") {
  // Proves: two blocking calls that wait for each other for ever end within a second, naming both.
  for (const bool sends : {false, true}) {
    CAPTURE(sends);
    Job job;
    job.start(3, [&](Here& here) {
      Communicator group = Communicator::join(here.options);
      std::vector<float> values(1 << 20, 1);
      here.say("ready");
      here.await();
      here.say(here.timed([&] {
        if (here.rank() != 1) return group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32);
        if (sends) return group.send(values.data(), values.size(), DType::kFloat32, 2, 5);
        group.recv(values.data(), values.size(), DType::kFloat32, 2, 5);
      }));
    });
    expect_sleeper_mismatch(job, sends);
  }
}

TEST_CASE("a call that repeats an earlier one is named as itself, whatever was called between") {
  // Proves: the short way of a repeated call tells the others what it is, and not what a list in between was.
  Job job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    constexpr uint64_t kSmall = 40;
    std::vector<float> values(kSmall, 1), others(2 * kSmall, 1);
    const auto sum = [&] { group.all_reduce(values.data(), values.data(), kSmall, DType::kFloat32); };
    sum();
    sum();
    const TensorRef list[] = {{others.data(), others.data(), 7}, {others.data() + kSmall, others.data() + kSmall, 9}};
    group.all_reduce_many(list);
    here.say("ready");
    here.await();
    here.say(here.timed([&] {
      if (here.rank() == 0) return sum();
      group.barrier();
    }));
  });
  job.expect_all("ready");
  job.tell_all("go");
  for (int rank = 0; rank < 2; ++rank) {
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("MISMATCH ["));
    CHECK(said.has("called " + std::string("all_reduce(count=40, float32, sum, ")));
    CHECK(said.has("called barrier()"));
  }
}

TEST_CASE("fault 39: uneven counts that only a pair knows are compared by the pair") {
  // Proves: neither a longer, nor a shorter, nor an empty block on one side passes, or is written beyond its place.
  struct Pair {
    uint64_t sends, expects;
  };
  for (const Pair pair : {Pair{10, 12}, {12, 10}, {300'000, 100'000}, {100'000, 300'000}, {0, 5}, {5, 0}}) {
    CAPTURE(pair.sends);
    CAPTURE(pair.expects);
    Job job;
    job.start(3, [&](Here& here) {
      Communicator group = Communicator::join(here.options);
      std::vector<uint64_t> to(3, 4), from(3, 4);
      if (here.rank() == 0) to[2] = pair.sends;
      if (here.rank() == 2) from[0] = pair.expects;
      Guarded input((8 + to[2]) * 4, 1), output((8 + from[0]) * 4, 2);
      here.say("ready");
      here.await();
      here.say(here.timed([&] {
        group.all_to_all_v(input.data(), to, {}, output.data(), from, {}, DType::kFloat32);
        group.barrier();
      }));
      here.say(input.untouched() && output.intact() ? "intact" : "overrun");
    });
    expect_pair_mismatch(job);
  }
}

}  // namespace rondo::testing
