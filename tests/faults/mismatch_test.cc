// Ranks that make different calls: every rank hears of it at once, with both calls, and nothing is written where the
// caller did not allow it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/faults/ranks.h"
#include "tests/support/collective_call.h"

namespace rondo::testing {
namespace {

constexpr int kWorld = 4;
// A second is promised; the machine that runs the tests may have fewer cores than ranks.
constexpr int64_t kSoonMs = 2'000;
constexpr uint64_t kSmall = 40;
constexpr uint64_t kLarge = 3 << 20;

struct OneCall {
  Collective collective = Collective::kAllReduce;
  uint64_t count = kSmall;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int root = 0;
  std::string text;  // how the message shows it
};

struct Mismatch {
  const char* what;
  OneCall usual;
  OneCall odd;
  int odd_rank = 1;
};

const OneCall kSmallSum{.text = "all_reduce(count=40, float32, sum, "};
const OneCall kLargeSum{.count = kLarge, .text = "all_reduce(count=3145728, float32, sum, "};

std::vector<Mismatch> mismatches() {
  using enum Collective;
  return {
      {"count, both small", kSmallSum, {.count = 39, .text = "all_reduce(count=39, float32, sum, "}, 0},
      {"count, both large", kLargeSum, {.count = kLarge - 7, .text = "all_reduce(count=3145721, float32, sum, "}, 3},
      {"count, large among small", kSmallSum, kLargeSum, 2},
      {"count, small among large", kLargeSum, kSmallSum, 1},
      {"count 0 among some", kLargeSum, {.count = 0, .text = "all_reduce(count=0, float32, sum, "}, 1},
      {"some among count 0", {.count = 0, .text = "all_reduce(count=0, float32, sum, "}, kSmallSum, 1},
      {"dtype", kLargeSum, {.count = kLarge, .dtype = DType::kInt32, .text = "all_reduce(count=3145728, int32, sum, "}},
      {"dtype of another size", kSmallSum, {.dtype = DType::kFloat64, .text = "all_reduce(count=40, float64, sum, "}},
      {"op", kLargeSum, {.count = kLarge, .op = Op::kMax, .text = "all_reduce(count=3145728, float32, max, "}},
      {"root of a broadcast",
       {.collective = kBroadcast, .count = kLarge, .text = "broadcast(count=3145728, float32, root=0, "},
       {.collective = kBroadcast, .count = kLarge, .root = 2, .text = "broadcast(count=3145728, float32, root=2, "}},
      {"root of a small reduce",
       {.collective = kReduce, .text = "reduce(count=40, float32, sum, root=0, "},
       {.collective = kReduce, .root = 3, .text = "reduce(count=40, float32, sum, root=3, "},
       2},
      {"root of a gather",
       {.collective = kGather, .text = "gather(count=40, float32, root=0, "},
       {.collective = kGather, .root = 1, .text = "gather(count=40, float32, root=1, "},
       3},
      {"a broadcast",
       kLargeSum,
       {.collective = kBroadcast, .count = kLarge, .text = "broadcast(count=3145728, float32, "}},
      {"a barrier", kLargeSum, {.collective = kBarrier, .text = "barrier()"}},
      {"a barrier among small calls", kSmallSum, {.collective = kBarrier, .text = "barrier()"}},
      {"a call among barriers", {.collective = kBarrier, .text = "barrier()"}, kSmallSum, 2},
      {"gather against scatter",
       {.collective = kAllGather, .text = "all_gather(count=40, float32, "},
       {.collective = kReduceScatter, .text = "reduce_scatter(count=40, float32, sum, "}},
      {"block size of an all_to_all",
       {.collective = kAllToAll, .count = 50'000, .text = "all_to_all(count=50000, float32, "},
       {.collective = kAllToAll, .count = 60'000, .text = "all_to_all(count=60000, float32, "}},
  };
}

size_t blocks_of(Collective collective, bool output) {
  using enum Collective;
  const bool in = collective == kReduceScatter || collective == kAllToAll || collective == kScatter;
  const bool out = collective == kAllGather || collective == kAllToAll || collective == kGather;
  return (output ? out : in) ? kWorld : 1;
}

CollectiveCall call_of(const OneCall& one, Guarded& input, Guarded& output) {
  CollectiveCall call;
  call.collective = one.collective;
  call.input = one.collective == Collective::kBroadcast ? output.data() : input.data();
  call.output = output.data();
  call.count = one.count;
  call.dtype = one.dtype;
  call.op = one.op;
  call.root = one.root;
  return call;
}

void run_rank(Here& here, const Mismatch& mismatch, bool async) {
  Communicator group = Communicator::join(here.options);
  group.barrier();
  here.say("ready");  // all have left the barrier before one fails: it would fail there too
  here.await();
  const OneCall& one = here.rank() == mismatch.odd_rank ? mismatch.odd : mismatch.usual;
  const size_t element = one.dtype == DType::kFloat64 ? 8 : 4;
  Guarded input(one.count * element * blocks_of(one.collective, false), 1);
  Guarded output(one.count * element * blocks_of(one.collective, true), 2);
  const CollectiveCall call = call_of(one, input, output);
  here.say(here.timed([&] {
    // A rank that only sends may be done before anybody looks; then its next call fails.
    if (!async) return run(group, call), group.barrier();
    Work first = start(group, call);
    Work second = start(group, call);  // not made by all alike either: fails with the first
    const std::string late = outcome([&] { second.wait(); });
    if (late.find("MISMATCH") != 0) throw Exception(ErrorCode::kInternal, "the second Work: " + late);
    first.wait();
  }));
  here.say(outcome([&] { group.barrier(); }));
  here.say(group.error() ? describe(*group.error()) : "no error");
  here.say(input.untouched() && output.intact() ? "intact" : "overrun");
  here.say(here.timed([&] { group.destroy(); }));
}

// Both calls, each beside a rank that made it.
void check_message(const Timed& said, const Mismatch& mismatch) {
  CAPTURE(said.outcome);
  CHECK(said.elapsed_ms >= 0);
  CHECK(said.elapsed_ms < kSoonMs);
  CHECK(said.begins("MISMATCH ["));
  CHECK(said.has("called " + mismatch.usual.text));
  CHECK(said.has("called " + mismatch.odd.text));
  CHECK(said.has(fmt::format("rank {} (host ", mismatch.odd_rank)));
}

void check(const Mismatch& mismatch, bool async) {
  const std::string what = mismatch.what;
  CAPTURE(what);
  CAPTURE(async);
  Job job;
  job.start(kWorld, [&](Here& here) { run_rank(here, mismatch, async); });
  job.expect_all("ready");
  job.tell_all("go");
  for (int rank = 0; rank < kWorld; ++rank) {
    CAPTURE(rank);
    const Timed said = timed_line(job[rank].hear());
    check_message(said, mismatch);
    CHECK(job[rank].hear() == said.outcome);
    CHECK(job[rank].hear() == said.outcome);
    CHECK(job[rank].hear() == "intact");
    const Timed destroyed = timed_line(job[rank].hear());
    CHECK(destroyed.outcome == "ok");
    CHECK(destroyed.elapsed_ms < kSoonMs);
  }
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
    job.expect_all("ready");
    job.tell_all("go");
    for (int rank = 0; rank < 3; ++rank) {
      const Timed said = timed_line(job[rank].hear());
      CAPTURE(said.outcome);
      CHECK(said.begins("MISMATCH ["));
      CHECK(said.elapsed_ms < kSoonMs);
      CHECK(said.has("called all_reduce(count=1048576, float32, sum, "));
      CHECK(said.has(sends ? "waits in send(4194304 bytes to rank 2, tag 5)"
                           : "waits in recv(4194304 bytes from rank 2, tag 5)"));
    }
  }
}

TEST_CASE("a call that repeats an earlier one is named as itself, whatever was called between") {
  // Proves: the short way of a repeated call tells the others what it is, and not what a list in between was.
  Job job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
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
    CHECK(said.has("called " + kSmallSum.text));
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
    job.expect_all("ready");
    job.tell_all("go");
    for (int rank = 0; rank < 3; ++rank) {
      CAPTURE(rank);
      const Timed said = timed_line(job[rank].hear());
      CAPTURE(said.outcome);
      CHECK(said.begins("MISMATCH ["));
      CHECK(said.elapsed_ms < kSoonMs);
      CHECK(job[rank].hear() == "intact");
    }
  }
}

}  // namespace rondo::testing
