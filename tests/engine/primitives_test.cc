// What users try first: the tutorials' calls, with the results that they name. Each over processes and over threads.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Numbers = std::vector<int64_t>;

constexpr DType kInt64 = DType::kInt64;
// 64 MiB of int64: far more than sockets, mailboxes and eager messages hold together.
constexpr size_t kHuge = (64u << 20) / sizeof(int64_t);

void expect_numbers(const Numbers& got, const Numbers& want, const char* what) {
  expect(got == want, fmt::format("{}: [{}], should be [{}]", what, fmt::join(got, ","), fmt::join(want, ",")));
}

// rank r starts with [1+2r, 2+2r]
Numbers start_of(int rank) { return {1 + 2 * rank, 2 + 2 * rank}; }

Work start_sum(Communicator& group, Numbers& numbers) {
  Call call;
  call.input = call.output = numbers.data();
  call.count = numbers.size();
  call.dtype = kInt64;
  return group.start(call);
}

std::string on_both(int world, const RankBody& body) {
  RankGroup group;
  group.world = world;
  const std::string processes = run_processes(group, body);
  const std::string threads = run_threads(group, body);
  return processes + (threads.empty() ? "" : "over memory: " + threads);
}

}  // namespace

TEST_CASE("the tutorial's collectives on four ranks") {
  // Proves: every row of the table, out of place.
  CHECK(on_both(4, [](Communicator& group) {
          const int rank = group.rank();
          const Numbers input = start_of(rank);
          Numbers buffer = input;
          group.broadcast(buffer.data(), 2, kInt64, 0);
          expect_numbers(buffer, {1, 2}, "broadcast");

          const Numbers list = rank == 0 ? Numbers{0, 0, 1, 1, 2, 2, 3, 3} : Numbers{};
          group.scatter(list.data(), buffer.data(), 2, kInt64, 0);
          expect_numbers(buffer, {rank, rank}, "scatter");

          Numbers all(8, -1);
          group.gather(input.data(), all.data(), 2, kInt64, 0);
          expect_numbers(all, rank == 0 ? Numbers{1, 2, 3, 4, 5, 6, 7, 8} : Numbers(8, -1), "gather");

          Numbers sum(2, -1);
          group.reduce(input.data(), sum.data(), 2, kInt64, Op::kSum, 3);
          expect_numbers(sum, rank == 3 ? Numbers{16, 20} : Numbers{-1, -1}, "reduce");
          expect_numbers(input, start_of(rank), "input of reduce");

          std::fill(all.begin(), all.end(), -1);
          group.all_gather(input.data(), all.data(), 2, kInt64);
          expect_numbers(all, {1, 2, 3, 4, 5, 6, 7, 8}, "all_gather");

          const std::pair<Op, Numbers> results[] = {
              {Op::kSum, {16, 20}}, {Op::kProduct, {105, 384}}, {Op::kMax, {7, 8}}, {Op::kMin, {1, 2}}};
          for (const auto& [op, result] : results) {
            group.all_reduce(input.data(), sum.data(), 2, kInt64, op);
            expect_numbers(sum, result, op_name(op));
          }
          group.barrier();
        }) == "");
}

TEST_CASE("reduce in place leaves the others' buffers as they were") {
  // Proves: input == output on every rank is no license to use it as scratch.
  CHECK(on_both(4, [](Communicator& group) {
          for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTree, Algorithm::kDirect}) {
            Numbers buffer = start_of(group.rank());
            CallOptions options;
            options.algorithm = algorithm;
            group.reduce(buffer.data(), buffer.data(), 2, kInt64, Op::kSum, 3, options);
            expect_numbers(buffer, group.rank() == 3 ? Numbers{16, 20} : start_of(group.rank()),
                           algorithm_name(algorithm));
            // The output may be null where nothing is written.
            group.reduce(start_of(1).data(), group.rank() == 3 ? buffer.data() : nullptr, 2, kInt64, Op::kSum, 3,
                         options);
          }
        }) == "");
}

TEST_CASE("reduce_scatter and all_to_all, even and uneven") {
  CHECK(on_both(4, [](Communicator& group) {
          const int rank = group.rank();
          Numbers input, out(2);
          for (int64_t b = 0; b < 4; ++b) input.insert(input.end(), {10 * b + rank, 100 * b + rank});
          group.reduce_scatter(input.data(), out.data(), 2, kInt64);
          expect_numbers(out, {40 * rank + 6, 400 * rank + 6}, "reduce_scatter");

          Numbers blocks(8);
          group.all_to_all(input.data(), blocks.data(), 2, kInt64);
          Numbers want;
          for (int64_t s = 0; s < 4; ++s) want.insert(want.end(), {10 * rank + s, 100 * rank + s});
          expect_numbers(blocks, want, "all_to_all");

          // Rank r's block of the sum has r elements.
          const std::array<uint64_t, 4> counts{0, 1, 2, 3};
          const Numbers ramp{1, 2, 3, 4, 5, 6};
          Numbers part(static_cast<size_t>(rank));
          group.reduce_scatter_v(ramp.data(), part.data(), counts, kInt64);
          const Numbers parts[] = {{}, {4}, {8, 12}, {16, 20, 24}};
          expect_numbers(part, parts[rank], "reduce_scatter_v");
        }) == "");
}

TEST_CASE("uneven calls put blocks where the displacements say, and touch nothing between") {
  // Proves: displacements are in elements and in the caller's order, gaps stay.
  CHECK(on_both(3, [](Communicator& group) {
          const int rank = group.rank();
          const std::array<uint64_t, 3> counts{2, 0, 1};
          const std::array<uint64_t, 3> displacements{3, 0, 1};
          const Numbers input{10 + rank, 20 + rank};
          const uint64_t own = counts[static_cast<size_t>(rank)];
          Numbers out(5, -1);
          group.all_gather_v(input.data(), out.data(), counts, displacements, kInt64);
          expect_numbers(out, {-1, 12, -1, 10, 20}, "all_gather_v");

          std::fill(out.begin(), out.end(), -1);
          group.gather_v(input.data(), own, out.data(), counts, displacements, kInt64, 1);
          expect_numbers(out, rank == 1 ? Numbers{-1, 12, -1, 10, 20} : Numbers(5, -1), "gather_v");

          const Numbers source{0, 1, 2, 3, 4};
          Numbers part(2, -1);
          group.scatter_v(source.data(), counts, displacements, part.data(), own, kInt64, 2);
          const Numbers parts[] = {{3, 4}, {-1, -1}, {1, -1}};
          expect_numbers(part, parts[rank], "scatter_v");

          // Rank s sends s elements to every rank, taken backwards; received with a hole before each block.
          const auto each = static_cast<uint64_t>(rank);
          const std::array<uint64_t, 3> send{each, each, each}, back{2 * each, each, 0};
          const std::array<uint64_t, 3> receive{0, 1, 2}, holes{0, 1, 3};
          Numbers sent(6);
          for (size_t i = 0; i < 6; ++i) sent[i] = 10 * rank + static_cast<int64_t>(i);
          std::fill(out.begin(), out.end(), -1);
          group.all_to_all_v(sent.data(), send, back, out.data(), receive, holes, kInt64);
          const Numbers outs[] = {{-1, 12, -1, 24, 25}, {-1, 11, -1, 22, 23}, {-1, 10, -1, 20, 21}};
          expect_numbers(out, outs[rank], "all_to_all_v");
        }) == "");
}

TEST_CASE("groups: all_reduce of ones in new_group([0,1]) leaves the others alone") {
  // Proves: only members take part; several groups at once, each with calls of its own, do not mix.
  CHECK(on_both(4, [](Communicator& group) {
          const int rank = group.rank();
          Numbers one{1};
          if (rank < 2) {
            const std::array<int, 2> members{0, 1};
            Communicator pair = group.new_group(members);
            pair.all_reduce(one.data(), one.data(), 1, kInt64);
          }
          expect_numbers(one, {rank < 2 ? 2 : 1}, "pair");

          // Three overlapping groups; in the second, ranks are renumbered.
          const std::array<int, 4> reversed{3, 2, 1, 0};
          Communicator backwards = group.new_group(reversed);
          expect(backwards.rank() == 3 - rank && backwards.size() == 4, "the order given is the order of ranks");
          Communicator parity = group.split(rank % 2, -rank);
          expect(parity.size() == 2 && parity.rank() == (rank < 2 ? 1 : 0), "split orders by key");
          for (int i = 0; i < 50; ++i) {
            Numbers a{rank}, b{rank}, c{rank};
            const Numbers ten(1000, 10);
            Numbers big(1000);
            Work first = start_sum(group, a);
            Work second = start_sum(parity, b);
            backwards.broadcast(c.data(), 1, kInt64, i % 4);
            parity.all_reduce(ten.data(), big.data(), 1000, kInt64);
            second.wait();
            first.wait();
            expect_numbers(a, {6}, "world");
            expect_numbers(b, {rank % 2 == 0 ? 2 : 4}, "parity");
            expect_numbers(c, {3 - i % 4}, "backwards");
            expect(big == Numbers(1000, 20), "parity's large call");
          }
        }) == "");
}

TEST_CASE("split: a negative color is in no group, equal keys keep the order of ranks") {
  CHECK(on_both(5, [](Communicator& group) {
          const int rank = group.rank();
          Communicator part = group.split(rank == 2 ? -1 : rank % 2 == 0 ? 7 : 0);
          expect(part.valid() == (rank != 2), "a negative color has a group");
          if (rank != 2) {
            Numbers own{rank}, all(2);
            part.all_gather(own.data(), all.data(), 1, kInt64);
            expect_numbers(all, rank % 2 == 0 ? Numbers{0, 4} : Numbers{1, 3}, "members");
          }
          Communicator none = group.split(-5, 3);
          expect(!none.valid(), "nobody has a color");
          Communicator again = group.split(1);
          expect(again.size() == 5, "split of everybody");
          again.barrier();
          group.barrier();
        }) == "");
}

TEST_CASE("ping-pong, blocking and asynchronous") {
  CHECK(on_both(2, [](Communicator& group) {
          Numbers x{0};
          if (group.rank() == 0) {
            x[0] += 1;
            group.send(x.data(), 1, kInt64, 1);
            group.recv(x.data(), 1, kInt64, 1);
            expect_numbers(x, {2}, "blocking");
            group.send_async(x.data(), 1, kInt64, 1).wait();
            group.recv_async(x.data(), 1, kInt64, 1).wait();
            expect_numbers(x, {3}, "asynchronous");
          } else {
            group.recv(x.data(), 1, kInt64, 0);
            expect_numbers(x, {1}, "received");
            x[0] += 1;
            group.send(x.data(), 1, kInt64, 0);
            Work work = group.recv_async(x.data(), 1, kInt64, 0);
            work.wait();
            expect(work.done() && work.message().bytes == 8, "the message's length");
            x[0] += 1;
            group.send_async(x.data(), 1, kInt64, 0).wait();
          }
        }) == "");
}

TEST_CASE("messages are matched by peer and tag: tags out of order, any source, any tag, shorter than the buffer") {
  CHECK(on_both(3, [](Communicator& group) {
          const int rank = group.rank();
          if (rank == 0) {
            const Numbers a{11}, b{22};
            Work first = group.send_async(a.data(), 1, kInt64, 1, 1);
            Work second = group.send_async(b.data(), 1, kInt64, 1, 2);
            first.wait();
            second.wait();
          } else if (rank == 1) {
            Numbers a{0}, b{0};
            group.recv(b.data(), 1, kInt64, 0, 2);
            group.recv(a.data(), 1, kInt64, 0, 1);
            expect_numbers({a[0], b[0]}, {11, 22}, "tags 2, 1");
          }
          group.barrier();
          // Ranks 1 and 2 send `rank` numbers to rank 0, which does not know from whom, under which tag, nor how many.
          const Numbers mine(static_cast<size_t>(rank), rank);
          if (rank != 0) return group.send(mine.data(), mine.size(), kInt64, 0, 40 + rank);
          std::array<bool, 3> seen{};
          for (int i = 0; i < 2; ++i) {
            Numbers from(4, -1);
            const Message message = group.recv(from.data(), 4, kInt64, kAnySource, kAnyTag);
            expect(message.peer == 1 || message.peer == 2, "the sender's rank");
            expect(message.tag == 40 + message.peer, "the tag");
            expect(message.bytes == 8u * static_cast<uint64_t>(message.peer), "the length");
            Numbers want(4, -1);
            std::fill_n(want.begin(), message.peer, message.peer);
            expect_numbers(from, want, "the numbers");
            seen[static_cast<size_t>(message.peer)] = true;
          }
          expect(seen[1] && seen[2], "one message of each");
        }) == "");
}

TEST_CASE("an isend that nobody has received yet holds up no later collective") {
  // Proves: collectives and messages have links of their own.
  CHECK(on_both(2, [](Communicator& group) {
          Numbers huge(kHuge, group.rank() + 1);
          Work unreceived;
          if (group.rank() == 0) unreceived = group.send_async(huge.data(), kHuge, kInt64, 1, 5);
          Numbers sum(100'000, 1);
          for (int i = 0; i < 5; ++i) group.all_reduce(sum.data(), sum.data(), sum.size(), kInt64);
          expect(sum == Numbers(100'000, 32), "all_reduce");
          if (group.rank() == 0) expect(!unreceived.done(), "64 MiB were sent although nobody has received them");
          if (group.rank() == 1) group.recv(huge.data(), kHuge, kInt64, 0, 5);
          if (group.rank() == 0) unreceived.wait();
          expect(huge == Numbers(kHuge, 1), "the message");
        }) == "");
}

TEST_CASE("both ranks isend 64 MiB and then irecv") {
  // Proves: neither waits for the other's receive before it makes its own.
  CHECK(on_both(2, [](Communicator& group) {
          const Numbers mine(kHuge, group.rank());
          Numbers theirs(kHuge, -1);
          const int other = 1 - group.rank();
          Work sent = group.send_async(mine.data(), kHuge, kInt64, other);
          Work received = group.recv_async(theirs.data(), kHuge, kInt64, other);
          sent.wait();
          received.wait();
          expect(theirs == Numbers(kHuge, other), "the message");
        }) == "");
}

TEST_CASE("sendrecv around the ring, and to oneself") {
  CHECK(on_both(4, [](Communicator& group) {
          const int rank = group.rank();
          for (const size_t count : {size_t{0}, size_t{1}, size_t{300'000}}) {
            const Numbers mine(count, rank);
            Numbers theirs(count, -1);
            const int from = (rank + 3) % 4;
            const auto message =
                group.sendrecv(mine.data(), count, (rank + 1) % 4, theirs.data(), count, from, kInt64, 9);
            expect(message.peer == from && message.tag == 9 && message.bytes == count * 8, "the message");
            expect(theirs == Numbers(count, from), "the numbers");
            group.sendrecv(mine.data(), count, rank, theirs.data(), count, rank, kInt64);
            expect(theirs == mine, "to itself");
          }
        }) == "");
}

TEST_CASE("a message longer than the receiver's buffer fails both sides and names the lengths") {
  CHECK(on_both(2, [](Communicator& group) {
          Numbers x(4, group.rank());
          try {
            if (group.rank() == 0) group.send(x.data(), 4, kInt64, 1, 3);
            if (group.rank() == 1) group.recv(x.data(), 2, kInt64, 0, 3);
            group.barrier();  // a sender whose message was small has not heard of it yet
          } catch (const Exception& failure) {
            expect(failure.code() == ErrorCode::kMismatch, failure.what());
            expect(x[2] == group.rank(), "memory behind the buffer was written");
            return;
          }
          expect(false, "no failure");
        }) == "");
}

}  // namespace rondo::testing
