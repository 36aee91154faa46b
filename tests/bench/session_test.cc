#include "bench/session.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "bench/cases.h"
#include "rondo/error.h"
#include "tests/bench/thread_group.h"

namespace rondo::bench {
namespace {

Options quick() {
  Options options;
  options.sizes = {64};
  options.effort = {.warmup = 1, .iterations = 10};
  return options;
}

struct Heard {
  std::vector<Row> rows;
  std::vector<Line> lines;
};

Heard run(const Options& options, int world, const Limits& limits = {},
          ThreadWorld::Fault fault = ThreadWorld::Fault::kNone) {
  Heard heard;
  ThreadWorld threads(world, fault);
  const SessionSetup setup{"memory", limits};
  threads.run([&](Group& group) {
    const SessionEvents events{nullptr, [&](const Case&, const Line& line) { heard.lines.push_back(line); }};
    std::vector<Row> rows = run_session(group, options, setup, events);
    if (group.rank() == 0) {
      heard.rows = std::move(rows);
    } else {
      CHECK(rows.empty());
    }
  });
  return heard;
}

// Every batch takes 1000 us, and 400 us of each rank's processor.
class FixedTimes : public Group {
 public:
  explicit FixedTimes(Group& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void run(const Call& call) override { group_.run(call); }
  std::string algorithm(const Call& call) const override { return group_.algorithm(call); }
  void barrier() override { group_.barrier(); }
  double max(double) override { return 1000; }
  uint64_t sum(uint64_t) override { return 400'000 * static_cast<uint64_t>(group_.size()); }

 private:
  Group& group_;
};

TEST_CASE("a ping-pong's time is of one way; its processor time is of all that the ranks sent") {
  Options options = quick();
  options.benchmarks = {Benchmark::kSendRecv, Benchmark::kPingPong};
  options.effort.check = false;
  std::vector<Row> rows;
  ThreadWorld threads(2);
  threads.run([&](Group& group) {
    FixedTimes fixed(group);
    std::vector<Row> own = run_session(fixed, options, {"memory", {}}, {});
    if (group.rank() == 0) rows = std::move(own);
  });
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].time_us == 1000);
  CHECK(rows[1].time_us == 500);
  CHECK(rows[1].max_us == 500);
  CHECK(rows[1].busbw_gbps == rows[1].algbw_gbps);
  CHECK(rows[1].cpu_s_per_gb.value() == rows[0].cpu_s_per_gb.value());
}

TEST_CASE("every benchmark gives its rows, 0 wrong, and one line a size") {
  Options options = quick();
  options.benchmarks.clear();
  for (int i = 0; i < kBenchmarks; ++i) options.benchmarks.push_back(static_cast<Benchmark>(i));
  const Heard heard = run(options, 4);
  CHECK(heard.lines.size() == kBenchmarks);
  CHECK(heard.rows.size() == 6 * 2 + 6);  // broadcast, all_to_all, barrier and messages have one placement
  std::set<std::string> names;
  for (const Row& row : heard.rows) {
    names.insert(row.collective);
    CHECK(row.wrong == 0);
    CHECK(row.world == 4);
    CHECK(row.transport == "memory");
    CHECK(row.algorithm == "definition");
    CHECK(row.time_us > 0);
    CHECK(row.min_us <= row.p50_us);
    CHECK(row.p50_us <= row.p99_us);
    CHECK(row.p99_us <= row.max_us);
  }
  CHECK(names.size() == kBenchmarks);
}

TEST_CASE("rates follow from the time by nccl-tests' formulas, and the share from the limit") {
  Options options = quick();
  options.sizes = {4096};
  Limits limits;
  limits.raise({4, 4096, 8.0, ""});
  const Heard heard = run(options, 4, limits);
  REQUIRE(heard.rows.size() == 2);
  for (const Row& row : heard.rows) {
    CHECK(row.algbw_gbps == doctest::Approx(4096.0 / row.time_us / 1000));
    CHECK(row.busbw_gbps == doctest::Approx(row.algbw_gbps * 1.5));
    CHECK(row.limit_gbps == 8.0);
    CHECK(row.share_of_limit.value() == doctest::Approx(row.busbw_gbps / 8.0));
  }
}

TEST_CASE("wrong results are counted in the row; without checking there is no count") {
  Options options = quick();
  const Heard bad = run(options, 2, {}, ThreadWorld::Fault::kFlippedBit);
  CHECK(bad.rows.at(0).wrong.value() > 0);
  options.effort.check = false;
  const Heard unchecked = run(options, 2, {}, ThreadWorld::Fault::kFlippedBit);
  CHECK_FALSE(unchecked.rows.at(0).wrong.has_value());
}

TEST_CASE("a row says how the calls were made") {
  Options options = quick();
  CHECK(run(options, 2).rows.at(0).calls == "blocking");
  options.blocking = false;
  CHECK(run(options, 2).rows.at(0).calls == "async");
}

TEST_CASE("-m: so many operations in one list, checked, and the time is of one of them") {
  Options options = quick();
  options.aggregate = 3;
  const Heard heard = run(options, 2);
  REQUIRE(heard.rows.size() == 2);
  for (const Row& row : heard.rows) {
    CHECK(row.bytes == 64);
    CHECK(row.wrong == 0);
    CHECK(row.algbw_gbps == doctest::Approx(64 / row.time_us / 1000));
  }
  CHECK(run(options, 2, {}, ThreadWorld::Fault::kFlippedBit).rows.at(0).wrong.value() > 0);
}

TEST_CASE("cases: undefined pairs are left out, operations belong to reductions only, -r -1 is every root") {
  Options options = quick();
  options.dtypes = {DType::kFloat32, DType::kInt32};
  options.ops = {Op::kSum, Op::kBitAnd};
  CHECK(cases_of(options, 2).size() == 3);  // band of float32 is undefined
  options.benchmarks = {Benchmark::kAllGather};
  CHECK(cases_of(options, 2).size() == 2);
  options.benchmarks = {Benchmark::kBroadcast};
  options.root = -1;
  CHECK(cases_of(options, 4).size() == 8);
  options.root = 4;
  CHECK_THROWS_AS(cases_of(options, 4), Exception);
  options.root = 0;
  options.placements = {Placement::kInPlace};
  options.benchmarks = {Benchmark::kAllGather, Benchmark::kAllToAll, Benchmark::kBarrier};
  CHECK(cases_of(options, 2).size() == 2);  // all_to_all and barrier have nothing in place
  options.benchmarks = {Benchmark::kAllToAll};
  CHECK_THROWS_AS(cases_of(options, 2), Exception);
}

TEST_CASE("what this world cannot run is an error where it is named, and left out of all") {
  Options options = quick();
  options.benchmarks = {Benchmark::kBarrier, Benchmark::kSendRecv};
  CHECK(cases_of(options, 2).size() == 2);
  CHECK_THROWS_WITH_AS(cases_of(options, 1), "--collective sendrecv: needs 2 ranks or more, not 1; start 2 (--ranks 2)",
                       Exception);
  options.all_benchmarks = true;
  CHECK(cases_of(options, 1).size() == 1);
  options.benchmarks = {Benchmark::kSendRecv, Benchmark::kPingPong};
  CHECK(cases_of(options, 3).size() == 1);
  options.all_benchmarks = false;
  CHECK(cases_of(options, 4).size() == 2);
  CHECK_THROWS_WITH_AS(cases_of(options, 3),
                       "--collective pingpong: needs an even number of ranks, not 3; start 4 (--ranks 4)", Exception);
  options.benchmarks = {Benchmark::kPingPong};
  CHECK_THROWS_WITH_AS(cases_of(options, 1),
                       "--collective pingpong: needs an even number of ranks, not 1; start 2 (--ranks 2)", Exception);
}

TEST_CASE("only large rows of TCP between ranks that all send and receive have a bandwidth limit") {
  Options options = quick();
  options.sizes = {8, 1 << 20, 4 << 20, 1 << 20};
  CHECK(limited_sizes(options, 2).empty());
  for (const char* transport : {"auto", "shm"}) {
    options.transport = transport;
    CHECK(limited_sizes(options, 2).empty());
  }
  options.transport = "tcp";
  CHECK(limited_sizes(options, 2) == std::vector<uint64_t>{1 << 20, 4 << 20});
  CHECK(limited_sizes(options, 1).empty());
  options.benchmarks = {Benchmark::kBroadcast};
  CHECK(limited_sizes(options, 2).empty());
  options.benchmarks = {Benchmark::kAllReduce};
  options.inproc = true;
  CHECK(limited_sizes(options, 2).empty());
  options.transport = "tcp";
  options.limit = false;
  CHECK(limited_sizes(options, 2).empty());
}

}  // namespace
}  // namespace rondo::bench
