// Communicator's calls on ranges: the same as with pointer, count and DType, and ranges that do not fit are refused.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/rank_group.h"

namespace {

using rondo::Collective;
using rondo::Communicator;
using rondo::DType;
using rondo::Op;
using rondo::testing::expect;
using rondo::testing::RankGroup;
using rondo::testing::run_threads;
using Numbers = std::vector<int64_t>;

static_assert(rondo::dtype_of<int8_t>() == DType::kInt8 && rondo::dtype_of<uint8_t>() == DType::kUint8);
static_assert(rondo::dtype_of<char>() == DType::kInt8 && rondo::dtype_of<short>() == DType::kInt16);
static_assert(rondo::dtype_of<uint16_t>() == DType::kUint16 && rondo::dtype_of<int>() == DType::kInt32);
static_assert(rondo::dtype_of<uint32_t>() == DType::kUint32 && rondo::dtype_of<long long>() == DType::kInt64);
static_assert(rondo::dtype_of<uint64_t>() == DType::kUint64 && rondo::dtype_of<bool>() == DType::kBool);
static_assert(rondo::dtype_of<float>() == DType::kFloat32 && rondo::dtype_of<double>() == DType::kFloat64);

// What may be an input, and what an output.
static_assert(rondo::Elements<const std::vector<float>&> && !rondo::MutableElements<const std::vector<float>&>);
static_assert(rondo::MutableElements<std::span<float>> && !rondo::MutableElements<std::span<const float>>);
static_assert(rondo::MutableElements<std::array<int, 3>&> && rondo::MutableElements<double (&)[4]>);
static_assert(!rondo::Elements<std::vector<bool>&> && !rondo::Elements<std::vector<std::string>&>);
static_assert(!rondo::OutputFor<std::vector<float>&, std::vector<double>&>);

TEST_CASE("every call on ranges, blocking and asynchronous") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          const int rank = group.rank(), other = 1 - rank;
          for (const bool async : {false, true}) {
            std::vector<float> values{1.0F + static_cast<float>(rank), 5};
            async ? group.all_reduce_async(values).wait() : group.all_reduce(values);
            expect(values == std::vector<float>{3, 10}, "all_reduce in place");

            const std::array<int, 2> input{rank, 10 * rank};
            int output[2] = {-1, -1};
            async ? group.all_reduce_async(input, output, Op::kMax).wait() : group.all_reduce(input, output, Op::kMax);
            expect(output[0] == 1 && output[1] == 10, "all_reduce");

            Numbers one{rank + 1}, two(2, -1), none;
            async ? group.reduce_async(one, rank == 1 ? one : none, Op::kSum, 1).wait()
                  : group.reduce(one, rank == 1 ? one : none, Op::kSum, 1);
            expect(one.front() == (rank == 1 ? 3 : 1), "reduce");
            async ? group.broadcast_async(one, 1).wait() : group.broadcast(one, 1);
            expect(one.front() == 3, "broadcast");

            one = {rank};
            async ? group.all_gather_async(one, std::span(two)).wait() : group.all_gather(one, std::span(two));
            expect(two == Numbers{0, 1}, "all_gather");
            async ? group.reduce_scatter_async(two, one).wait() : group.reduce_scatter(two, one);
            expect(one.front() == 2 * rank, "reduce_scatter");

            two = {-1, -1};
            async ? group.gather_async(one, rank == 0 ? two : none, 0).wait()
                  : group.gather(one, rank == 0 ? two : none, 0);
            expect(two == (rank == 0 ? Numbers{0, 2} : Numbers{-1, -1}), "gather");
            async ? group.scatter_async(two, one, 0).wait() : group.scatter(two, one, 0);
            expect(one.front() == 2 * rank, "scatter");

            const Numbers mine{10 * rank, 10 * rank + 1};
            async ? group.all_to_all_async(mine, two).wait() : group.all_to_all(mine, two);
            expect(two == Numbers{rank, 10 + rank}, "all_to_all");

            rondo::Message message;
            if (async) {
              rondo::Work sent = group.send_async(mine, other, 7);
              rondo::Work received = group.recv_async(two, other, 7);
              received.wait();
              sent.wait();
              message = received.message();
            } else if (rank == 0) {
              group.send(mine, other, 7);
              message = group.recv(two, other, 7);
            } else {
              message = group.recv(two, other, 7);
              group.send(mine, other, 7);
            }
            expect(two == Numbers{10 * other, 10 * other + 1}, "recv");
            expect(message.peer == other && message.tag == 7 && message.bytes == 16, "message");
          }
        }) == "");
}

TEST_CASE("messages as structures, by themselves, two at once and in a batch") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          int64_t mine = group.rank(), theirs = -1;
          const int other = 1 - group.rank();
          const rondo::MessageCall send{.data = &mine, .count = 1, .dtype = DType::kInt64, .peer = other};
          rondo::MessageCall receive = send;
          receive.kind = rondo::MessageKind::kReceive;
          receive.data = &theirs;
          const auto came = [&](const char* how) { expect(std::exchange(theirs, -1) == other, how); };
          for (int i = 0; i < 300; ++i) {
            expect(group.run(send, receive).peer == other, "of both, what was received");
            came("run() of two");
            rondo::Work received = group.start(receive), sent = group.start(send);
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

TEST_CASE("a call as one structure, of which what it does not need is left out") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          const int64_t mine = group.rank() + 1;
          Numbers all(2), first{group.rank(), 7};
          group.run({.collective = Collective::kAllGather,
                     .input = &mine,
                     .output = all.data(),
                     .count = 1,
                     .dtype = DType::kInt64});
          expect(all == Numbers{1, 2}, "run");
          group
              .start({.collective = Collective::kBroadcast,
                      .input = first.data(),
                      .output = first.data(),
                      .count = 2,
                      .dtype = DType::kInt64,
                      .root = 1})
              .wait();
          expect(first == Numbers{1, 7}, "start");
          group.run({.collective = Collective::kBarrier});
        }) == "");
}

TEST_CASE("ranges that do not fit each other are kInvalid, and name both sizes") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          Numbers one(1), two(2), three(3);
          const auto refused = [&](const char* text, auto call) {
            try {
              call();
            } catch (const rondo::Exception& error) {
              expect(error.code() == rondo::ErrorCode::kInvalid, rondo::error_code_name(error.code()));
              return expect(std::string(error.what()).find(text) != std::string::npos, error.what());
            }
            expect(false, std::string("not refused: ") + text);
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
          group.barrier();
        }) == "");
}

}  // namespace
