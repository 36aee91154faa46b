// Threads that move lanes beside an engine, on links that a test opens and breaks.
#include "ring/engine/run/lane_crew.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ring/plan/layout.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Delivers empty slices once the test opens it. Its counters are plain where the crew's lock must protect them, so
// that the thread sanitizer sees a pass that is not under it.
class GatedLink final : public Link {
 public:
  std::atomic<bool> open{false}, broken{false}, throws{false};
  std::atomic<uint64_t> most{UINT64_MAX};  // slices that it delivers
  std::atomic<int> pumps{0};
  std::atomic<std::thread::id> last;

  uint32_t depth() const override { return 2; }
  bool can_post() const override { return true; }
  void post(const SliceTag&, std::byte*) override { ++posted_; }
  uint32_t unfilled() const override { return static_cast<uint32_t>(posted_ - filled_); }
  const std::byte* arrived() override { return filled_ > released_ ? &byte_ : nullptr; }
  void release() override { ++released_; }
  bool can_send() const override { return true; }
  std::byte* reserve(uint32_t) override { return &byte_; }
  uint64_t commit(const SliceTag& tag) override { return send(tag, nullptr); }
  uint64_t send(const SliceTag&, const std::byte*) override { return ++sent_; }
  uint64_t sent() const override { return sent_; }
  bool pump() override {
    pumps.fetch_add(1);
    last.store(std::this_thread::get_id());
    if (throws.load()) throw std::runtime_error("the link threw");
    if (broken.load()) {
      error_ = {ErrorCode::kPeerLost, "the link broke", {1}};
      return false;
    }
    const uint64_t filled = std::min(posted_, most.load());
    if (!open.load() || filled_ >= filled) return false;
    filled_ = filled;
    return true;
  }
  const Error* error() const override { return error_.ok() ? nullptr : &error_; }

 private:
  uint64_t posted_ = 0, filled_ = 0, released_ = 0, sent_ = 0;
  std::byte byte_{};
  Error error_;
};

// Lanes that each wait for one signal, or several.
class Lanes {
 public:
  explicit Lanes(uint32_t count, uint32_t signals = 1) : runs(count), slicing_() {
    plan_.collective = Collective::kBarrier;
    plan_.world = 2;
    plan_.peers = {1};
    plan_.refs.push_back({Space::kMailbox, 0, 1, 0});
    plan_.steps.assign(signals, {0, kNoStep, 1, 0, 0, 0});
    plan_.lanes.assign(count, Lane{0, signals});
    for (uint32_t i = 0; i < count; ++i) links.push_back(std::make_unique<GatedLink>());
    bind();
  }
  void bind() {
    Binding binding;
    binding.plan = &plan_;
    binding.blocks = &blocks_;
    binding.slicing = slicing_;
    for (uint32_t i = 0; i < runs.size(); ++i) {
      Link* link = links[i].get();
      runs[i].start(binding, i, {&link, 1});
    }
  }

  std::vector<std::unique_ptr<GatedLink>> links;
  std::vector<LaneRun> runs;

 private:
  Plan plan_;
  Blocks blocks_;
  Slicing slicing_;
};

bool eventually(const std::function<bool()>& condition) {
  const auto until = Clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

WaitPolicy patience_of(std::chrono::microseconds spin) { return {spin, true, -1}; }

}  // namespace

TEST_CASE("helpers move the lanes that are theirs, and the engine's own is left to it") {
  // Proves: with 4 lanes and 2 helpers, lanes 1 and 2 have a helper each, and 0 and 3 wait for the engine.
  Lanes lanes(4);
  LaneCrew crew(4, 2, patience_of(std::chrono::seconds(5)), std::make_shared<Doorbell>());
  crew.begin(lanes.runs);
  CHECK(crew.active());
  for (auto& link : lanes.links) link->open = true;
  for (const size_t lane : {1u, 2u}) {
    CHECK(eventually([&] { return crew.quietly([&] { return lanes.runs[lane].done(); }); }));
    CHECK(lanes.links[lane]->last.load() != std::this_thread::get_id());
  }
  CHECK(lanes.links[1]->last.load() != lanes.links[2]->last.load());
  CHECK(lanes.links[0]->pumps.load() == 0);
  CHECK(lanes.links[3]->pumps.load() == 0);
  CHECK(eventually([&] { return crew.pass(LaneRun::Landing::kWait).done; }));
  CHECK(lanes.links[0]->last.load() == std::this_thread::get_id());
  CHECK(lanes.links[3]->last.load() == std::this_thread::get_id());
  crew.end();
  CHECK(!crew.active());
}

TEST_CASE("the engine moves every lane while the helpers sleep, and that wakes them") {
  // Proves: a lane that begins to move again is moved on by its helper, without another pass of the engine.
  Lanes lanes(2, 2);
  GatedLink& link = *lanes.links[1];
  link.most = 1;
  LaneCrew crew(2, 1, patience_of(std::chrono::milliseconds(200)), std::make_shared<Doorbell>());
  crew.begin(lanes.runs);
  // The helper has given up when no pass of its own comes any more.
  CHECK(eventually([&] {
    const int before = link.pumps.load();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return before > 0 && before == link.pumps.load();
  }));
  link.open = true;
  CHECK(!crew.pass(LaneRun::Landing::kWait).done);  // lane 0 is closed, and lane 1 waits for another signal
  CHECK(eventually([&] { return link.last.load() != std::this_thread::get_id(); }));
  link.most = 2;
  CHECK(eventually([&] { return crew.quietly([&] { return lanes.runs[1].done(); }); }));
  CHECK(link.last.load() != std::this_thread::get_id());
  lanes.links[0]->open = true;
  CHECK(eventually([&] { return crew.pass(LaneRun::Landing::kWait).done; }));
  crew.end();
}

TEST_CASE("after end() no helper touches a lane, and the next operation is helped again") {
  Lanes lanes(3);
  LaneCrew crew(3, 2, patience_of(std::chrono::milliseconds(1)), std::make_shared<Doorbell>());
  for (int round = 0; round < 200; ++round) {
    crew.begin(lanes.runs);
    if (round % 3 != 0) {
      for (auto& link : lanes.links) link->open = true;
      CHECK(eventually([&] { return crew.pass(LaneRun::Landing::kWait).done; }));
    }
    crew.end();
    const std::vector<int> pumps{lanes.links[1]->pumps.load(), lanes.links[2]->pumps.load()};
    lanes.bind();  // the thread sanitizer would see a helper
    for (auto& link : lanes.links) link->open = false;
    CHECK(pumps == std::vector<int>{lanes.links[1]->pumps.load(), lanes.links[2]->pumps.load()});
  }
}

TEST_CASE("what a helper's pass throws reaches the engine, and a broken link is there for it to see") {
  Lanes lanes(2);
  LaneCrew crew(2, 1, patience_of(std::chrono::seconds(5)), std::make_shared<Doorbell>());
  crew.begin(lanes.runs);
  lanes.links[1]->throws = true;
  std::string said;
  CHECK(eventually([&] {
    try {
      crew.pass(LaneRun::Landing::kWait);
    } catch (const std::runtime_error& thrown) {
      said = thrown.what();
    }
    return !said.empty();
  }));
  CHECK(said == "the link threw");
  crew.end();

  lanes.links[1]->throws = false;
  lanes.links[1]->broken = true;
  lanes.bind();
  crew.begin(lanes.runs);
  CHECK(eventually([&] { return crew.quietly([&] { return lanes.runs[1].failed_link() == 0; }); }));
  crew.end();
}

TEST_CASE("a lane that ends rings the engine that sleeps") {
  Lanes lanes(2);
  const auto bell = std::make_shared<Doorbell>();
  LaneCrew crew(2, 1, patience_of(std::chrono::seconds(20)), bell);
  crew.begin(lanes.runs);
  bell->arm();
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lanes.links[1]->open = true;
  });
  const auto start = Clock::now();
  bell->wait(start + std::chrono::seconds(15));
  CHECK(Clock::now() - start < std::chrono::seconds(10));
  CHECK(crew.quietly([&] { return lanes.runs[1].done(); }));
  opener.join();
  crew.end();
}

}  // namespace rondo::testing
