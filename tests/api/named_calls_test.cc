// Communicator's calls on ranges and numbers: the same as with pointer, count and DType, and what does not fit is
// refused.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rondo/communicator.h"
#include "rondo/rondo.h"
#include "tests/engine/cases.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Numbers = std::vector<int64_t>;

static_assert(dtype_of<int8_t>() == DType::kInt8 && dtype_of<uint8_t>() == DType::kUint8);
static_assert(dtype_of<char>() == DType::kInt8 && dtype_of<short>() == DType::kInt16);
static_assert(dtype_of<uint16_t>() == DType::kUint16 && dtype_of<int>() == DType::kInt32);
static_assert(dtype_of<uint32_t>() == DType::kUint32 && dtype_of<long long>() == DType::kInt64);
static_assert(dtype_of<uint64_t>() == DType::kUint64 && dtype_of<bool>() == DType::kBool);
static_assert(dtype_of<float>() == DType::kFloat32 && dtype_of<double>() == DType::kFloat64);

// What may be an input, and what an output.
static_assert(Elements<const std::vector<float>&> && !MutableElements<const std::vector<float>&>);
static_assert(MutableElements<std::span<float>> && !MutableElements<std::span<const float>>);
static_assert(MutableElements<std::array<int, 3>&> && MutableElements<double (&)[4]>);
static_assert(!Elements<std::vector<bool>&> && !Elements<std::vector<std::string>&>);
static_assert(!OutputFor<std::vector<float>&, std::vector<double>&>);
static_assert(Elements<float> && MutableElements<float&> && !MutableElements<const float&>);
// A temporary number lasts as long as a blocking call.
static_assert(!MutableElements<float> && !LastingElements<float> && LastingElements<const int&>);
static_assert(OutputFor<double&, std::vector<double>&> && !OutputFor<float&, double>);
static_assert(!Elements<Op> && !Elements<float*> && !Elements<const void*>);

#define BY_NAME(name, ...) (async ? group.name##_async(__VA_ARGS__).wait() : group.name(__VA_ARGS__))

// The call of int64 by its name, on ranges; in place by the form that has one range, where there is one.
void call_by_name(Communicator& group, const Call& c, const CollectiveRank::Elements& elements, bool async) {
  const std::span in(static_cast<const int64_t*>(c.input), elements.input);
  const std::span out(static_cast<int64_t*>(c.output), elements.output);
  const std::vector<uint64_t> from(c.input_counts.begin(), c.input_counts.end());
  const std::vector<uint64_t> to(c.output_counts.begin(), c.output_counts.end());
  const bool in_place = c.input == c.output;
  switch (c.collective) {
    case Collective::kAllReduce:
      return in_place ? BY_NAME(all_reduce, out, c.op) : BY_NAME(all_reduce, in, out, c.op);
    case Collective::kReduceScatter:
      return c.uneven ? BY_NAME(reduce_scatter_v, in, out, from, c.op) : BY_NAME(reduce_scatter, in, out, c.op);
    case Collective::kAllGather:
      return c.uneven ? BY_NAME(all_gather_v, in, out, to) : BY_NAME(all_gather, in, out);
    case Collective::kBroadcast:
      return BY_NAME(broadcast, out, c.root);
    case Collective::kReduce:
      return in_place ? BY_NAME(reduce, out, c.op, c.root) : BY_NAME(reduce, in, out, c.op, c.root);
    case Collective::kGather:
      return c.uneven ? BY_NAME(gather_v, in, out, to, c.root) : BY_NAME(gather, in, out, c.root);
    case Collective::kScatter:
      return c.uneven ? BY_NAME(scatter_v, in, from, out, c.root) : BY_NAME(scatter, in, out, c.root);
    case Collective::kAllToAll:
      return c.uneven ? BY_NAME(all_to_all_v, in, from, out, to) : BY_NAME(all_to_all, in, out);
    case Collective::kBarrier:
      return BY_NAME(barrier);
    case Collective::kScan:
      return in_place ? BY_NAME(scan, out, c.op) : BY_NAME(scan, in, out, c.op);
    case Collective::kExscan:
      return in_place ? BY_NAME(exscan, out, c.op) : BY_NAME(exscan, in, out, c.op);
  }
}

TEST_CASE("every collective by its name, on ranges, blocking and asynchronous, gives the reference result") {
  std::vector<CollectiveCase> cases = all_shapes({3, {1, 100}, {1}});
  for (CollectiveCase& what : cases) {
    what.dtype = DType::kInt64;
    what.op = what.seed % 2 == 0 ? Op::kSum : Op::kMax;
    what.misalign -= what.misalign % 8;
  }
  CHECK(run_threads(RankGroup{.world = 3}, [&cases](Communicator& group) {
          for (const CollectiveCase& what : cases) {
            for (const bool async : {false, true}) {
              const CollectiveRank caller(what, group.rank());
              call_by_name(group, caller.call(), caller.elements(), async);
              const std::string wrong = caller.check();
              expect(wrong.empty(), wrong);
            }
          }
        }) == "");
}

// With a gap of one element before each block.
TEST_CASE("uneven calls on ranges with displacements") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          const int rank = group.rank();
          const std::vector<uint64_t> counts{1, 2}, apart{1, 3}, own(2, counts[static_cast<size_t>(rank)]);
          const Numbers blocks[] = {{5}, {6, 7}}, spread{-1, 5, -1, 6, 7};
          Numbers none;
          for (const bool async : {false, true}) {
            Numbers all(5, -1), block(own[0], -1);
            BY_NAME(all_gather_v, blocks[rank], all, counts, apart);
            expect(all == spread, "all_gather_v");
            all.assign(5, -1);
            BY_NAME(gather_v, blocks[rank], rank == 1 ? all : none, counts, 1, apart);
            expect(all == (rank == 1 ? spread : Numbers(5, -1)), "gather_v");
            BY_NAME(scatter_v, rank == 0 ? spread : none, counts, block, 0, apart);
            expect(block == blocks[rank], "scatter_v");
            all.assign(5, -1);
            BY_NAME(all_to_all_v, spread, counts, all, own, apart, apart);
            expect(all == (rank == 0 ? Numbers{-1, 5, -1, 5, -1} : Numbers{-1, 6, 7, 6, 7}), "all_to_all_v");
          }
        }) == "");
}
#undef BY_NAME

TEST_CASE("a number is a range of one") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          const int rank = group.rank(), other = 1 - rank;
          for (const bool async : {false, true}) {
            double loss = 1.5 + rank;
            async ? group.all_reduce_async(loss).wait() : group.all_reduce(loss);
            expect(loss == 4, "all_reduce in place");
            int epoch = rank == 1 ? 7 : -1;
            async ? group.broadcast_async(epoch, 1).wait() : group.broadcast(epoch, 1);
            expect(epoch == 7, "broadcast");
            int most = -1;
            async ? group.all_reduce_async(rank, most, Op::kMax).wait() : group.all_reduce(rank, most, Op::kMax);
            expect(most == 1, "all_reduce");
            std::array<int, 2> ranks{-1, -1};
            async ? group.all_gather_async(rank, ranks).wait() : group.all_gather(rank + 0, ranks);
            expect(ranks == std::array<int, 2>{0, 1}, "all_gather");
            int mine = -1;
            async ? group.scatter_async(ranks, mine, 0).wait() : group.scatter(ranks, mine, 0);
            expect(mine == rank, "scatter");
            float got = -1;
            const float given = 10.0F * static_cast<float>(rank);
            if (async) {
              Work sent = group.send_async(given, other), received = group.recv_async(got, other);
              received.wait();
              sent.wait();
            } else {
              group.sendrecv(10.0F * static_cast<float>(rank), other, got, other);
            }
            expect(got == 10.0F * static_cast<float>(other), "a message");
          }
        }) == "");
}

TEST_CASE("a send and a receive as one operation") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          const int rank = group.rank(), other = 1 - rank;
          for (const size_t count : {size_t{1}, size_t{3'000'000}}) {
            const Numbers mine(count, rank);
            Numbers theirs(count, -1);
            std::vector<Work> works;  // many at once, which a batch is not for
            Numbers small(100, -1);
            const int64_t own = rank;
            for (int i = 0; i < 100; ++i) {
              works.push_back(group.sendrecv_async(own, other, small[static_cast<size_t>(i)], other, i));
            }
            works.push_back(group.sendrecv_async(mine, other, theirs, other, 100));
            wait_all(works);
            expect(theirs == Numbers(count, other), "what was received");
            expect(works.back().message().bytes == 8 * count, "message() is the receive's");
          }
          int64_t theirs = -1;
          const int64_t mine = rank;
          group.batch_begin();
          Work received = group.sendrecv_async(mine, other, theirs, other);
          expect(theirs == -1, "nothing before the end of a batch");
          group.batch_end();
          expect(theirs == other && received.message().peer == other, "in a batch it is the receive's");

          // Nothing is sent where the receive is refused, and the other way round.
          for (const bool wrong_source : {true, false}) {
            const int to = wrong_source ? other : 9, from = wrong_source ? 9 : other;
            expect_error([&] { group.sendrecv_async(mine, to, theirs, from, 5); }, ErrorCode::kInvalid);
          }
          group.barrier();
          expect(!group.iprobe(other, 5), "a message of a refused call");
          group.barrier();
        }) == "");
}

TEST_CASE("the version of the library is that of its headers") { CHECK(version() == std::string(RONDO_VERSION)); }

TEST_CASE("messages as structures, by themselves, two at once and in a batch") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          int64_t mine = group.rank(), theirs = -1;
          const int other = 1 - group.rank();
          const MessageCall send{.data = &mine, .count = 1, .dtype = DType::kInt64, .peer = other};
          MessageCall receive = send;
          receive.kind = MessageKind::kReceive;
          receive.data = &theirs;
          const auto came = [&](const char* how) { expect(std::exchange(theirs, -1) == other, how); };
          for (int i = 0; i < 300; ++i) {
            expect(group.run(send, receive).peer == other, "of both, what was received");
            came("run() of two");
            Work received = group.start(receive), sent = group.start(send);
            received.wait();
            sent.wait();
            expect(received.message().bytes == 8, "bytes received");
            came("start()");
            group.batch_begin();
            group.run(send, receive);
            expect(theirs == -1, "nothing before the end of a batch");
            group.batch_end();
            came("a batch");
          }
        }) == "");
}

TEST_CASE("ranges that do not fit each other are kInvalid, and name both sizes") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          Numbers one(1), two(2), three(3);
          const auto refused = [&](const char* text, const std::function<void()>& call) {
            expect_error(call, ErrorCode::kInvalid, text);
          };
          const int rank = group.rank();
          refused("output has 3 elements instead of 2", [&] { group.all_reduce(two, three); });
          refused("output has 3 elements instead of 2", [&] { group.all_gather_async(one, three); });
          refused("input has 3 elements instead of 4", [&] { group.reduce_scatter(three, two); });
          refused("output has 3 elements instead of 2", [&] { group.reduce(two, three, Op::kSum, rank); });
          refused("output has 3 elements instead of 2", [&] { group.gather(one, three, rank); });
          refused("input has 3 elements instead of 2", [&] { group.scatter(three, one, rank); });
          refused("output has 3 elements instead of 2", [&] { group.all_to_all(two, three); });
          Numbers also_three(3);
          refused("input has 3 elements instead of 2", [&] { group.all_to_all(three, also_three); });

          const std::vector<uint64_t> counts{1, 2}, apart{0, 2};
          Numbers& own = rank == 0 ? one : two;
          refused("input has 3 elements instead of", [&] { group.all_gather_v(three, also_three, counts); });
          refused("output has 2 elements, and rank 1's block of 2 begins at 1",
                  [&] { group.all_gather_v_async(own, two, counts); });
          refused("output has 3 elements, and rank 1's block of 2 begins at 2",
                  [&] { group.all_gather_v(own, three, counts, apart); });
          Numbers four(4);
          refused("input has 4 elements instead of 3", [&] { group.reduce_scatter_v(four, own, counts); });
          refused("output has 4 elements instead of 3", [&] { group.gather_v(own, four, counts, rank); });
          refused("input has 4 elements instead of 3", [&] { group.scatter_v(four, counts, own, rank); });
          refused("input has 4 elements instead of 3", [&] { group.all_to_all_v(four, counts, three, counts); });
          const std::vector<uint64_t> huge{2, ~uint64_t{0}};
          refused("rank 1's block of 18446744073709551615 begins at 2",
                  [&] { group.all_to_all_v(four, huge, three, counts); });
          refused("counts", [&] { group.all_gather_v(own, three, std::vector<uint64_t>{1, 2, 3}); });
          group.barrier();
        }) == "");
}

}  // namespace
}  // namespace rondo::testing
