// rondo_work_on_end: each function is called once, with the operation's result, on a thread of the library; it may
// start calls and may not wait.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "rondo/rondo.h"
#include "tests/api/c_ranks.h"
#include "tests/support/resources.h"

namespace {

using rondo::testing::expect;
using rondo::testing::on_threads;
using rondo::testing::want;

// What the functions of one rank have been called with.
struct Calls {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<rondo_result_t> results;
  std::vector<std::string> texts;
  std::vector<std::thread::id> threads;
  std::function<void(rondo_result_t)> then;  // called by the function, if there is one

  static void function(void* context, rondo_result_t result) {
    Calls& calls = *static_cast<Calls*>(context);
    if (calls.then) calls.then(result);
    const std::string text = result == RONDO_OK ? "" : rondo_last_error();
    const std::lock_guard lock(calls.mutex);
    calls.results.push_back(result);
    calls.texts.push_back(text);
    calls.threads.push_back(std::this_thread::get_id());
    calls.changed.notify_all();
  }
  // However long that takes: functions that have not been called yet would find this gone. Each operation ends, by its
  // deadline at the latest.
  void await(size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return results.size() >= count; });
  }
};

}  // namespace

TEST_CASE("called once, whether somebody waits or nobody does, before the end and after it") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int) {
          Calls calls;
          rondo_work_t work = nullptr;
          for (size_t round = 0; round < 50; ++round) {
            want(rondo_barrier_async(comm, nullptr, &work));
            want(rondo_work_on_end(work, Calls::function, &calls));
            if (round % 2 == 0) want(rondo_wait(work, -1));
            want(rondo_work_on_end(work, Calls::function, &calls));
            want(rondo_work_free(work));  // also where it has not ended
            calls.await(2 * round + 2);
          }
          want(rondo_barrier(comm, nullptr));
          const std::lock_guard lock(calls.mutex);
          expect(calls.results == std::vector<rondo_result_t>(100, RONDO_OK), "100 calls");
          expect(calls.threads == std::vector<std::thread::id>(100, calls.threads[0]), "one thread");
          expect(calls.threads[0] != std::this_thread::get_id(), "a thread of the library's");
        }) == "");
}

TEST_CASE("the function of a failure has its text and ranks; none is lost when the communicator is destroyed") {
  std::array<Calls, 2> calls;
  int blamed = -1;  // by rank 0's functions
  CHECK(on_threads(2, [&](rondo_comm_t comm, int rank) {
          Calls& own = calls[static_cast<size_t>(rank)];
          own.then = [&](rondo_result_t) {
            if (rondo_last_error_ranks(&blamed, 1) != 1) blamed = -1;
          };
          rondo_work_t work = nullptr;
          int64_t x = 0;
          if (rank == 0) {
            want(rondo_recv_async(comm, &x, 1, RONDO_INT64, 1, 0, nullptr, &work));
            want(rondo_work_on_end(work, Calls::function, &own));
            want(rondo_work_free(work));
            want(rondo_barrier_async(comm, nullptr, &work));
            want(rondo_work_on_end(work, Calls::function, &own));
            want(rondo_work_free(work));
            want(rondo_send(comm, &x, 1, RONDO_INT64, 1, 1, nullptr));
            own.await(2);
          } else {
            want(rondo_recv(comm, &x, 1, RONDO_INT64, 0, 1, nullptr, nullptr));
            want(rondo_abort(comm, "no more"));
          }
        }) == "");
  CHECK(calls[0].results == std::vector<rondo_result_t>{RONDO_ABORTED, RONDO_ABORTED});
  CHECK(blamed == 1);
  CHECK(calls[0].texts[0].find("no more") != std::string::npos);

  CHECK(on_threads(2, [&](rondo_comm_t comm, int rank) {
          Calls& own = calls[static_cast<size_t>(rank)];
          own.results.clear();
          own.then = nullptr;
          int64_t x = 0;
          rondo_work_t work = nullptr;
          want(rondo_recv_async(comm, &x, 1, RONDO_INT64, 1 - rank, 0, nullptr, &work));
          want(rondo_work_on_end(work, Calls::function, &own));
          want(rondo_work_free(work));
          want(rondo_close(comm));
          expect(own.results.size() == 1 && own.results[0] != RONDO_OK, "called before close has returned");
        }) == "");
}

TEST_CASE("a function starts the next call, thousands in a row") {
  constexpr int kRounds = 2000;
  CHECK(on_threads(2, [](rondo_comm_t comm, int) {
          Calls calls;
          int64_t sum = 1;
          int rounds = 0;
          rondo_work_t work = nullptr;
          calls.then = [&](rondo_result_t result) {
            if (result != RONDO_OK || ++rounds == kRounds) return;
            rondo_work_t next = nullptr;
            int64_t* const at = &sum;
            if (rondo_all_reduce_async(comm, at, at, 1, RONDO_INT64, RONDO_MAX, nullptr, &next) != RONDO_OK) return;
            rondo_work_on_end(next, Calls::function, &calls);
            rondo_work_free(next);
          };
          want(rondo_all_reduce_async(comm, &sum, &sum, 1, RONDO_INT64, RONDO_MAX, nullptr, &work));
          want(rondo_work_on_end(work, Calls::function, &calls));
          want(rondo_work_free(work));
          calls.await(kRounds);
          expect(rounds == kRounds && sum == 1, "rounds");
        }) == "");
}

TEST_CASE("what waits is refused in a function") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          std::vector<rondo_result_t> waits;
          rondo_work_t pending = nullptr, work = nullptr;
          int64_t x = 0, y = 0;
          want(rondo_recv_async(comm, &x, 1, RONDO_INT64, 1 - rank, 0, nullptr, &pending));
          Calls calls;
          calls.then = [&](rondo_result_t) {
            rondo_comm_t sub = nullptr;
            waits = {rondo_wait(pending, -1),
                     rondo_wait(pending, 0),
                     rondo_wait(work, -1),  // has ended
                     rondo_barrier(comm, nullptr),
                     rondo_send(comm, &y, 1, RONDO_INT64, 1 - rank, 0, nullptr),
                     rondo_recv(comm, &y, 1, RONDO_INT64, 1 - rank, 1, nullptr, nullptr),
                     rondo_sendrecv(comm, &y, 1, 1 - rank, &x, 1, 1 - rank, RONDO_INT64, 3, nullptr, nullptr),
                     rondo_all_reduce_many(comm, nullptr, 0, RONDO_SUM, nullptr),
                     rondo_split(comm, 0, 0, &sub),
                     rondo_close(comm),
                     rondo_destroy(comm)};
          };
          want(rondo_barrier_async(comm, nullptr, &work));
          want(rondo_work_on_end(work, Calls::function, &calls));
          calls.await(1);
          want(rondo_work_free(work));
          std::vector<rondo_result_t> wanted(11, RONDO_INVALID);
          wanted[2] = RONDO_OK;
          expect(waits == wanted, "results in the function");
          want(rondo_barrier(comm, nullptr));  // the receives are pending in both functions
          want(rondo_send(comm, &y, 1, RONDO_INT64, 1 - rank, 0, nullptr));
          want(rondo_wait(pending, -1));
          want(rondo_work_free(pending));
          want(rondo_barrier(comm, nullptr));
        }) == "");
}

TEST_CASE("batches and lists: the end of all of it, of its messages, of a batch that is abandoned") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          Calls calls, part;
          std::vector<int64_t> a(300'000, 1), b(10, 1);
          const rondo_tensor_t list[] = {{a.data(), a.data(), a.size(), RONDO_INT64},
                                         {b.data(), b.data(), b.size(), RONDO_INT64}};
          rondo_work_t work = nullptr, received = nullptr;
          want(rondo_all_reduce_many_async(comm, list, 2, RONDO_SUM, nullptr, &work));
          bool summed = false, sent = false;
          calls.then = [&](rondo_result_t) { summed = a.back() == 2 && b.back() == 2; };
          want(rondo_work_on_end(work, Calls::function, &calls));
          want(rondo_work_free(work));
          calls.await(1);

          int64_t in = -1;
          const int64_t out = rank;
          calls.then = [&](rondo_result_t) { sent = in == 1 - rank; };
          want(rondo_batch_begin(comm));
          want(rondo_send(comm, &out, 1, RONDO_INT64, 1 - rank, 0, nullptr));
          want(rondo_recv_async(comm, &in, 1, RONDO_INT64, 1 - rank, 0, nullptr, &received));
          want(rondo_work_on_end(received, Calls::function, &part), RONDO_INVALID);
          want(rondo_barrier(comm, nullptr));
          want(rondo_batch_end_async(comm, &work));
          want(rondo_work_on_end(received, Calls::function, &part));
          want(rondo_work_on_end(work, Calls::function, &calls));
          calls.await(2);
          part.await(1);
          want(rondo_work_free(work));
          want(rondo_work_free(received));

          want(rondo_batch_begin(comm));
          want(rondo_recv_async(comm, &in, 1, RONDO_INT64, 1 - rank, 0, nullptr, &received));
          want(rondo_batch_abandon(comm));
          want(rondo_work_on_end(received, Calls::function, &part));
          part.await(2);
          want(rondo_work_free(received));
          expect(summed && sent, "the data is there when the function is called");
          expect(part.results == std::vector<rondo_result_t>{RONDO_OK, RONDO_INVALID}, "results of messages");
          expect(calls.results == std::vector<rondo_result_t>(2, RONDO_OK), "results of batches");
        }) == "");
}

TEST_CASE(
    "C++: a function has the last communicator: when it is dropped the communicator leaves, and its thread ends") {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::weak_ptr<rondo::Communicator>> seen;
    {
      std::vector<std::shared_ptr<rondo::Communicator>> ranks;
      for (rondo::Communicator& rank : rondo::Communicator::inproc(2)) {
        ranks.push_back(std::make_shared<rondo::Communicator>(std::move(rank)));
        seen.emplace_back(ranks.back());
      }
      for (auto& rank : ranks) {
        rank->barrier_async().on_end([rank](const rondo::Error& error) { CHECK(error.ok()); });
      }
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (const auto& rank : seen) {
      while (!rank.expired()) REQUIRE(std::chrono::steady_clock::now() < until);
    }
    while (!rondo::testing::status_of_threads("rondo-progress").empty())
      REQUIRE(std::chrono::steady_clock::now() < until);
  }
}

TEST_CASE("C++: a function of a Work that outlives its communicator") {
  rondo::Work work;
  {
    auto ranks = rondo::Communicator::inproc(1);
    work = ranks[0].all_reduce_async(nullptr, nullptr, 0, rondo::DType::kFloat32);
    work.wait();
    CHECK_THROWS_AS(work.on_end(nullptr), rondo::Exception);
    ranks[0].destroy();
  }
  int calls = 0;
  work.on_end([&](const rondo::Error& error) { calls += error.ok() ? 1 : 100; });
  CHECK(calls == 1);
  CHECK_THROWS_AS(rondo::Work().on_end([](const rondo::Error&) {}), rondo::Exception);
}
