#include "tests/faults/mismatch_cases.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace rondo::testing {
namespace {

constexpr uint64_t kLarge = 3 << 20;

const OneCall kSmallSum{.text = "all_reduce(count=40, float32, sum, "};
const OneCall kLargeSum{.count = kLarge, .text = "all_reduce(count=3145728, float32, sum, "};

size_t blocks_of(Collective collective, bool output) {
  using enum Collective;
  const bool in = collective == kReduceScatter || collective == kAllToAll || collective == kScatter;
  const bool out = collective == kAllGather || collective == kAllToAll || collective == kGather;
  return (output ? out : in) ? kMismatchWorld : 1;
}

void run_mismatch(Here& here, const Mismatch& mismatch, Form form, const MismatchRanks& ranks) {
  Communicator group = Communicator::join(here.options);
  const auto memory = ranks.memory(group);
  const OneCall& one = here.rank() == mismatch.odd_rank ? mismatch.odd : mismatch.usual;
  Guarded input(one.input_bytes(), 1, memory->resource()), output(one.output_bytes(), 2, memory->resource());
  memory->to_calls();
  Call call = one.on(memory->place(input.data()), memory->place(output.data()));
  call.options.stream = memory->stream();
  group.barrier();
  here.say("ready");  // all have left the barrier before one fails: it would fail there too
  here.await();
  here.say(here.timed([&] {
    // A rank that only sends may be done before anybody looks; then its next call fails.
    if (form == Form::kBlocking) return group.run(call), memory->finish(group);
    Work first = group.start(call);
    Work second = group.start(call);  // not made by all alike either: fails with the first
    const std::string late = outcome([&] { second.wait(); });
    if (late.find("MISMATCH") != 0) throw Exception(ErrorCode::kInternal, "the second Work: " + late);
    first.wait();
  }));
  here.say(outcome([&] { group.barrier(); }));
  here.say(group.error() ? describe(*group.error()) : "no error");
  memory->from_calls();
  here.say(input.untouched() && output.intact() ? "intact" : "overrun");
  here.say(here.timed([&] { group.destroy(); }));
}

void run_pair(Here& here, uint64_t sends, uint64_t expects, const MismatchRanks& ranks) {
  Communicator group = Communicator::join(here.options);
  const auto memory = ranks.memory(group);
  std::vector<uint64_t> to(3, 4), from(3, 4);
  if (here.rank() == 0) to[2] = sends;
  if (here.rank() == 2) from[0] = expects;
  Guarded input((8 + to[2]) * 4, 1, memory->resource()), output((8 + from[0]) * 4, 2, memory->resource());
  memory->to_calls();
  here.say("ready");
  here.await();
  here.say(here.timed([&] {
    group.all_to_all_v(memory->place(input.data()), to, {}, memory->place(output.data()), from, {}, DType::kFloat32,
                       {.stream = memory->stream()});
    memory->finish(group);
  }));
  memory->from_calls();
  here.say(input.untouched() && output.intact() ? "intact" : "overrun");
}

void run_sleeper(Here& here, bool sends, const MismatchRanks& ranks) {
  Communicator group = Communicator::join(here.options);
  const auto memory = ranks.memory(group);
  std::pmr::vector<float> values(1 << 20, 1, memory->resource());
  memory->to_calls();
  here.say("ready");
  here.await();
  void* const data = memory->place(values.data());
  const CallOptions options{.stream = memory->stream()};
  here.say(here.timed([&] {
    if (here.rank() == 1 && sends) return group.send(data, values.size(), DType::kFloat32, 2, 5, options);
    if (here.rank() == 1) return void(group.recv(data, values.size(), DType::kFloat32, 2, 5, options));
    group.all_reduce(data, data, values.size(), DType::kFloat32, Op::kSum, options);
    memory->finish(group);
  }));
  memory->from_calls();
}

}  // namespace

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
      {"an algorithm that was asked for",
       {.options = {.algorithm = Algorithm::kRing},
        .text = "all_reduce(count=40, float32, sum, ring, algorithm=\"ring\")"},
       {.options = {.algorithm = Algorithm::kOneShot},
        .text = "all_reduce(count=40, float32, sum, one_shot, algorithm=\"one_shot\")"}},
      {"an algorithm that one rank alone asked for",
       kSmallSum,
       {.options = {.algorithm = Algorithm::kOneShot},
        .text = "all_reduce(count=40, float32, sum, one_shot, algorithm=\"one_shot\")"}},
      {"the purpose of a library's call",
       kSmallSum,
       {.options = {.purpose = static_cast<Purpose>(300)}, .text = "purpose 300: all_reduce(count=40, float32, sum, "}},
      {"block size of an all_to_all",
       {.collective = kAllToAll, .count = 50'000, .text = "all_to_all(count=50000, float32, "},
       {.collective = kAllToAll, .count = 60'000, .text = "all_to_all(count=60000, float32, "}},
  };
}

uint64_t OneCall::input_bytes() const { return count * dtype_bytes(dtype) * blocks_of(collective, false); }
uint64_t OneCall::output_bytes() const { return count * dtype_bytes(dtype) * blocks_of(collective, true); }

Call OneCall::on(const void* input, void* output) const {
  Call call;
  call.collective = collective;
  call.input = collective == Collective::kBroadcast ? output : input;
  call.output = output;
  call.count = count;
  call.dtype = dtype;
  call.op = op;
  call.root = root;
  call.options = options;
  return call;
}

void check_mismatch(const Mismatch& mismatch, Form form, const MismatchRanks& ranks) {
  const std::string what = mismatch.what;
  CAPTURE(what);
  CAPTURE(static_cast<int>(form));
  Job job;
  job.start(
      kMismatchWorld, [&](Here& here) { run_mismatch(here, mismatch, form, ranks); }, ranks.config);
  job.expect_all("ready");
  job.tell_all("go");
  for (int rank = 0; rank < kMismatchWorld; ++rank) {
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(rank);
    CAPTURE(said.outcome);
    CHECK(said.elapsed_ms >= 0);
    check_within(39, said.elapsed_ms, kSoonMs);
    CHECK(said.begins("MISMATCH ["));
    CHECK(said.has("called " + mismatch.usual.text));
    CHECK(said.has("called " + mismatch.odd.text));
    CHECK(said.has(fmt::format("rank {} (host ", mismatch.odd_rank)));
    CHECK(said.has(ranks.also));
    CHECK(job[rank].hear() == said.outcome);
    CHECK(job[rank].hear() == said.outcome);
    CHECK(job[rank].hear() == "intact");
    const Timed destroyed = timed_line(job[rank].hear());
    CHECK(destroyed.outcome == "ok");
    CHECK(destroyed.elapsed_ms < kSoonMs);
  }
}

void check_pair_mismatch(uint64_t sends, uint64_t expects, const MismatchRanks& ranks) {
  CAPTURE(sends);
  CAPTURE(expects);
  Job job;
  job.start(
      3, [&](Here& here) { run_pair(here, sends, expects, ranks); }, ranks.config);
  job.expect_all("ready");
  job.tell_all("go");
  for (int rank = 0; rank < job.world(); ++rank) {
    CAPTURE(rank);
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("MISMATCH ["));
    check_within(39, said.elapsed_ms, kSoonMs);
    CHECK(job[rank].hear() == "intact");
  }
}

void check_sleeper_mismatch(bool sends, const MismatchRanks& ranks) {
  CAPTURE(sends);
  Job job;
  job.start(
      3, [&](Here& here) { run_sleeper(here, sends, ranks); }, ranks.config);
  job.expect_all("ready");
  job.tell_all("go");
  for (int rank = 0; rank < job.world(); ++rank) {
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("MISMATCH ["));
    CHECK(said.elapsed_ms < kSoonMs);
    CHECK(said.has("called all_reduce(count=1048576, float32, sum, "));
    CHECK(said.has(sends ? "waits in send(4194304 bytes to rank 2, tag 5)"
                         : "waits in recv(4194304 bytes from rank 2, tag 5)"));
  }
}

}  // namespace rondo::testing
