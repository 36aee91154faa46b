// Lists of all_reduces and batches of every collective with messages give the reference results: between processes, and
// on threads.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <vector>

#include "rondo/communicator.h"
#include "tests/engine/cases.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// Buckets so small that lists of a few kilobytes fill several.
constexpr uint64_t kTestBucketBytes = 16 * 1024;

constexpr std::array kOps{Op::kSum, Op::kMin, Op::kMax, Op::kAverage};
constexpr std::array kTypes{DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kFloat64, DType::kBfloat16};

CollectiveCase all_reduce_case(Random& random, Op op, int world) {
  CollectiveCase one;
  one.dtype = kTypes[random.below(kTypes.size())];
  one.op = op;
  one.world = world;
  const uint64_t most = random.chance(20) ? 3 * kTestBucketBytes : 500;
  one.count = random.chance(10) ? 0 : random.below(most);
  one.in_place = random.chance(50);
  one.misalign = random.below(3);
  one.seed = random.next();
  return one;
}

// A message between each pair, half of them too long to be sent before they are asked for.
class Messages {
 public:
  Messages(Communicator& group, uint64_t seed) : group_(group) {
    for (int peer = 0; peer < group.size(); ++peer) {
      const size_t count = (seed + static_cast<size_t>(peer + group.rank())) % 2 == 0 ? 7 : 40'000;
      sent_.emplace_back(count, 100 * group.rank() + peer);
      received_.emplace_back(count, -1);
    }
  }

  void send_all() {
    for (int peer = 0; peer < group_.size(); ++peer) {
      const auto& out = sent_[static_cast<size_t>(peer)];
      if (peer != group_.rank()) group_.send(out.data(), out.size(), DType::kInt64, peer, 5);
    }
  }

  void receive_all() {
    for (int peer = group_.size() - 1; peer >= 0; --peer) {
      auto& in = received_[static_cast<size_t>(peer)];
      if (peer != group_.rank()) works_.push_back(group_.recv_async(in.data(), in.size(), DType::kInt64, peer, 5));
    }
  }

  void expect_right() const {
    for (const Work& work : works_) {
      const Message message = work.message();
      const auto& in = received_[static_cast<size_t>(message.peer)];
      expect(message.bytes == in.size() * 8 && message.tag == 5, "a message's length or tag");
      for (const int64_t value : in) expect(value == 100 * message.peer + group_.rank(), "a message's contents");
    }
    expect(works_.size() + 1 == static_cast<size_t>(group_.size()), "messages received");
  }

 private:
  Communicator& group_;
  std::vector<std::vector<int64_t>> sent_, received_;
  std::vector<Work> works_;
};

// One rank's side of a list of all_reduces with one op: mixed types and sizes from nothing to several buckets, in place
// and not, aligned and not. Equal on all ranks for a seed.
class ListRank {
 public:
  ListRank(uint64_t seed, Op op, int rank, int world);
  std::vector<TensorRef> tensors() const;
  // Throws what is wrong, or differs between the ranks. Made by all ranks.
  void expect_right(Communicator& group) const;

 private:
  uint64_t seed_;
  std::vector<CollectiveCase> cases_;
  std::vector<CollectiveRank> ranks_;
};

ListRank::ListRank(uint64_t seed, Op op, int rank, int world) : seed_(seed) {
  Random random(seed);
  const uint64_t tensors = 1 + random.below(40);
  for (uint64_t i = 0; i < tensors; ++i) cases_.push_back(all_reduce_case(random, op, world));
  for (const CollectiveCase& one : cases_) ranks_.emplace_back(one, rank);
}

std::vector<TensorRef> ListRank::tensors() const {
  std::vector<TensorRef> tensors;
  for (const CollectiveRank& rank : ranks_) {
    const Call call = rank.call();
    tensors.push_back({call.input, call.output, call.count, call.dtype});
  }
  return tensors;
}

void ListRank::expect_right(Communicator& group) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const std::string wrong = ranks_[i].check();
    expect(wrong.empty(), fmt::format("seed {}, tensor {} of {}: {}", seed_, i, ranks_.size(), wrong));
    expect_same_everywhere(group, ranks_[i].output(), cases_[i].describe());
  }
}

// Lists of every op, by one call each, blocking and not. Made by all ranks.
void run_lists(Communicator& group, uint64_t seed) {
  for (const Op op : kOps) {
    const ListRank once(seed, op, group.rank(), group.size());
    group.all_reduce_many(once.tensors(), op);
    once.expect_right(group);
    // Two under way at once, on the memory that fused operations share.
    const ListRank first(seed + 1, op, group.rank(), group.size());
    const ListRank second(seed + 2, op, group.rank(), group.size());
    Work first_work = group.all_reduce_many_async(first.tensors(), op);
    Work second_work = group.all_reduce_many_async(second.tensors(), op);
    second_work.wait();
    first_work.wait();
    first.expect_right(group);
    second.expect_right(group);
  }
}

// A batch of every collective with messages, in whose middle every rank sends and receives in an order of its own. Made
// by all ranks.
void run_call_group(Communicator& group, uint64_t seed) {
  CaseList shapes{group.size(), {0, 1, 37, kTestBucketBytes}, {group.size() - 1}};
  std::vector<CollectiveCase> cases;
  Random random(seed);
  for (const CollectiveCase& one : all_shapes(shapes)) {
    if (random.chance(20)) cases.push_back(one);
    if (random.chance(30)) cases.push_back(all_reduce_case(random, kOps[random.below(kOps.size())], group.size()));
  }
  std::vector<CollectiveRank> ranks;
  for (const CollectiveCase& one : cases) ranks.emplace_back(one, group.rank());
  Messages messages(group, seed);
  const bool sends_first = group.rank() % 2 == 0;
  BatchScope calls(group);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == ranks.size() / 3) sends_first ? messages.send_all() : messages.receive_all();
    if (i == ranks.size() / 2) sends_first ? messages.receive_all() : messages.send_all();
    if (i % 2 == 0) {
      group.run(ranks[i].call());
    } else {
      group.start(ranks[i].call());
    }
  }
  if (seed % 2 == 0) {
    calls.end();
  } else {
    calls.end_async().wait();
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string wrong = ranks[i].check();
    expect(wrong.empty(), fmt::format("seed {}, call {} of {}: {}", seed, i, ranks.size(), wrong));
  }
  messages.expect_right();
}

RankGroup group_of(int world) {
  RankGroup shape{.world = world};
  shape.config.bucket_bytes = kTestBucketBytes;
  return shape;
}

}  // namespace

TEST_CASE("lists and batches between processes") {
  // Proves: over sockets, and in shared memory, where fused operations run on registered memory.
  for (const int world : {2, 3}) {
    CAPTURE(world);
    CHECK(run_over_both(group_of(world), [](Communicator& group) {
            for (uint64_t seed = 1; seed <= 5; ++seed) run_lists(group, seed * 1000);
            for (uint64_t seed = 1; seed <= 6; ++seed) run_call_group(group, seed);
          }) == "");
  }
}

TEST_CASE("lists give every tensor its reference result") {
  for (const int world : {1, 2, 3, 5}) {
    for (const uint64_t seed : {1, 2, 3}) {
      CAPTURE(world);
      CAPTURE(seed);
      CHECK(run_threads(group_of(world), [&](Communicator& group) { run_lists(group, seed * 100); }) == "");
    }
  }
}

TEST_CASE("batches of every collective, with messages in any order") {
  for (const int world : {1, 2, 3, 5}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(world);
      CAPTURE(seed);
      CHECK(run_threads(group_of(world), [&](Communicator& group) { run_call_group(group, seed); }) == "");
    }
  }
}

TEST_CASE("without buckets every tensor is an operation") {
  RankGroup shape = group_of(3);
  shape.config.bucket_bytes = 0;
  CHECK(run_threads(shape, [](Communicator& group) { run_lists(group, 7); }) == "");
}

}  // namespace rondo::testing
