// wait_all() and wait_any(): of works of several communicators, failed ones, empty ones, and where time runs out.
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rondo/communicator.h"
#include "rondo/interrupt.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {
namespace {

using std::chrono::milliseconds;

thread_local bool interrupts = false;  // of this rank

// Rank 1 sends when rank 0 sleeps: it has waited as long before.
void send_late(Communicator& group, int value, int tag) {
  int never = -1;
  std::vector<Work> works{group.recv_async(never, 0, 99)};
  expect(wait_any(works, milliseconds(20)) == 1, "a receive without a message ended");
  expect(works[0].cancel(), "a receive without a message was not taken back");
  group.send(value, 0, tag);
}

TEST_CASE("wait_any gives the one that has ended, in whatever order they come") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          const std::vector<int> order{2, 0, 3, 1};
          if (group.rank() == 1) {
            for (const int tag : order) {
              send_late(group, 10 * tag, tag);
              int seen = 0;
              group.recv(seen, 0, 50);
            }
            return;
          }
          std::vector<int> got(4, -1);
          std::vector<Work> works;
          for (int tag = 0; tag < 4; ++tag) works.push_back(group.recv_async(got[static_cast<size_t>(tag)], 1, tag));
          for (const int tag : order) {
            const size_t ended = wait_any(works);
            expect(ended == static_cast<size_t>(tag) && got[ended] == 10 * tag, "the wrong one has ended");
            works[ended] = Work();
            group.send(1, 1, 50);
          }
          expect(wait_any(works) == 4, "of empty works none ends");
          expect(wait_all(works), "empty works have ended");
          expect(wait_any({}) == 0 && wait_all({}), "no work");
        }) == "");
}

TEST_CASE("works of several communicators; a failed one ends, too") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          Communicator copy = group.dup();
          const int rank = group.rank();
          std::vector<double> sum(100'000, 1.0 + rank);
          double own = 1, never = 0;
          std::vector<Work> works{group.all_reduce_async(sum), group.recv_async(never, 1 - rank, 1),
                                  copy.all_reduce_async(own)};
          expect(!wait_all(works, milliseconds(5)), "a receive without a message ended");
          expect(works[1].cancel(), "it was not taken back");
          expect_error([&] { wait_all(works); }, ErrorCode::kCancelled);
          expect(sum.front() == 3 && sum.back() == 3 && own == 2, "wait_all() waits for the others, too");
          std::vector<Work> failed{Work(), works[1]};
          expect(wait_any(failed) == 1, "a failed work has ended");
          group.barrier();  // who leaves earlier ends the other's receive
        }) == "");
}

TEST_CASE("waits that would stop what they wait for are refused; a program may interrupt one") {
  set_interrupt_function([](void*) { return interrupts ? 1 : 0; }, nullptr);
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          int never = 0;
          std::vector<Work> works{group.recv_async(never, 1 - group.rank(), 1)};
          std::promise<std::string> said;
          group.barrier_async().on_end([&](const Error&) {
            try {
              wait_any(works);
              said.set_value("not refused");
            } catch (const Exception& error) {
              said.set_value(error.code() == ErrorCode::kInvalid ? "" : error.what());
            }
          });
          const std::string text = said.get_future().get();
          expect(text.empty(), text);

          group.batch_begin();
          std::vector<Work> later{group.barrier_async()};
          expect_error([&] { wait_any(later); }, ErrorCode::kInvalid);
          group.batch_end();

          interrupts = true;
          expect_error([&] { wait_any(works); }, ErrorCode::kInterrupted);
          interrupts = false;
          group.barrier();
          group.send(5, 1 - group.rank(), 1);  // the wait alone has ended
          expect(wait_any(works) == 0 && never == 5, "the receive goes on");
        }) == "");
  set_interrupt_function(nullptr, nullptr);
}

TEST_CASE("a function that asks try_destroy() while a thread destroys is told to ask again, and holds nobody up") {
  CHECK(run_threads(RankGroup{.world = 2, .deadline = std::chrono::seconds(20)}, [](Communicator& group) {
          int never = 0;
          std::promise<bool> destroyed;
          // From this rank itself: only its own destroy() ends it, not another rank's.
          group.recv_async(never, group.rank(), 1).on_end([&](const Error& end) {
            destroyed.set_value(end.ok() || group.try_destroy());
          });
          group.destroy();  // ends the receive, and waits for its function
          expect(!destroyed.get_future().get(), "two threads have destroyed it");
          expect(group.try_destroy(), "it is destroyed");
        }) == "");
}

TEST_CASE("the program's function may ask for the end of the communicator whose destroy() asks it") {
  static thread_local Communicator* leaving = nullptr;  // this rank's
  std::promise<bool> asked;
  const auto ask = [](void* context) {
    if (leaving == nullptr) return 0;
    Communicator& group = *std::exchange(leaving, nullptr);
    const bool over = group.try_destroy();
    group.destroy();
    static_cast<std::promise<bool>*>(context)->set_value(over);
    return 0;
  };
  set_interrupt_function(ask, &asked);
  CHECK(run_threads(RankGroup{.world = 2, .deadline = std::chrono::seconds(20)}, [&](Communicator& group) {
          // Until then rank 0 waits in destroy() for this rank to open its communicator, too.
          if (group.rank() == 1) expect(!asked.get_future().get(), "it is over while destroy() waits");
          const int both[] = {0, 1};
          auto [copy, opened] = group.new_group_async(both, 1);
          if (group.rank() == 0) {
            leaving = &copy;
          } else {
            opened.wait();
          }
          copy.destroy();
          expect(copy.try_destroy(), "it is destroyed");
        }) == "");
  set_interrupt_function(nullptr, nullptr);
}

TEST_CASE("a program that asks wait_any() in vain, very often, keeps no memory for what it has asked") {
  constexpr size_t kWorks = 200;
  CHECK(run_threads(RankGroup{.world = 1}, [](Communicator& group) {
          std::vector<int> never(kWorks);
          std::vector<Work> works;
          for (size_t i = 0; i < kWorks; ++i) works.push_back(group.recv_async(never[i], 0, static_cast<int>(i)));
          const auto called = std::make_shared<std::promise<void>>();  // where this fails, the function comes later
          works[7].on_end([called](const Error&) { called->set_value(); });
          const auto ask = [&] {
            for (int i = 0; i < 100; ++i) {
              expect(wait_any(works, milliseconds(5)) == kWorks, "a receive without a message ended");
            }
          };
          ask();
          const size_t before = Resources::now().allocated_bytes;
          ask();
          const size_t after = Resources::now().allocated_bytes;
          expect(after < before + 200'000, std::to_string(after - before) + " bytes more");
          group.send(5, 0, 7);
          expect(wait_any(works) == 7 && never[7] == 5, "the receive has not ended");
          called->get_future().get();
          for (Work& work : works) work.cancel();
        }) == "");
}

}  // namespace
}  // namespace rondo::testing
