// What the worker drops, fails and calls, it does without its lock: the flows' ends come back to it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "ring/engine/progress/worker.h"
#include "rondo/interrupt.h"

namespace rondo::testing {
namespace {

struct Seen {
  std::atomic<bool> finish{false}, ended{false}, failed{false}, called{false};
};

// One operation is pending until Seen::finish. Its end and its failure give the thread a function, as those of
// operations do.
class OneOperation final : public Flow {
 public:
  OneOperation(const std::shared_ptr<Worker>& worker, Seen& seen, bool throws)
      : Flow(std::make_shared<Doorbell>(std::make_shared<Sleepers>()), worker->shared_from_this(), {},
             std::make_shared<ForkMark>()),
        seen_(seen),
        throws_(throws) {
    state().submitted(true);
  }
  ~OneOperation() override {
    worker().call(std::make_unique<EndCall>(EndCall{[&seen = seen_](const Error&) { seen.called = true; }}));
    seen_.ended = true;
  }

 protected:
  bool step(Pass) override {
    if (throws_) throw std::runtime_error("a step");
    if (!seen_.finish.exchange(false)) return false;
    state().submitted(false);
    return true;
  }
  void tick(Clock::time_point) override {}
  void interrupted() override {}
  // At first it fails itself, so that the thread's turn ends by an exception; then as flows do.
  void broke(const Error&) override {
    if (!broken_.exchange(true)) throw std::runtime_error("its failure");
    if (seen_.failed.exchange(true)) return;
    throws_ = false;
    state().submitted(false);
    worker().call(std::make_unique<EndCall>(EndCall{[&seen = seen_](const Error&) { seen.called = true; }}));
  }

 private:
  Seen& seen_;
  std::atomic<bool> throws_, broken_{false};
};

// Whether it is set within 10 s.
bool comes(const std::atomic<bool>& flag) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!flag && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return flag;
}

TEST_CASE("worker: a flow that it has last ends without its lock") {
  const auto worker = Worker::make(WaitPolicy{}, std::make_shared<Sleepers>());
  worker->start();
  Seen seen;
  std::make_shared<OneOperation>(worker, seen, false)->leave(Flow::Left::kMovable);
  seen.finish = true;
  REQUIRE(comes(seen.ended));
  REQUIRE(comes(seen.called));
}

// An operation is under way that never ends. It counts the passes that other threads than its maker's make.
class LongOperation final : public Flow {
 public:
  explicit LongOperation(const std::shared_ptr<Worker>& worker)
      : Flow(std::make_shared<Doorbell>(std::make_shared<Sleepers>()), worker->shared_from_this(), {},
             std::make_shared<ForkMark>()) {
    state().submitted(true);
  }
  ~LongOperation() override { state().submitted(false); }
  // A call that is over at once, and looks at nothing but what it waits for.
  void call_shortly() {
    if_free([&] { count_polled(); });
    pass_beside(Moved::kOwnPart);
  }
  std::atomic<uint64_t> passes_of_others{0};

 protected:
  bool step(Pass) override {
    passes_of_others += std::this_thread::get_id() != maker_;
    return false;
  }
  void tick(Clock::time_point) override {}
  void interrupted() override {}
  void broke(const Error&) override {}

 private:
  const std::thread::id maker_ = std::this_thread::get_id();
};

TEST_CASE("worker: short calls do not keep its thread from what is under way, passes do") {
  const auto worker = Worker::make(WaitPolicy{std::chrono::microseconds(200)}, std::make_shared<Sleepers>());
  worker->start();
  const auto flow = std::make_shared<LongOperation>(worker);
  flow->leave(Flow::Left::kWaits);
  const auto until = Clock::now() + std::chrono::seconds(20);
  const auto moves_while = [&](auto call) {
    const uint64_t before = flow->passes_of_others;
    while (flow->passes_of_others < before + 100 && Clock::now() < until) call();
    return flow->passes_of_others >= before + 100;
  };
  CHECK(moves_while([&] { flow->call_shortly(); }));
  // Beside other programs the caller may lose its core for a while.
  bool left_alone = false;
  while (!left_alone && Clock::now() < until) {
    const uint64_t before = flow->passes_of_others;
    for (const auto round = Clock::now(); Clock::now() - round < std::chrono::milliseconds(10);) flow->look();
    left_alone = flow->passes_of_others - before < 10;
  }
  CHECK(left_alone);
  CHECK(moves_while([] { std::this_thread::yield(); }));
  worker->forget(*flow);
}

// Proves: a thread that waits does not keep others from what is under way while the program's function has it.
TEST_CASE("worker: the program is asked whether a wait is to end without the watch") {
  struct Question {
    LongOperation& beside;
    int asked = 0, moved = 0;
  };
  const auto worker = Worker::make(WaitPolicy{std::chrono::microseconds(200)}, std::make_shared<Sleepers>());
  worker->start();
  const auto own = std::make_shared<LongOperation>(worker), beside = std::make_shared<LongOperation>(worker);
  beside->leave(Flow::Left::kWaits);
  Question question{*beside};
  const auto passes_come = [](void* context) {
    Question& about = *static_cast<Question*>(context);
    const uint64_t enough = about.beside.passes_of_others + 10;
    const auto until = Clock::now() + std::chrono::seconds(5);
    while (about.beside.passes_of_others < enough && Clock::now() < until) std::this_thread::yield();
    ++about.asked;
    about.moved += about.beside.passes_of_others >= enough;
    return 0;
  };
  set_interrupt_function(passes_come, &question);
  const auto pending = Operation::make<Operation>();
  CHECK_FALSE(own->wait(*pending, Clock::now() + std::chrono::milliseconds(500)));
  set_interrupt_function(nullptr, nullptr);
  CHECK_GT(question.asked, 0);
  CHECK_EQ(question.moved, question.asked);
  worker->forget(*beside);
}

TEST_CASE("worker: flows are failed without its lock") {
  const auto worker = Worker::make(WaitPolicy{}, std::make_shared<Sleepers>());
  worker->start();
  Seen seen;
  std::make_shared<OneOperation>(worker, seen, true)->leave(Flow::Left::kMovable);
  REQUIRE(comes(seen.failed));
  REQUIRE(comes(seen.called));
}

}  // namespace
}  // namespace rondo::testing
