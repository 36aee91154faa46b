// Ranks that differ in the op alone, where they may: every reduction goes on by every algorithm, and each rank folds by
// its own op; its log says so once. What else differs is a mismatch, as ever.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "ring/plan/build.h"
#include "rondo/communicator.h"
#include "tests/engine/said.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// Ops that make one of ones, in whatever order several of them fold.
constexpr Op kOnes[] = {Op::kProduct, Op::kMin, Op::kMax, Op::kBitAnd, Op::kBitOr, Op::kLogicalAnd, Op::kLogicalOr};

struct Turn {
  Collective collective = Collective::kAllReduce;
  uint64_t count = 1;
  Algorithm algorithm = Algorithm::kAuto;
  Op op = Op::kMax;
  int root = 0;
};

void reduce(Communicator& group, const Turn& turn) {
  const bool scatters = turn.collective == Collective::kReduceScatter, rooted = turn.collective == Collective::kReduce;
  std::vector<int32_t> in(turn.count * static_cast<uint64_t>(scatters ? group.size() : 1), 1), out(turn.count);
  Call call{.collective = turn.collective,
            .input = in.data(),
            .output = out.data(),
            .count = turn.count,
            .dtype = DType::kInt32,
            .op = turn.op,
            .root = rooted ? turn.root : -1};
  call.options.algorithm = turn.algorithm;
  call.options.any_op = true;
  if (turn.count % 2 == 0) {
    group.start(call).wait();
  } else {
    group.run(call);
  }
  if (rooted && group.rank() != turn.root) return;
  if (turn.collective == Collective::kExscan && group.rank() == 0) return;
  expect(std::all_of(out.begin(), out.end(), [](int32_t value) { return value == 1; }), [&] {
    return fmt::format("{} of {} by {}: wrong on rank {}", collective_name(turn.collective), turn.count,
                       algorithm_name(turn.algorithm), group.rank());
  });
}

void reduce_by_all(Communicator& group) {
  size_t turn = static_cast<size_t>(group.rank());
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce,
                                      Collective::kScan, Collective::kExscan}) {
    for (int a = 0; a < kAlgorithms; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      const bool known =
          algorithm == Algorithm::kAuto || (plan_available(collective, algorithm, group.topology()) &&
                                            algorithm != Algorithm::kRegistered && algorithm != Algorithm::kPull);
      for (const uint64_t count : {0u, 1u, 1000u, 100'001u}) {
        if (known) reduce(group, {collective, count, algorithm, kOnes[turn++ % std::size(kOnes)], a % group.size()});
      }
    }
  }
  // Rank 0 repeats its call, the others change theirs: what ranks count in common does not depend on the op.
  for (int i = 0; i < 100; ++i) {
    const uint64_t count = i % 3 == 0 ? 300'000 : 10;
    reduce(group, {.count = count, .op = group.rank() == 0 ? Op::kMax : kOnes[turn++ % std::size(kOnes)]});
  }
}

// Reduces as lists and in batches, whose tensors run together by what the ranks agree on: rank 0 repeats its op.
void reduce_together(Communicator& group) {
  size_t turn = static_cast<size_t>(group.rank());
  const auto op = [&] { return group.rank() == 0 ? Op::kMax : kOnes[turn++ % std::size(kOnes)]; };
  CallOptions options;
  options.any_op = true;
  for (int i = 0; i < 10; ++i) {
    std::vector<int32_t> tensors[] = {std::vector<int32_t>(10, 1), std::vector<int32_t>(100'000, 1),
                                      std::vector<int32_t>(20, 1), std::vector<int32_t>(30, 1)};
    std::vector<TensorRef> list;
    for (auto& tensor : tensors) list.push_back({tensor.data(), tensor.data(), tensor.size(), DType::kInt32});
    group.all_reduce_many(list, op(), options);
    group.batch_begin();
    group.all_reduce_many(std::span(list).first(2), op(), options);
    for (const TensorRef& tensor : std::span(list).last(2)) {
      group.all_reduce(tensor.input, tensor.output, tensor.count, tensor.dtype, op(), options);
    }
    group.batch_end();
    for (const auto& tensor : tensors) {
      expect(std::ranges::count(tensor, 1) == std::ssize(tensor), "wrong in a list or a batch");
    }
  }
}

// The error of a call that this rank makes with `op`, and another one with another.
ErrorCode refused(Communicator& group, Op op, bool any_op) {
  uint8_t value = 1;
  CallOptions options;
  options.any_op = any_op;
  if (op == Op::kUser) options.user = {[](const void*, void*, size_t, void*) {}, nullptr, 1, false};
  return code_of([&] { group.all_reduce(&value, &value, 1, DType::kUint8, op, options); });
}

}  // namespace

TEST_CASE("ranks that differ in the op alone go on, each by its own, and the log says it once") {
  RankGroup shape{.world = 3};
  shape.config.debug = "warn";
  CHECK(run_over_both(shape, [](Communicator& group) {
          const Said said;
          reduce_by_all(group);
          reduce_together(group);
          const std::string text = said.text();
          const size_t at = text.find("each rank folds by its own");
          expect(at != std::string::npos && text.find("each rank folds by its own", at + 1) == std::string::npos,
                 "not said once: " + text);
        }) == "");
}

TEST_CASE("an op that is not the library's, that scales, or that need not be any one, is a mismatch") {
  struct Pair {
    Op op, other;
    bool any_op = true;
  };
  for (const Pair& pair : {Pair{Op::kMax, Op::kUser}, {Op::kSum, Op::kAverage}, {Op::kMax, Op::kMin, false}}) {
    CAPTURE(op_name(pair.other));
    CHECK(run_threads(RankGroup{.world = 2}, [&](Communicator& group) {
            const ErrorCode code = refused(group, group.rank() == 0 ? pair.op : pair.other, pair.any_op);
            expect(code == ErrorCode::kMismatch, error_code_name(code));
          }) == "");
  }
}

}  // namespace rondo::testing
