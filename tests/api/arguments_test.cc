// Wrong arguments: refused on the rank that makes the call, before anything happens; the communicator goes on.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <functional>
#include <limits>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Numbers = std::vector<int64_t>;

constexpr DType kInt64 = DType::kInt64;
constexpr uint64_t kTooMany = std::numeric_limits<uint64_t>::max() / 8 + 2;  // times 8 it wraps around to 8

void expect_invalid(const char* what, const std::string& named, const std::function<void()>& call) {
  const Error error = error_of(call);
  expect(error.code == ErrorCode::kInvalid && error.message.find(named) != std::string::npos,
         fmt::format("{}: INVALID with \"{}\" was expected; it is {}: {}", what, named, error_code_name(error.code),
                     error.message));
}

// The group still works, and no rank has counted a call that another has not.
void expect_usable(Communicator& group) {
  Numbers ones(10, 1);
  group.all_reduce(ones.data(), ones.data(), 10, kInt64);
  expect(ones == Numbers(10, group.size()), "all_reduce after wrong arguments");
}

std::string on_rank(int wrong, const std::function<void(Communicator&, Numbers&)>& calls) {
  RankGroup shape{.world = 3};
  return run_threads(shape, [&](Communicator& group) {
    Numbers numbers(64, 7);
    if (group.rank() == wrong) calls(group, numbers);
    expect(numbers == Numbers(64, 7), "a refused call wrote to memory");
    expect_usable(group);
  });
}

}  // namespace

TEST_CASE("fault 44: roots, counts, dtypes, ops, algorithms and timeouts out of range") {
  // Proves: each is refused by the one rank that gives it, with its value in the message.
  CHECK(on_rank(1, [](Communicator& group, Numbers& n) {
          int64_t* p = n.data();
          for (const int root : {-1, 3, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
            const std::string named = fmt::format("root is {}", root);
            expect_invalid("broadcast", named, [&] { group.broadcast(p, 1, kInt64, root); });
            expect_invalid("reduce", named, [&] { group.reduce(p, p, 1, kInt64, Op::kSum, root); });
            expect_invalid("gather", named, [&] { group.gather(p, p + 8, 1, kInt64, root); });
            expect_invalid("scatter", named, [&] { group.scatter(p, p + 8, 1, kInt64, root); });
          }
          expect_invalid("count", "elements of int64", [&] { group.all_reduce(p, p, kTooMany, kInt64); });
          expect_invalid("block", "elements of int64", [&] { group.all_gather(p, p, kTooMany / 2, kInt64); });
          for (const int root : {0, 1}) {  // another rank, and this one
            expect_invalid("block", "for each of the 3 ranks", [&] { group.gather(p, p, kTooMany / 8, kInt64, root); });
            expect_invalid("block", "for each of the 3 ranks",
                           [&] { group.scatter(p, p, kTooMany / 8, kInt64, root); });
          }
          expect_invalid("send", "elements of int64", [&] { group.send(p, kTooMany, kInt64, 0); });
          for (const int value : {kDTypes, 200, 254}) {
            const auto dtype = static_cast<DType>(value);
            const auto op = static_cast<Op>(value);
            expect_invalid("dtype", fmt::format("{}", value), [&] { group.all_gather(p, p + 8, 1, dtype); });
            expect_invalid("dtype", fmt::format("{}", value), [&] { group.send(p, 1, dtype, 0); });
            expect_invalid("op", fmt::format("{}", value), [&] { group.all_reduce(p, p, 1, kInt64, op); });
          }
          expect_invalid("pair", "avg of bool", [&] { group.all_reduce(p, p, 1, DType::kBool, Op::kAverage); });
          expect_invalid("pair", "bxor of float32", [&] { group.all_reduce(p, p, 1, DType::kFloat32, Op::kBitXor); });
          expect_invalid("pair", "premulsum of int64", [&] { group.all_reduce(p, p, 1, kInt64, Op::kPremulSum); });
          CallOptions options;
          options.algorithm = Algorithm::kTree;
          expect_invalid("algorithm", "tree", [&] { group.all_gather(p, p + 8, 1, kInt64, options); });
          options.algorithm = static_cast<Algorithm>(99);
          expect_invalid("algorithm", "", [&] { group.all_reduce(p, p, 1, kInt64, Op::kSum, options); });
          options = {};
          options.timeout = std::chrono::milliseconds(-5);
          expect_invalid("timeout", "-5", [&] { group.barrier(options); });
          expect_invalid("timeout of a message", "-5", [&] { group.send(p, 1, kInt64, 0, 0, options); });
          expect_invalid("timeout of a message", "-5", [&] { group.recv_async(p, 1, kInt64, 0, 0, options); });
          Call call;
          call.collective = static_cast<Collective>(77);
          expect_invalid("collective", "77", [&] { group.start(call); });
        }) == "");
}

TEST_CASE("fault 47: null pointers in a call whose like was good before, alone or in a batch") {
  RankGroup shape;
  CHECK(run_threads(shape, [](Communicator& group) {
          for (const bool batch : {false, true}) {
            const uint64_t count = batch ? 12 : 11;
            Numbers numbers(count, 1);
            int64_t* const p = numbers.data();
            for (int times = 0; times < 3; ++times) {
              if (batch) group.batch_begin();
              Work work = group.all_reduce_async(p, p, count, kInt64);
              if (batch) group.batch_end();
              work.wait();
              expect_invalid("all_reduce", "null", [&] { group.all_reduce(nullptr, nullptr, count, kInt64); });
              expect_invalid("input", "null", [&] { group.all_reduce_async(nullptr, p, count, kInt64); });
              expect_invalid("output", "null", [&] { group.all_reduce(p, nullptr, count, kInt64); });
            }
            expect(numbers == Numbers(count, 8), "three sums of two ranks");
          }
        }) == "");
}

TEST_CASE("fault 47: null pointers where something is read or written") {
  CHECK(on_rank(2, [](Communicator& group, Numbers& n) {
          int64_t* p = n.data();
          const std::string null = "null";
          expect_invalid("all_reduce input", null, [&] { group.all_reduce(nullptr, p, 1, kInt64); });
          expect_invalid("all_reduce output", null, [&] { group.all_reduce(p, nullptr, 1, kInt64); });
          expect_invalid("broadcast", null, [&] { group.broadcast(nullptr, 1, kInt64, 0); });
          expect_invalid("reduce on the root", null, [&] { group.reduce(p, nullptr, 1, kInt64, Op::kSum, 2); });
          expect_invalid("gather on the root", null, [&] { group.gather(p, nullptr, 1, kInt64, 2); });
          expect_invalid("scatter on the root", null, [&] { group.scatter(nullptr, p, 1, kInt64, 2); });
          expect_invalid("scatter output", null, [&] { group.scatter(p, nullptr, 1, kInt64, 0); });
          expect_invalid("all_to_all", null, [&] { group.all_to_all(p, nullptr, 1, kInt64); });
          expect_invalid("send", null, [&] { group.send(nullptr, 1, kInt64, 0); });
          expect_invalid("recv", null, [&] { group.recv(nullptr, 1, kInt64, 0); });
          expect_invalid("sendrecv's receive", null, [&] { group.sendrecv(p, 1, 0, nullptr, 1, 0, kInt64); });
        }) == "");
}

TEST_CASE("null pointers where nothing is read or written are fine") {
  CHECK(run_threads(RankGroup{.world = 3}, [](Communicator& group) {
          group.all_reduce(nullptr, nullptr, 0, kInt64);
          group.all_gather(nullptr, nullptr, 0, kInt64);
          const int rank = group.rank();
          Numbers in(3, rank), out(3, -1);
          group.gather(in.data(), rank == 1 ? out.data() : nullptr, 1, kInt64, 1);
          group.scatter(rank == 1 ? in.data() : nullptr, out.data(), 1, kInt64, 1);
          expect(out[0] == 1, "scatter");
          const std::array<uint64_t, 3> counts{0, 0, 2};
          group.all_gather_v(rank == 2 ? in.data() : nullptr, out.data(), counts, {}, kInt64);
          expect(out[0] == 2 && out[1] == 2, "all_gather_v");
          group.sendrecv(nullptr, 0, (rank + 1) % 3, nullptr, 0, (rank + 2) % 3, kInt64);
        }) == "");
}

TEST_CASE("recoverable is an option of an all_reduce by itself, in host memory, without a wire format") {
  CHECK(on_rank(1, [](Communicator& group, Numbers& n) {
          int64_t* p = n.data();
          CallOptions options, coded;
          options.recoverable = coded.recoverable = true;
          coded.wire.format = WireFormat::kInt8;
          const std::string named = "recoverable is an option of a";
          for (int i = 0; i < 2; ++i) {  // also while a call like it is known
            expect_invalid("broadcast", named, [&] { group.broadcast(p, 1, kInt64, 0, options); });
            expect_invalid("reduce", named, [&] { group.reduce(p, p + 8, 1, kInt64, Op::kSum, 0, options); });
          }
          expect_invalid("send", named, [&] { group.send(p, 1, kInt64, 0, 0, options); });
          expect_invalid("recv", named, [&] { group.recv(p, 1, kInt64, 0, 0, options); });
          const TensorRef tensor{p, p, 8, kInt64};
          expect_invalid("a list", named, [&] { group.all_reduce_many({&tensor, 1}, Op::kSum, options); });
          std::vector<float> floats(8);
          expect_invalid("wire", "cannot be recoverable",
                         [&] { group.all_reduce(floats.data(), floats.data(), 8, DType::kFloat32, Op::kSum, coded); });
          expect_invalid("null", "null", [&] { group.all_reduce(nullptr, nullptr, 1, kInt64, Op::kSum, options); });
        }) == "");
}

TEST_CASE("a recoverable all_reduce has the sums of any other, in place and not, each rank as it likes") {
  for (int recoverable = 0; recoverable < 3; ++recoverable) {
    CHECK(run_threads(RankGroup{.world = 3}, [&](Communicator& group) {
            for (int i = 0; i < 300; ++i) {
              const uint64_t count = i % 3 == 0 ? 0 : uint64_t{1} << (i % 17);
              Numbers numbers(count, group.rank() + i), sums(count);
              CallOptions options;
              options.recoverable = (group.rank() + i) % 3 >= recoverable;
              int64_t* const to = i % 2 == 0 ? numbers.data() : sums.data();
              group.all_reduce_async(numbers.data(), to, count, kInt64, Op::kSum, options).wait();
              expect((i % 2 == 0 ? numbers : sums) == Numbers(count, 3 + 3 * i), "a sum");
            }
          }) == "");
  }
}

TEST_CASE("a recoverable all_reduce that gets no memory on one rank ends on all ranks, not by a deadline") {
  RankGroup shape;
  shape.config.timeout_ms = 60'000;
  CHECK(run_threads(shape, [](Communicator& group) {
          Numbers numbers(8, 1);
          CallOptions options;
          options.recoverable = true;
          const uint64_t count = group.rank() == 0 ? uint64_t{1} << 56 : 8;  // no machine has as much
          const auto begin = std::chrono::steady_clock::now();
          const Error error = error_of([&] {
            if (group.rank() == 0) {
              group.all_reduce(numbers.data(), numbers.data(), count, kInt64, Op::kSum, options);
            } else {
              group.all_reduce_async(numbers.data(), numbers.data(), count, kInt64, Op::kSum, options).wait();
            }
          });
          expect(error.code == ErrorCode::kSystem && error.ranks == std::vector<int>{0}, error.message);
          expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "by the deadline");
        }) == "");
}

TEST_CASE("what a call does not have is refused, also after good calls that differ in that alone") {
  CHECK(run_threads(RankGroup{.world = 3}, [](Communicator& group) {
          Numbers blocks(3 * 8), block(8);
          Call gather{.collective = Collective::kAllGather,
                      .input = block.data(),
                      .output = blocks.data(),
                      .count = 8,
                      .dtype = kInt64};
          Call scatter = gather;
          scatter.collective = Collective::kReduceScatter;
          scatter.input = blocks.data(), scatter.output = block.data();
          Call sum = gather;
          sum.collective = Collective::kAllReduce;
          for (int i = 0; i < 3; ++i) {
            for (const Call& good : {gather, scatter, sum}) group.run(good);
          }
          if (group.rank() == 1) {
            const std::array<uint64_t, 3> displacements{0, 8, 16};
            gather.output_displacements = scatter.input_displacements = displacements;
            sum.options.user.function = [](const void*, void*, size_t, void*) {};
            expect_invalid("all_gather", "output displacements given", [&] { group.run(gather); });
            expect_invalid("reduce_scatter", "input displacements given", [&] { group.run(scatter); });
            expect_invalid("all_reduce", "an operation of the program's", [&] { group.run(sum); });
          }
          expect_usable(group);
        }) == "");
}

TEST_CASE("fault 46: input and output that overlap otherwise than in place") {
  // Proves: one element off the in-place form, in either direction, is refused; all_to_all in place is, too.
  CHECK(on_rank(1, [](Communicator& group, Numbers& n) {
          int64_t* p = n.data() + 8;
          const std::string overlap = "overlap";
          expect_invalid("all_reduce", overlap, [&] { group.all_reduce(p, p + 1, 4, kInt64); });
          expect_invalid("all_reduce", overlap, [&] { group.all_reduce(p + 3, p, 4, kInt64); });
          expect_invalid("all_gather", overlap, [&] { group.all_gather(p, p, 4, kInt64); });
          expect_invalid("all_gather", overlap, [&] { group.all_gather(p + 8, p, 4, kInt64); });
          expect_invalid("gather", overlap, [&] { group.gather(p, p, 4, kInt64, 1); });
          expect_invalid("reduce_scatter", overlap, [&] { group.reduce_scatter(p, p, 4, kInt64); });
          expect_invalid("scatter", overlap, [&] { group.scatter(p, p + 5, 4, kInt64, 1); });
          expect_invalid("all_to_all", overlap, [&] { group.all_to_all(p, p, 4, kInt64); });
          const std::array<uint64_t, 3> counts{1, 2, 3};
          expect_invalid("all_to_all_v", overlap, [&] { group.all_to_all_v(p, counts, {}, p, counts, {}, kInt64); });
          expect_invalid("all_gather_v", overlap, [&] { group.all_gather_v(p, p, counts, {}, kInt64); });
        }) == "");
}

TEST_CASE("uneven counts: too few, too large, or against each other") {
  CHECK(on_rank(0, [](Communicator& group, Numbers& n) {
          int64_t* p = n.data();
          int64_t* q = n.data() + 32;
          const std::array<uint64_t, 2> two{1, 1};
          const std::array<uint64_t, 3> counts{1, 2, 3}, other{2, 2, 3}, large{1, kTooMany, 1};
          const std::array<uint64_t, 3> half{kTooMany / 4, kTooMany / 4, kTooMany / 4}, low{0, 0, 0};
          expect_invalid("counts", "2", [&] { group.all_gather_v(p, q, two, {}, kInt64); });
          expect_invalid("displacements", "2", [&] { group.all_gather_v(p, q, counts, two, kInt64); });
          Call even;
          even.collective = Collective::kAllGather;
          even.input = p;
          even.output = q;
          even.count = 4;
          even.dtype = kInt64;
          even.output_displacements = counts;
          expect_invalid("displacements of even blocks", "uneven", [&] { group.run(even); });
          expect_invalid("too large", "elements", [&] { group.reduce_scatter_v(p, q, large, kInt64); });
          expect_invalid("too many together", "elements", [&] { group.all_gather_v(p, q, half, low, kInt64); });
          expect_invalid("displaced too far", "elements", [&] { group.all_gather_v(p, q, counts, large, kInt64); });
          expect_invalid("own block", "rank 0", [&] { group.all_to_all_v(p, counts, {}, q, other, {}, kInt64); });
          expect_invalid("own block", "rank 0", [&] { group.gather_v(p, 2, q, counts, {}, kInt64, 0); });
          expect_invalid("own block", "rank 0", [&] { group.scatter_v(p, counts, {}, q, 5, kInt64, 0); });
          Call call;
          call.uneven = true;
          call.input = call.output = p;
          expect_invalid("all_reduce_v", "uneven", [&] { group.run(call); });
        }) == "");
}

TEST_CASE("peers, tags and groups out of range") {
  CHECK(on_rank(2, [](Communicator& group, Numbers& n) {
          int64_t* p = n.data();
          for (const int peer : {-2, 3, 1000}) {
            const std::string to = fmt::format("destination is {}", peer), from = fmt::format("source is {}", peer);
            expect_invalid("send", to, [&] { group.send(p, 1, kInt64, peer); });
            expect_invalid("recv", from, [&] { group.recv(p, 1, kInt64, peer); });
            expect_invalid("sendrecv to", to, [&] { group.sendrecv(p, 1, peer, p + 1, 1, 0, kInt64); });
            expect_invalid("sendrecv from", from, [&] { group.sendrecv(p, 1, 0, p + 1, 1, peer, kInt64); });
          }
          expect_invalid("send to any", "destination is -1", [&] { group.send(p, 1, kInt64, kAnySource); });
          expect_invalid("send any tag", "tag is -1", [&] { group.send(p, 1, kInt64, 0, kAnyTag); });
          expect_invalid("send", "tag is -2", [&] { group.send_async(p, 1, kInt64, 0, -2); });
          expect_invalid("recv", "tag is -2", [&] { group.recv_async(p, 1, kInt64, 0, -2); });
          const std::array<int, 2> twice{2, 2}, without{0, 1}, beyond{2, 3};
          expect_invalid("new_group", "twice", [&] { group.new_group(twice); });
          expect_invalid("new_group", "not among", [&] { group.new_group(without); });
          expect_invalid("new_group", "3 is not", [&] { group.new_group(beyond); });
          expect_invalid("new_group", "not among", [&] { group.new_group({}); });
        }) == "");
}

TEST_CASE("two messages at once are a send and a receive; a collective has moved no message") {
  CHECK(on_rank(1, [](Communicator& group, Numbers& n) {
          const auto message = [&n](MessageKind kind) {
            return MessageCall{.kind = kind, .data = n.data(), .count = 1, .dtype = kInt64, .peer = 0};
          };
          const MessageCall send = message(MessageKind::kSend), receive = message(MessageKind::kReceive);
          expect_invalid("two sends", "the second a receive", [&] { group.run(send, send); });
          expect_invalid("two receives", "the first must be a send", [&] { group.run(receive, receive); });
        }) == "");
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          Work barrier = group.barrier_async();
          barrier.wait();
          expect_invalid("message()", "no send and no receive", [&] { barrier.message(); });
        }) == "");
}

TEST_CASE("calls on what is empty, moved from or destroyed") {
  Communicator empty;
  CHECK(!empty.valid());
  CHECK_THROWS_AS(empty.barrier(), Exception);
  empty.destroy();
  std::vector<Communicator> one = Communicator::inproc(1);
  Communicator group = std::move(one[0]);
  CHECK(!one[0].valid());
  int64_t x = 5;
  group.all_reduce(&x, &x, 1, kInt64);
  CHECK(x == 5);
  group.destroy();
  group.destroy();
  CHECK(code_of([&] { group.all_reduce(&x, &x, 1, kInt64); }) == ErrorCode::kClosed);
  CHECK_THROWS_AS(Communicator::inproc(0), Exception);
  CHECK_THROWS_AS(Communicator::inproc(-3), Exception);
  Config bad;
  bad.connections = 0;
  CHECK_THROWS_AS(Communicator::inproc(2, bad), Exception);
}

TEST_CASE("timeouts too large for the clock mean for ever") {
  // Proves: no sum of now and a timeout wraps around into the past.
  RankGroup shape;
  CHECK(run_threads(shape, [](Communicator& group) {
          CallOptions options;
          options.timeout = std::chrono::milliseconds::max();
          group.barrier(options);
          int64_t x = group.rank(), y = -1;
          group.sendrecv(&x, 1, 1 - group.rank(), &y, 1, 1 - group.rank(), kInt64, 0, options);
          expect(y == 1 - group.rank(), "sendrecv");
        }) == "");
}

}  // namespace rondo::testing
