// Lists of all_reduces and batches, on threads: Works, failures and mistakes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "rondo/dist_opt.h"
#include "rondo/sparse.h"
#include "tests/support/errors.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Floats = std::vector<float>;
using Numbers = std::vector<int64_t>;

RankGroup threads_of(int world) {
  RankGroup shape{.world = world};
  shape.config.bucket_bytes = 16 * 1024;  // lists of a few kilobytes fill several
  return shape;
}

TensorRef in_place(Numbers& numbers) { return {numbers.data(), numbers.data(), numbers.size(), DType::kInt64}; }

void sum(Communicator& group, Numbers& numbers) {
  group.all_reduce(numbers.data(), numbers.data(), numbers.size(), DType::kInt64);
}

void expect_numbers(const Numbers& numbers, int64_t value, const char* what) {
  for (const int64_t n : numbers) {
    expect(n == value, [&] { return fmt::format("{}: {}, should be {}", what, n, value); });
  }
}

}  // namespace

TEST_CASE("a bucket has the bits of the same all_reduce of one buffer") {
  // Proves: fusing changes no rounding but that of being one operation.
  CHECK(run_threads(threads_of(3), [](Communicator& group) {
          Random random(static_cast<uint64_t>(group.rank()) + 1);
          Floats together(900);
          for (float& value : together) value = static_cast<float>(random.below(1u << 24)) / 3.0f;
          Floats a(together.begin(), together.begin() + 100), b(together.begin() + 100, together.begin() + 400),
              c(together.begin() + 400, together.end());
          group.all_reduce(together.data(), together.data(), together.size(), DType::kFloat32);
          const TensorRef list[] = {
              {a.data(), a.data(), a.size()}, {b.data(), b.data(), b.size()}, {c.data(), c.data(), c.size()}};
          group.all_reduce_many(list);
          a.insert(a.end(), b.begin(), b.end());
          a.insert(a.end(), c.begin(), c.end());
          expect(std::memcmp(a.data(), together.data(), together.size() * sizeof(float)) == 0, "bits differ");
        }) == "");
}

TEST_CASE("a factor for a list, and one for each call of a batch") {
  // Proves: factors, which only their rank knows, do not choose what is fused.
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Floats a(10, 1), b(20, 1);
          const TensorRef list[] = {{a.data(), a.data(), a.size()}, {b.data(), b.data(), b.size()}};
          CallOptions options;
          options.scalar = group.rank() + 2;
          group.all_reduce_many(list, Op::kPremulSum, options);
          expect(a == Floats(10, 5) && b == Floats(20, 5), "factors of a list");
          BatchScope calls(group);
          group.all_reduce(a.data(), a.data(), a.size(), DType::kFloat32, Op::kPremulSum, options);
          options.scalar = 2;
          group.all_reduce(b.data(), b.data(), b.size(), DType::kFloat32, Op::kPremulSum, options);
          calls.end();
          expect(a == Floats(10, 25) && b == Floats(20, 20), "factors of a batch");
        }) == "");
}

TEST_CASE("the same list step after step, and lists that take turns") {
  // Proves: operations and memory that are used again carry nothing over.
  CHECK(run_threads(threads_of(3), [](Communicator& group) {
          for (int step = 1; step <= 60; ++step) {
            std::vector<Numbers> tensors;
            for (const size_t count : {3, 700, 40, 9000, 1, 650, 800}) tensors.emplace_back(count, step);
            std::vector<TensorRef> list;
            for (Numbers& tensor : tensors) list.push_back(in_place(tensor));
            if (step % 4 == 0) list.resize(3);
            if (step % 3 == 0) {
              group.all_reduce_many_async(list).wait();
            } else {
              group.all_reduce_many(list);
            }
            for (size_t i = 0; i < tensors.size(); ++i) {
              expect_numbers(tensors[i], i < list.size() ? 3 * step : step, "a step");
            }
          }
        }) == "");
}

TEST_CASE("nothing at all") {
  for (const int world : {1, 2}) {
    CHECK(run_threads(threads_of(world), [](Communicator& group) {
            group.all_reduce_many({});
            expect(group.all_reduce_many_async({}).done(), "an empty list is done");
            group.batch_begin();
            group.batch_end();
            BatchScope calls(group);
            expect(calls.end_async().done(), "an empty batch is done");
            const TensorRef nothing[] = {{}, {}};
            group.all_reduce_many(nothing);
            group.batch_abandon();
          }) == "");
  }
}

TEST_CASE("Works of a batch") {
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          const int other = 1 - group.rank();
          Numbers values(10, 1), incoming(100'000, -1);
          const Numbers outgoing(100'000, group.rank());
          BatchScope calls(group);
          Call call;
          call.input = call.output = values.data();
          call.count = values.size();
          call.dtype = DType::kInt64;
          Work collective = group.start(call);
          Work send = group.send_async(outgoing.data(), outgoing.size(), DType::kInt64, other, 3);
          Work receive = group.recv_async(incoming.data(), incoming.size(), DType::kInt64, other, 3);
          expect(!collective.done() && !send.done() && !receive.done(), "done before the end");
          expect_error([&] { collective.wait(); }, ErrorCode::kInvalid, "batch_end()");
          expect_error([&] { receive.wait(); }, ErrorCode::kInvalid, "batch_end()");
          Work whole = calls.end_async();
          receive.wait();
          expect(receive.message().peer == other && receive.message().bytes == 800'000, "message");
          whole.wait();
          expect(collective.done() && send.done() && !whole.error() && !collective.error(), "done at the end");
          expect_numbers(values, 2, "sum");
          expect_numbers(incoming, other, "message");
        }) == "");
}

TEST_CASE("mistakes of a batch leave it, or the communicator, usable") {
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          expect_error([&] { group.batch_end(); }, ErrorCode::kInvalid, "no batch is open");
          Numbers a(10, 1), b(10, 2);
          group.batch_begin();
          expect_error([&] { group.batch_begin(); }, ErrorCode::kInvalid, "do not nest");
          sum(group, a);
          expect_error([&] { group.broadcast(a.data(), 1, DType::kInt64, 9); }, ErrorCode::kInvalid, "root is 9");
          expect_error([&] { group.send(nullptr, 1, DType::kInt64, 0); }, ErrorCode::kInvalid, "null");
          const TensorRef broken[] = {in_place(b), {nullptr, b.data(), 3, DType::kInt64}};
          expect_error([&] { group.all_reduce_many(broken); }, ErrorCode::kInvalid, "tensor 1 of 2");
          std::thread([&] {
            expect_error([&] { group.batch_begin(); }, ErrorCode::kInvalid, "on another thread");
            expect_error([&] { group.batch_end(); }, ErrorCode::kInvalid, "another thread");
          }).join();
          group.batch_end();
          expect_numbers(a, 2, "the good call");
          expect_numbers(b, 2, "the bad list");
          sum(group, b);
          expect_numbers(b, 4, "afterwards");
        }) == "");
}

TEST_CASE("a batch of a thread that has ended is no other thread's, and may be abandoned") {
  CHECK(run_threads(threads_of(1), [](Communicator& group) {
          std::thread([&] { group.batch_begin(); }).join();
          // The system gives it the id of the first.
          std::thread([&] {
            Numbers a(10, 1);
            sum(group, a);
            expect_numbers(a, 1, "not collected");
            expect_error([&] { group.batch_end(); }, ErrorCode::kInvalid, "another thread");
            expect_error([&] { group.batch_begin(); }, ErrorCode::kInvalid, "has ended: batch_abandon()");
            group.batch_abandon();
            group.batch_begin();
            group.batch_end();
          }).join();
        }) == "");
}

TEST_CASE("a sendrecv for which a batch has no room leaves none of its messages in it") {
  CHECK(run_threads(threads_of(1), [](Communicator& group) {
          constexpr size_t kMost = 65'536;
          int64_t out = 1, in = 0;
          group.batch_begin();
          for (size_t i = 1; i < kMost; ++i) group.send(&out, 1, DType::kInt64, 0);
          expect_error([&] { group.sendrecv(&out, 1, 0, &in, 1, 0, DType::kInt64); }, ErrorCode::kInvalid,
                       "more than 65536 calls");
          group.send(&out, 1, DType::kInt64, 0);  // the last one that fits
          expect_error([&] { group.send(&out, 1, DType::kInt64, 0); }, ErrorCode::kInvalid, "more than 65536 calls");
          group.batch_abandon();
        }) == "");
}

TEST_CASE("calls that are made of others are refused in a batch before anything happens; it goes on") {
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Floats gradient(100, 2.0f), parameter(100, 1.0f), residual(100, 0.5f);
          const std::vector<NamedGradient> gradients{{"w", parameter.data(), gradient.data(), 100}};
          const int ranks[] = {0, 1};
          DistOpt optimizer(group, gradients);
          SparseOptions sparse;
          sparse.residual = residual.data();
          int updates = 0;
          const std::pair<const char*, std::function<void()>> calls[] = {
              {"split", [&] { group.split(0); }},
              {"new_group", [&] { group.new_group(ranks); }},
              {"attach_device", [&] { group.attach_device(); }},
              {"allocate", [&] { group.allocate(64, Memory::kDevice); }},
              {"sparse_all_reduce", [&] { sparse_all_reduce(group, gradient.data(), gradient.data(), 100, sparse); }},
              {"DistOpt", [&] { DistOpt(group, gradients); }},
              {"DistOpt::ready", [&] { optimizer.ready("w"); }},
              {"DistOpt::step", [&] { optimizer.step([&](const NamedGradient&) { ++updates; }); }},
              {"DistOpt::save", [&] { optimizer.save(); }},
          };
          Numbers a(10, 1);
          group.batch_begin();
          sum(group, a);
          for (const auto& [name, call] : calls) {
            expect_error(call, ErrorCode::kInvalid, fmt::format("{} on rank {}: not in a batch", name, group.rank()));
          }
          group.batch_end();
          expect_numbers(a, 2, "the good call");
          expect(gradient == Floats(100, 2.0f) && parameter == Floats(100, 1.0f) && residual == Floats(100, 0.5f) &&
                     updates == 0,
                 "a buffer has changed");
          optimizer.ready("w");
          optimizer.step([&](const NamedGradient&) { ++updates; });
          expect(updates == 1 && optimizer.steps() == 1, "no step afterwards");
        }) == "");
}

TEST_CASE("what cannot be submitted closes the batch, and nothing of it was done") {
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Numbers a(10, 1);
          group.batch_begin();
          sum(group, a);
          Work work = group.recv_async(a.data(), 1, DType::kInt64, 0);
          group.all_reduce(a.data() + 5, a.data() + 5, 5, DType::kInt64);
          expect_error([&] { group.batch_end(); }, ErrorCode::kInvalid, "tensors 0 and 1 of 2 overlap");
          expect(work.done() && work.error()->code == ErrorCode::kInvalid, "the message of it");
          CallOptions options;
          options.algorithm = Algorithm::kPat;  // not for all_reduce
          group.batch_begin();
          group.barrier();
          group.all_reduce(a.data(), a.data(), 10, DType::kInt64, Op::kSum, options);
          expect_error([&] { group.batch_end(); }, ErrorCode::kInvalid, "algorithm");
          expect_error([&] { group.batch_end(); }, ErrorCode::kInvalid, "no batch is open");
          const TensorRef twice[] = {in_place(a), in_place(a)};
          expect_error([&] { group.all_reduce_many(twice); }, ErrorCode::kInvalid, "overlap");
          expect_numbers(a, 1, "untouched");
          sum(group, a);
          expect_numbers(a, 2, "afterwards");
        }) == "");
}

TEST_CASE("a batch with a call that no plan serves: the communicator goes on, as behind that call by itself") {
  CHECK(run_threads(threads_of(65), [](Communicator& group) {  // more than a plan to one root keeps in order
          const uint8_t in = 1;
          uint8_t out = 0;
          CallOptions options;
          options.user = {[](const void*, void*, size_t, void*) {}, nullptr, 1, false};
          const auto reduce = [&] { group.reduce(&in, &out, 1, DType::kUint8, Op::kUser, 1, options); };
          expect_error(reduce, ErrorCode::kUnsupported, "keeps their order");
          group.batch_begin();
          reduce();
          expect_error([&] { group.batch_end(); }, ErrorCode::kUnsupported, "keeps their order");
          group.barrier();
        }) == "");
}

TEST_CASE("an exception on the way out abandons the batch") {
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Numbers a(10, 1);
          Work work;
          try {
            BatchScope calls(group);
            sum(group, a);
            work = group.send_async(a.data(), 10, DType::kInt64, 0);
            throw 1;
          } catch (int) {
          }
          expect_error([&] { work.wait(); }, ErrorCode::kInvalid, "abandoned");
          expect_numbers(a, 1, "untouched");
          sum(group, a);
          expect_numbers(a, 2, "afterwards");
        }) == "");
}

TEST_CASE("calls of other threads are not collected") {
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Numbers a(10, 1), b(10, 1), c(10, 5), d(10, -1);
          const int other = 1 - group.rank();
          BatchScope calls(group);
          sum(group, a);
          std::thread([&] {
            sum(group, b);
            expect_numbers(b, 2, "of another thread");
            group.sendrecv(c.data(), 10, other, d.data(), 10, other, DType::kInt64);
          }).join();
          expect_numbers(d, 5, "message of another thread");
          expect_numbers(a, 1, "not yet");
          calls.end();
          expect_numbers(a, 2, "at the end");
        }) == "");
}

TEST_CASE("an operation whose buffers depend on an earlier one of the batch") {
  // Proves: collectives run in call order; only all_reduces next to each other have none.
  CHECK(run_threads(threads_of(3), [](Communicator& group) {
          Numbers a(10, 1), b(10, 0);
          BatchScope calls(group);
          sum(group, a);
          group.broadcast(a.data(), 10, DType::kInt64, 1);
          group.all_reduce(a.data(), b.data(), 10, DType::kInt64);
          calls.end();
          expect_numbers(a, 3, "first");
          expect_numbers(b, 9, "second");
        }) == "");
}

TEST_CASE("a batch with one all_reduce is that all_reduce") {
  // Proves: what is not fused need not be grouped alike.
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Numbers a(10, 1);
          if (group.rank() == 0) group.batch_begin();
          sum(group, a);
          if (group.rank() == 0) group.batch_end();
          expect_numbers(a, 2, "sum");
        }) == "");
}

TEST_CASE("lists that differ end in a mismatch on all ranks before anything is written") {
  struct Difference {
    const char* what;
    std::vector<size_t> odd;
    DType odd_type;
    Op odd_op;
    const char* text;
  };
  // The usual list: int64 sums of 10, 5000, 20 elements.
  const Difference differences[] = {
      {"a small count", {10, 5000, 21}, DType::kInt64, Op::kSum, "number 2 (from 0): 2"},
      {"a large count", {10, 4999, 20}, DType::kInt64, Op::kSum, "[int64 sum 10, 4999, 20]"},
      {"small counts of the same sum", {11, 5000, 19}, DType::kInt64, Op::kSum, "[int64 sum 11, 5000, 19]"},
      {"the order", {5000, 10, 20}, DType::kInt64, Op::kSum, "number 0 (from 0): int64 sum "},
      {"one more", {10, 5000, 20, 1}, DType::kInt64, Op::kSum, "[int64 sum 10, 5000, 20, 1]"},
      {"an empty one more", {10, 5000, 20, 0}, DType::kInt64, Op::kSum, "number 3 (from 0): "},
      {"a type", {10, 5000, 20}, DType::kUint64, Op::kSum, "[uint64 sum 10, 5000, 20]"},
      {"the operation", {10, 5000, 20}, DType::kInt64, Op::kMax, "[int64 max 10, 5000, 20]"},
  };
  for (const Difference& difference : differences) {
    const std::string what = difference.what;
    CAPTURE(what);
    CHECK(run_threads(threads_of(3), [&](Communicator& group) {
            const bool odd = group.rank() == 1;
            std::vector<Numbers> tensors;
            for (const size_t count : odd ? difference.odd : std::vector<size_t>{10, 5000, 20}) {
              tensors.emplace_back(count, 1);
            }
            std::vector<TensorRef> list;
            for (Numbers& tensor : tensors) list.push_back(in_place(tensor));
            for (TensorRef& tensor : list) tensor.dtype = odd ? difference.odd_type : DType::kInt64;
            const auto run = [&] { group.all_reduce_many(list, odd ? difference.odd_op : Op::kSum); };
            expect_error(run, ErrorCode::kMismatch, "[int64 sum 10, 5000, 20]");
            expect_error(run, ErrorCode::kMismatch, difference.text);
            for (const Numbers& tensor : tensors) expect_numbers(tensor, 1, "untouched");
          }) == "");
  }
}

TEST_CASE("a list against single calls, and a list with another's tail") {
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Numbers a(10, 1), b(20, 1);
          const TensorRef list[] = {in_place(a), in_place(b)};
          expect_error(
              [&] {
                if (group.rank() == 0) return group.all_reduce_many(list);
                sum(group, a);
                sum(group, b);
              },
              ErrorCode::kMismatch, "all_reduce of 2 tensors [int64 sum 10, 20], operation 1 of 1 (count=30, ");
        }) == "");
}

TEST_CASE("abort and destroy end a list under way, and a batch that is open") {
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Numbers a(10, 1), b(5000, 1);
          const TensorRef list[] = {in_place(a), in_place(b)};
          if (group.rank() == 0) {
            Work work;
            expect_error(
                [&] {
                  work = group.all_reduce_many_async(list);
                  work.wait();
                },
                ErrorCode::kAborted, "enough");
            expect(!work.valid() || (work.done() && work.error().has_value()), "done after a failure");
            group.destroy();
            return;
          }
          BatchScope calls(group);
          sum(group, a);
          Work work = group.send_async(a.data(), 10, DType::kInt64, 0);
          group.abort("enough");
          expect_error([&] { sum(group, b); }, ErrorCode::kAborted, "enough");
          expect_error([&] { calls.end(); }, ErrorCode::kAborted, "enough");
          expect_error([&] { work.wait(); }, ErrorCode::kAborted, "enough");
          group.destroy();
        }) == "");
  CHECK(run_threads(threads_of(2), [](Communicator& group) {
          Numbers a(10, 1);
          group.batch_begin();
          sum(group, a);
          Work work = group.send_async(a.data(), 10, DType::kInt64, 0);
          std::thread([&] { group.destroy(); }).join();
          expect_error([&] { work.wait(); }, ErrorCode::kClosed, "in a batch");
          expect_error([&] { group.batch_end(); }, ErrorCode::kInvalid, "no batch is open");
          expect_error([&] { group.batch_begin(); }, ErrorCode::kClosed, "destroyed");
          expect_numbers(a, 1, "untouched");
        }) == "");
}

}  // namespace rondo::testing
