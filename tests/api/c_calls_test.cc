// The options of rondo.h's calls, and what is no collective, through that header alone. tests/life has every collective
// by its name (calls.life), lists, batches and messages.
#include <doctest/doctest.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "rondo/rondo.h"
#include "tests/api/c_ranks.h"

namespace {

using rondo::testing::expect;
using rondo::testing::on_threads;
using rondo::testing::want;
using rondo::testing::want_text;
using Numbers = std::vector<int64_t>;

void want_invalid(rondo_result_t got, const char* named) { want_text(got, RONDO_INVALID, named); }

// Starts an asynchronous call, and gives its result.
rondo_result_t wait_for(const std::function<rondo_result_t(rondo_work_t*)>& start) {
  rondo_work_t work = nullptr;
  if (const rondo_result_t refused = start(&work); refused != RONDO_OK) return refused;
  const rondo_result_t result = rondo_wait(work, -1);
  want(rondo_work_free(work));
  return result;
}

}  // namespace

TEST_CASE("a list of tensors, and batches") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          Numbers a{1, 2}, b(300'000, rank), in(100'000, -1);
          const Numbers out(100'000, rank);
          const rondo_tensor_t list[] = {{b.data(), b.data(), b.size(), RONDO_INT64}};
          rondo_work_t work = nullptr, part = nullptr;
          want(rondo_all_reduce_many(comm, nullptr, 0, RONDO_SUM, nullptr));
          want_invalid(rondo_all_reduce_many(comm, nullptr, 2, RONDO_SUM, nullptr), "tensors");
          want_invalid(rondo_all_reduce_many(nullptr, list, 1, RONDO_SUM, nullptr), "comm");

          want_invalid(rondo_batch_end(comm), "no batch");
          want(rondo_batch_begin(comm));
          want_invalid(rondo_batch_begin(comm), "nest");
          want(rondo_send(comm, out.data(), out.size(), RONDO_INT64, 1 - rank, 4, nullptr));
          want(rondo_all_reduce(comm, a.data(), a.data(), 2, RONDO_INT64, RONDO_SUM, nullptr));
          want(rondo_all_reduce_many(comm, list, 1, RONDO_SUM, nullptr));
          want(rondo_recv_async(comm, in.data(), in.size(), RONDO_INT64, 1 - rank, 4, nullptr, &part));
          want_invalid(rondo_wait(part, -1), "batch_end");
          want(rondo_batch_end_async(comm, &work));
          want(rondo_wait(work, -1));
          rondo_message_t message{};
          want(rondo_work_message(part, &message));
          expect(message.peer == 1 - rank && message.bytes == 800'000 && in[5] == 1 - rank, "message of a batch");
          want(rondo_work_free(part));
          want(rondo_work_free(work));
          expect(a == Numbers{2, 4} && b.front() == 1 && b.back() == 1, "sums of a batch");
          want(rondo_batch_begin(comm));
          want(rondo_barrier(comm, nullptr));
          want(rondo_batch_abandon(comm));
          want(rondo_batch_abandon(comm));
          want_invalid(rondo_batch_end(comm), "no batch");
          want(rondo_batch_begin(comm));
          want(rondo_barrier(comm, nullptr));
          want(rondo_batch_end(comm));
        }) == "");
}

TEST_CASE("reductions by a function, and a communicator once more") {
  std::barrier<> all_are_done(3);  // with comm: to shrink it ends the calls of others
  CHECK(on_threads(3, [&all_are_done](rondo_comm_t comm, int rank) {
          for (const bool async : {false, true}) {
            const Numbers in{rank + 1, 10 * rank + 10};
            Numbers out(2, -1);
            rondo_options_t options = RONDO_OPTIONS_INIT;
            // The result of two pairs: the first one's left and the last one's right.
            options.user.function = [](const void* left, void* right, size_t count, void* calls) {
              for (size_t i = 0; i < count; ++i) {
                static_cast<int64_t*>(right)[2 * i] = static_cast<const int64_t*>(left)[2 * i];
              }
              ++*static_cast<std::atomic<int>*>(calls);
            };
            std::atomic<int> calls{0};
            options.user.context = &calls;
            options.user.element_bytes = 16;
            const auto start = [&](rondo_work_t* work) {
              return rondo_all_reduce_async(comm, in.data(), out.data(), 1, RONDO_FLOAT32, RONDO_USER, &options, work);
            };
            want(async ? wait_for(start)
                       : rondo_all_reduce(comm, in.data(), out.data(), 1, RONDO_FLOAT32, RONDO_USER, &options));
            expect(out == Numbers{1, 30} && calls > 0, "all_reduce by a function");
            want_invalid(rondo_all_reduce(comm, in.data(), out.data(), 1, RONDO_INT64, RONDO_USER, nullptr),
                         "function");
            want_invalid(rondo_scan(comm, in.data(), out.data(), 2, RONDO_INT64, RONDO_AVG, nullptr), "avg");
          }
          rondo_comm_t copy = nullptr;
          want(rondo_dup(comm, &copy));
          int64_t sum = rank, other = 10 * rank;
          rondo_work_t work = nullptr;
          want(rondo_all_reduce_async(copy, &other, &other, 1, RONDO_INT64, RONDO_SUM, nullptr, &work));
          want(rondo_all_reduce(comm, &sum, &sum, 1, RONDO_INT64, RONDO_SUM, nullptr));
          want(rondo_wait(work, -1));
          want(rondo_work_free(work));
          expect(sum == 3 && other == 30, "two communicators at once");
          want(rondo_destroy(copy));
          want_invalid(rondo_dup(comm, nullptr), "copy");
          uint64_t epoch = 7;
          want(rondo_epoch(comm, &epoch));
          want_invalid(rondo_shrink(comm, -1, &copy), "timeout");
          want_invalid(rondo_shrink(comm, 0, nullptr), "next");
          int newcomers = 7;
          want(rondo_newcomers(comm, &newcomers));
          expect(newcomers == 0, "no newcomers");
          want_invalid(rondo_newcomers(comm, nullptr), "newcomers");
          want_invalid(rondo_grow(comm, 1, 0, &copy), "join()");
          want_invalid(rondo_grow(comm, 1, 0, nullptr), "next");
          rondo_comm_t next = nullptr;
          all_are_done.arrive_and_wait();
          want(rondo_shrink(comm, 0, &next));
          expect(epoch == 0, "the first epoch");
          want(rondo_epoch(next, &epoch));
          expect(epoch == 1, "the next epoch");
          sum = 1;
          want(rondo_all_reduce(next, &sum, &sum, 1, RONDO_INT64, RONDO_SUM, nullptr));
          expect(sum == 3, "the communicator goes on");
          want(rondo_commit(next, 4, 5));
          int64_t step = 0;
          want(rondo_committed(next, &step));
          expect(step == 4, "committed");
          want_invalid(rondo_commit(next, 4, 5), "step");
          want_invalid(rondo_committed(next, nullptr), "step");
          want(rondo_commit(next, 5, static_cast<uint64_t>(rank)), RONDO_CORRUPT);
          want(rondo_barrier(comm, nullptr), RONDO_CLOSED);
          want(rondo_destroy(next));
        }) == "");
}

TEST_CASE("a call as one structure") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          Numbers data{rank + 1, 10}, all(2, -1);
          const auto mine = static_cast<int64_t>(rank);
          rondo_call_t call = RONDO_CALL_INIT;
          call.dtype = RONDO_INT64;
          call.op = RONDO_MAX;
          call.input = call.output = data.data();
          call.count = data.size();
          want(rondo_run(comm, &call));
          expect(data == Numbers{2, 10}, "rondo_run");
          call.collective = RONDO_ALL_GATHER;
          call.input = &mine;
          call.output = all.data();
          call.count = 1;
          want(wait_for([&](rondo_work_t* work) { return rondo_start(comm, &call, work); }));
          expect(all == Numbers{0, 1}, "rondo_start");
          want_invalid(rondo_run(comm, nullptr), "call is NULL");
          want_invalid(rondo_start(comm, &call, nullptr), "work is NULL");
          call.collective = 77;
          want_invalid(rondo_run(comm, &call), "collective 77");
          call.struct_bytes = 12;
          want_invalid(rondo_run(comm, &call), "call->struct_bytes is 12");
        }) == "");
}

TEST_CASE("options: factor, algorithm, size of the structure, timeout") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          rondo_options_t options = RONDO_OPTIONS_INIT;
          options.scalar = rank + 2;
          double x = 10;
          want(rondo_all_reduce(comm, &x, &x, 1, RONDO_FLOAT64, RONDO_PREMULSUM, &options));
          expect(x == 50, "2 * 10 + 3 * 10");
          for (const char* name : {"auto", "ring", "direct", "doubling", "tree", "hierarchical", "star"}) {
            options.algorithm = name;
            want(rondo_all_reduce(comm, &x, &x, 1, RONDO_FLOAT64, RONDO_SUM, &options));
          }
          expect(x == 50 * 128, "seven sums of two");
          options.algorithm = "spiral";
          want_invalid(rondo_barrier(comm, &options), "spiral");
          options = RONDO_OPTIONS_INIT;
          options.timeout_ms = -1;
          want_invalid(rondo_barrier(comm, &options), "timeout");
          options.timeout_ms = std::numeric_limits<int64_t>::max();
          want(rondo_barrier(comm, &options));
        }) == "");
}

TEST_CASE("options of callers compiled with older and newer headers") {
  // Proves: what an older caller does not know has its default, whatever lies behind its structure; what a newer caller
  // sets and this library does not know is refused, and never ignored.
  CHECK(on_threads(1, [](rondo_comm_t comm, int) {
          rondo_options_t older = RONDO_OPTIONS_INIT;
          older.struct_bytes = offsetof(rondo_options_t, scalar);
          older.scalar = 5;
          older.algorithm = "spiral";
          double x = 10;
          want(rondo_all_reduce(comm, &x, &x, 1, RONDO_FLOAT64, RONDO_PREMULSUM, &older));
          expect(x == 10, "the factor is its default, 1");
          older.timeout_ms = -1;
          want_invalid(rondo_barrier(comm, &older), "timeout");

          struct {
            rondo_options_t known = RONDO_OPTIONS_INIT;
            int64_t later = 0;
          } newer;
          newer.known.struct_bytes = sizeof newer;
          newer.known.scalar = 3;
          want(rondo_all_reduce(comm, &x, &x, 1, RONDO_FLOAT64, RONDO_PREMULSUM, &newer.known));
          expect(x == 30, "fields that both know are read");
          newer.later = int64_t{1} << 56;
          want_invalid(rondo_barrier(comm, &newer.known), "struct_bytes");

          rondo_options_t options = RONDO_OPTIONS_INIT;
          for (const size_t bytes : {size_t{0}, size_t{4}, sizeof options - 1, size_t{1} << 20, SIZE_MAX}) {
            options.struct_bytes = bytes;
            want_invalid(rondo_barrier(comm, &options), "struct_bytes");
          }
        }) == "");
}

TEST_CASE("work handles: test, a wait that runs out, a long wait, free before the end") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          Numbers x(100, 1);
          rondo_work_t work = nullptr;
          int done = -1;
          char go = 1;
          if (rank == 0) {
            want(rondo_all_reduce_async(comm, x.data(), x.data(), 100, RONDO_INT64, RONDO_SUM, nullptr, &work));
            want(rondo_wait(work, 0), RONDO_IN_PROGRESS);
            want(rondo_wait(work, 20), RONDO_IN_PROGRESS);
            want(rondo_test(work, &done));
            expect(done == 0, "done without rank 1");
            want(rondo_send(comm, &go, 1, RONDO_INT8, 1, 0, nullptr));
            want(rondo_wait(work, std::numeric_limits<int64_t>::max()));
          } else {
            want(rondo_recv(comm, &go, 1, RONDO_INT8, 0, 0, nullptr, nullptr));
            want(rondo_all_reduce_async(comm, x.data(), x.data(), 100, RONDO_INT64, RONDO_SUM, nullptr, &work));
            want(rondo_wait(work, -1));
          }
          want(rondo_test(work, &done));
          expect(done == 1 && x == Numbers(100, 2), "done");
          want(rondo_work_free(work));
          want(rondo_all_reduce_async(comm, x.data(), x.data(), 100, RONDO_INT64, RONDO_SUM, nullptr, &work));
          want(rondo_work_free(work));
          want(rondo_barrier(comm, nullptr));
          expect(x == Numbers(100, 4), "a freed operation goes on");
          want(rondo_barrier_async(comm, nullptr, &work));
          want(rondo_wait(work, -1));
          want(rondo_work_free(work));
          want(rondo_work_free(nullptr));
        }) == "");
}

// What arrives, and what a receive says of it: tests/life.
TEST_CASE("messages: the handle of a send names it, and what cannot be is refused") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          const int other = 1 - rank;
          const Numbers mine{rank, rank, rank};
          Numbers theirs(3, -1);
          rondo_work_t sent = nullptr, received = nullptr;
          rondo_message_t message = {-5, -5, 0, 5};
          want(rondo_send_async(comm, mine.data(), 3, RONDO_INT64, other, 42, nullptr, &sent));
          want(rondo_recv(comm, theirs.data(), 3, RONDO_INT64, other, 42, nullptr, nullptr));
          want(rondo_wait(sent, -1));
          want(rondo_work_message(sent, &message));
          expect(message.peer == other && message.tag == 42 && message.bytes == 24, "message of a send");
          want(rondo_work_free(sent));
          want_invalid(rondo_send(comm, mine.data(), 1, RONDO_INT64, 9, 0, nullptr), "destination is 9");
          want_invalid(rondo_recv_async(comm, theirs.data(), 1, RONDO_INT64, 0, -7, nullptr, &received), "tag is -7");
          expect(received == nullptr, "a handle of a refused call");
        }) == "");
}

TEST_CASE("several works at once, a send and a receive as one, and calls that are kept") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          const int other = 1 - rank;
          const int64_t mine = rank;
          int64_t theirs = -1, never = -1;
          rondo_message_t message = {-5, -5, 0, 5};
          rondo_work_t works[3] = {};
          size_t index = 7;
          want(rondo_wait_any(works, 3, -1, &index));
          expect(index == 3, "no work");
          want(rondo_recv_async(comm, &never, 1, RONDO_INT64, other, 1, nullptr, &works[0]));
          want(rondo_sendrecv_async(comm, &mine, 1, other, &theirs, 1, other, RONDO_INT64, 2, nullptr, &works[2]));
          want(rondo_wait_any(works, 3, -1, &index));
          expect(index == 2 && theirs == other, "the one that has ended");
          want(rondo_work_message(works[2], &message));
          expect(message.peer == other && message.tag == 2 && message.bytes == 8, "message of both");
          expect(rondo_wait_any(works, 1, 1, &index) == RONDO_IN_PROGRESS && index == 1, "time ran out");
          expect(rondo_wait_all(works, 3, 1) == RONDO_IN_PROGRESS, "time ran out for all");
          want(rondo_barrier(comm, nullptr));
          want(rondo_send(comm, &mine, 1, RONDO_INT64, other, 1, nullptr));
          want(rondo_wait_all(works, 3, -1));
          expect(never == other, "wait_all");
          want_invalid(rondo_wait_any(works, 3, -1, nullptr), "index is NULL");
          want_invalid(rondo_wait_all(nullptr, 3, -1), "works is NULL");
          want(rondo_wait_all(nullptr, 0, -1));
          for (const rondo_work_t work : works) want(rondo_work_free(work));

          int64_t value = 0;
          rondo_call_t kept = RONDO_CALL_INIT;  // what MPI calls a persistent call
          kept.dtype = RONDO_INT64;
          kept.input = kept.output = &value;
          kept.count = 1;
          for (int i = 0; i < 300; ++i) {
            value = i + rank;
            rondo_work_t work = nullptr;
            want(rondo_start(comm, &kept, &work));
            want(rondo_wait(work, -1));
            want(rondo_work_free(work));
            expect(value == 2 * i + 1, "a kept call");
          }
          rondo_comm_t host = nullptr;
          int size = -1, place = -1;
          want(rondo_split_by_host(comm, -rank, &host));
          want(rondo_size(host, &size));
          want(rondo_rank(host, &place));
          expect(size == 2 && place == other, "the ranks of a host, by key");
          want(rondo_destroy(host));
        }) == "");
}

TEST_CASE("probes, matched receives, cancel, truncation and synchronous sends") {
  CHECK(on_threads(1, [](rondo_comm_t comm, int) {
          const Numbers mine{1, 2, 3};
          Numbers got(3, -1);
          rondo_work_t work = nullptr;
          rondo_message_t message = {-5, -5, 0, 5};
          int found = -1, cancelled = -1, done = -1;
          rondo_options_t options = RONDO_OPTIONS_INIT;
          const auto send = [&](int tag) { want(rondo_send(comm, mine.data(), 3, RONDO_INT64, 0, tag, nullptr)); };
          const auto expect_found = [&](int tag) {
            expect(message.peer == 0 && message.tag == tag && message.bytes == 24, "the message that was found");
            message = {-5, -5, 0, 5};
          };
          want(rondo_iprobe(comm, 0, RONDO_ANY_TAG, &found, &message));
          expect(found == 0 && message.peer == -5, "nothing is there");
          send(1);
          want(rondo_iprobe(comm, RONDO_ANY_SOURCE, 1, &found, &message));
          expect(found == 1 && message.matched == 0, "a message is there");
          expect_found(1);
          want(rondo_probe(comm, 0, 1, nullptr, &message));
          expect_found(1);
          want(rondo_probe_async(comm, 0, 2, nullptr, &work));
          want(rondo_test(work, &done));
          expect(done == 0, "another tag");
          send(2);
          want(rondo_wait(work, -1));
          want(rondo_work_message(work, &message));
          want(rondo_work_free(work));
          expect_found(2);
          want(rondo_mprobe(comm, 0, 1, nullptr, &message));
          const uint64_t first = message.matched;
          expect_found(1);
          want(rondo_improbe(comm, 0, RONDO_ANY_TAG, &found, &message));
          const uint64_t second = message.matched;
          expect(found == 1 && first != 0 && second != 0 && first != second, "numbers of matched messages");
          expect_found(2);
          want(rondo_mrecv(comm, got.data(), 3, RONDO_INT64, first, nullptr, &message));
          expect_found(1);
          want(wait_for([&](rondo_work_t* of) {
            return rondo_mrecv_async(comm, got.data(), 3, RONDO_INT64, second, nullptr, of);
          }));
          expect(got == mine, "what was received");
          want_invalid(rondo_mrecv(comm, got.data(), 3, RONDO_INT64, first, nullptr, nullptr), "once");
          want(rondo_mprobe_async(comm, 0, 3, nullptr, &work));
          want(rondo_work_cancel(work, &cancelled));
          expect(cancelled == 1, "taken back");
          want(rondo_wait(work, -1), RONDO_CANCELLED);
          want(rondo_work_cancel(work, &cancelled));
          expect(cancelled == 0, "it has ended");
          want_invalid(rondo_work_cancel(work, nullptr), "cancelled");
          want(rondo_work_free(work));
          send(4);
          options.flags = RONDO_TRUNCATE;
          got = {-1, -1, -1};
          want(rondo_recv(comm, got.data(), 2, RONDO_INT64, 0, 4, &options, nullptr), RONDO_TRUNCATED);
          expect(got == Numbers{1, 2, -1}, "the beginning");
          options.flags = RONDO_SYNCHRONOUS;
          want(rondo_send_async(comm, mine.data(), 3, RONDO_INT64, 0, 5, &options, &work));
          want(rondo_test(work, &done));
          expect(done == 0, "it has no receive");
          want(rondo_recv(comm, got.data(), 3, RONDO_INT64, 0, 5, nullptr, nullptr));
          want(rondo_wait(work, -1));
          want(rondo_work_free(work));
          options.flags = RONDO_RECOVERABLE;
          want_invalid(rondo_send(comm, mine.data(), 3, RONDO_INT64, 0, 5, &options), "recoverable is an option");
          options.flags = 8;
          want_invalid(rondo_send(comm, mine.data(), 3, RONDO_INT64, 0, 5, &options), "unknown flags 8");
          want_invalid(rondo_improbe(comm, 0, 0, &found, nullptr), "message");
          want_invalid(rondo_iprobe(comm, 0, 0, nullptr, &message), "found");
          want_invalid(rondo_mprobe(comm, 0, 0, nullptr, nullptr), "message");
        }) == "");
}

TEST_CASE("wire formats and sparse all_reduce in C") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          std::vector<float> x(300, 0.5f), residual(300);
          rondo_options_t options = RONDO_OPTIONS_INIT;
          const auto reduce = [&] {
            return rondo_all_reduce(comm, x.data(), x.data(), x.size(), RONDO_FLOAT32, RONDO_SUM, &options);
          };
          options.wire = 8;
          want_invalid(reduce(), "unknown wire format 8");
          options.wire = RONDO_WIRE_INT8;
          options.wire_flags = 4;
          want_invalid(reduce(), "unknown wire flags 4");
          options.wire_flags = RONDO_WIRE_STOCHASTIC;
          options.wire_seed = 3;
          options.residual = residual.data();
          want(reduce());
          expect(x == std::vector<float>(300, 1.0f), "another sum");
          x[7] = rank == 1 ? std::numeric_limits<float>::infinity() : 1.0f;
          want(reduce(), RONDO_NOT_FINITE);
          int culprit = -1;
          expect(rondo_last_error_ranks(&culprit, 1) == 1 && culprit == 1, "another culprit");

          options = RONDO_OPTIONS_INIT;
          options.wire = RONDO_WIRE_PACKED;
          want_invalid(reduce(), "packed is for broadcast and all_gather");
          if (rank == 0) std::iota(x.begin(), x.end(), 0.5f);
          want(rondo_broadcast(comm, x.data(), x.size(), RONDO_FLOAT32, 0, &options));
          expect(x[0] == 0.5f && x[299] == 299.5f, "another broadcast");

          rondo_sparse_options_t sparse = RONDO_SPARSE_OPTIONS_INIT;
          rondo_sparse_report_t report;
          std::vector<float> y(300);
          for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
          sparse.spars = 0.01;
          want(rondo_sparse_all_reduce(comm, x.data(), y.data(), x.size(), &sparse, &report));
          expect(report.selected == 3 && report.total == 6 && report.bytes_sent == 24, "report");
          expect(report.route == RONDO_SPARSE_GATHERED, "another route");
          expect(y[299] == 598.0f && y[297] == 594.0f && y[296] == 0.0f, "another sparse sum");
          const uint64_t tensors[] = {100, 200};
          sparse.tensors = tensors;
          sparse.tensor_count = 2;
          want(rondo_sparse_all_reduce(comm, x.data(), y.data(), x.size(), &sparse, &report));
          expect(report.selected == 3 && y[99] == 198.0f && y[298] == 596.0f && y[297] == 0.0f, "tensors");
          sparse.tensor_count = 1;
          want_invalid(rondo_sparse_all_reduce(comm, x.data(), y.data(), x.size(), &sparse, nullptr),
                       "lengths is 100; it must be 300");
          sparse.tensors = nullptr;
          want(rondo_batch_begin(comm));
          want_invalid(rondo_sparse_all_reduce(comm, x.data(), y.data(), x.size(), &sparse, nullptr), "not in a batch");
          want(rondo_batch_end(comm));
          sparse.select = 3;
          want_invalid(rondo_sparse_all_reduce(comm, x.data(), y.data(), x.size(), &sparse, nullptr), "selection 3");
          want_invalid(rondo_sparse_all_reduce(comm, x.data(), nullptr, x.size(), nullptr, nullptr), "null");
        }) == "");
}

TEST_CASE("a DistOpt in C: its defaults, steps of both kinds, checkpoints") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          rondo_dist_opt_options_t options;
          want(rondo_dist_opt_defaults(&options));
          expect(std::isnan(options.spars) && options.every == 8 && options.residual == 1, "other defaults");
          std::vector<float> weight(5, rank == 0 ? 1.0f : 7.0f), gradient(5, 4.0f * static_cast<float>(rank));
          const rondo_parameter_t parameter{"weight", weight.data(), weight.size()};
          rondo_dist_opt_t optimizer = nullptr;
          want_invalid(rondo_dist_opt_create(&optimizer, comm, nullptr, 1, nullptr), "parameters is NULL");
          options.exchange = 8;
          want_invalid(rondo_dist_opt_create(&optimizer, comm, &parameter, 1, &options), "unknown exchange 8");
          options.exchange = RONDO_EXCHANGE_INT8;
          options.outer_fragments = 2;
          want_invalid(rondo_dist_opt_create(&optimizer, comm, &parameter, 1, &options), "outer_fragments is given");
          options.outer_fragments = 1;
          want(rondo_dist_opt_create(&optimizer, comm, &parameter, 1, &options));
          expect(weight[4] == 1.0f, "the parameters of rank 0");
          want(rondo_dist_opt_place(optimizer, "weight", gradient.data()));
          want(rondo_dist_opt_ready(optimizer, "weight", RONDO_EXCHANGE_INT8));
          want(rondo_dist_opt_wait(optimizer));
          want(rondo_dist_opt_reduce(optimizer, RONDO_EXCHANGE_INT8, NAN));
          expect(std::abs(gradient[0] - 2.0f) < 0.1f, "another average");
          want(rondo_dist_opt_average(optimizer, RONDO_EXCHANGE_INT8));
          want_invalid(rondo_dist_opt_reduce(optimizer, RONDO_EXCHANGE_TOP_K, 2.0), "spars is 2");

          std::vector<float> residuals(10, -1.0f), lasting(5, -1.0f);
          rondo_dist_opt_tensor_t tensor{residuals.data(), nullptr, nullptr};
          want(rondo_dist_opt_save(optimizer, &tensor));
          expect(residuals[0] != -1.0f && residuals[9] != -1.0f, "residuals of both ranks");
          want(rondo_dist_opt_load(optimizer, &tensor, 2, 70));
          want_invalid(rondo_dist_opt_load(optimizer, &tensor, 0, 70), "0 ranks");
          uint64_t steps = 0, sent = 0;
          want(rondo_dist_opt_counts(optimizer, &steps, &sent));
          expect(steps == 70 && sent == 5, "counts");
          want(rondo_dist_opt_free(optimizer));

          options.exchange = RONDO_EXCHANGE_LOCAL_SGD;
          options.every = 1;
          want(rondo_dist_opt_create(&optimizer, comm, &parameter, 1, &options));
          weight.assign(5, static_cast<float>(rank));
          want(rondo_dist_opt_reduce(optimizer, RONDO_EXCHANGE_LOCAL_SGD, NAN));
          want(rondo_dist_opt_average(optimizer, RONDO_EXCHANGE_LOCAL_SGD));
          expect(weight == std::vector<float>(5, 0.5f), "the average of the parameters");
          tensor.outer = lasting.data();
          want(rondo_dist_opt_save(optimizer, &tensor));
          expect(lasting == weight, "the parameters at the last average");
          // The handle of the communicator before is in use no more.
          rondo_comm_t next = nullptr;
          want(rondo_dup(comm, &next));
          want(rondo_dist_opt_regroup(optimizer, next));
          want_invalid(rondo_dist_opt_regroup(optimizer, nullptr), "comm is NULL");
          weight.assign(5, 1.0f + static_cast<float>(rank));
          want(rondo_dist_opt_average(optimizer, RONDO_EXCHANGE_LOCAL_SGD));
          expect(weight == std::vector<float>(5, 1.5f), "the average on the next communicator");
          want(rondo_dist_opt_free(optimizer));
          want(rondo_destroy(next));
          want_invalid(rondo_dist_opt_free(nullptr), "optimizer is NULL");
        }) == "");
}
