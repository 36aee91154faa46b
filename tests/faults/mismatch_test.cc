// Ranks that make different calls: every rank hears of it at once, with both calls, and nothing is written where the
// caller did not allow it.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/mismatch_cases.h"

namespace rondo::testing {
TEST_CASE("fault 39: different collective calls end in the same mismatch on every rank, within a second") {
  for (const Mismatch& mismatch : mismatches()) check_mismatch(mismatch);
}

TEST_CASE("asynchronous calls end in it too, and those behind them") {
  const auto all = mismatches();
  for (const size_t i : {0, 2, 9}) check_mismatch(all[i], Form::kAsync);
}

TEST_CASE("a rank that sleeps in send or recv where the others are in a collective is a mismatch") {
  // Proves: two blocking calls that wait for each other for ever end within a second, naming both.
  for (const bool sends : {false, true}) check_sleeper_mismatch(sends);
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
  check_pair_mismatch(10, 12);
  check_pair_mismatch(12, 10);
  check_pair_mismatch(300'000, 100'000);
  check_pair_mismatch(100'000, 300'000);
  check_pair_mismatch(0, 5);
  check_pair_mismatch(5, 0);
}

}  // namespace rondo::testing
