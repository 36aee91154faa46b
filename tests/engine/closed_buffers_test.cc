// A rank fails in the middle of a plan over buffers of others ("pull", "registered"), at every point that there is, and
// uses its memory again as soon as it may; no other rank hears of the failure. Real executors over one board, in one
// thread. What is proved: a rank that ends in success has the right result, and no rank touches memory that its owner
// has been given back. This binary has its own operator new.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/island/grace_period.h"
#include "ring/engine/run/plan_run.h"
#include "ring/engine/run/slicing.h"
#include "ring/plan/build.h"
#include "tests/support/collective_check.h"
#include "tests/support/random.h"

namespace {

thread_local bool refuses_memory = false;

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = refuses_memory ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rondo::testing {
namespace {

constexpr uint64_t kSlice = 16;  // elements
// Passes in a row without progress after which nothing will come: every rank has had several.
constexpr int kIdle = 40;

struct alignas(128) Lines {
  std::byte bytes[128] = {};
};

// Memory of all ranks is one's own; pull() says when it begins.
class OneMemory final : public SharedMemory {
 public:
  std::function<void()> on_pull = [] {};
  std::shared_ptr<Window> make(size_t, uint64_t) override { return nullptr; }
  WindowPlace locate(const void*, size_t) const override { return {}; }
  std::shared_ptr<Window> find(int, uint64_t) override { return nullptr; }
  void offer(std::span<const int>, uint64_t, Descriptor) override {}
  Descriptor take_offer(int, uint64_t) override { return {}; }
  bool can_pull() const override { return true; }
  bool pull(int, uint64_t address, std::byte* to, size_t bytes) override {
    on_pull();
    std::memcpy(to, reinterpret_cast<const std::byte*>(address), bytes);
    return true;
  }
  int gone = -1;
  bool ended(int rank) const override { return rank == gone; }
  bool stops_alone() const override { return true; }
};

// How long the failing rank waits for the others to leave its memory.
enum class Waits : uint8_t { kLong, kNotAtAll };

class Island {
 public:
  Island(const CollectiveCase& what, Algorithm algorithm, uint64_t seed) : what_(what), random_(seed) {
    const auto world = static_cast<size_t>(what.world);
    std::vector<std::byte*> places;
    for (size_t r = 0; r < world; ++r) {
      boards_.push_back(std::make_unique<Lines[]>(PostBoard::kHeadBytes / sizeof(Lines)));
      places.push_back(boards_.back()[0].bytes);
    }
    for (int r = 0; r < what.world; ++r) {
      callers_.push_back(std::make_unique<CollectiveRank>(what, r));
      ranks_.push_back(std::make_unique<Rank>());
      world_.push_back(r);
      rank(r).board.board = PostBoard(places, r, false);
      rank(r).board.bells.assign(world, std::make_shared<Bell>());
      calls_.push_back(check_call(callers_.back()->call(), r, what.world));
    }
    for (int r = 0; r < what.world; ++r) start(r, algorithm);
    memory_.on_pull = [this] {
      if (moving_ != victim_) event();  // a rank fails between two of its own slices
    };
  }

  // `victim` fails at the event of that number, counted from 0; false if there are not so many.
  bool fail_at(int victim, uint64_t number, Waits waits) {
    victim_ = victim;
    fails_at_ = number;
    waits_ = waits;
    for (int idle = 0; idle < kIdle;) {
      moving_ = static_cast<int>(random_.below(static_cast<uint64_t>(what_.world)));
      event();
      const bool moved = !(moving_ == victim_ && failed()) && rank(moving_).run.progress(Pass::kPolling);
      idle = moved ? 0 : idle + 1;
    }
    return failed();
  }

  // Until that rank moves no more.
  int passes_of(int r) {
    int passes = 0;
    while (rank(r).run.progress(Pass::kPolling)) ++passes;
    return passes;
  }

  // "" or what is wrong with those that ended in success.
  std::string check() const {
    for (int r = 0; r < what_.world; ++r) {
      if (r == victim_ && failed()) continue;
      const Rank& own = *ranks_[static_cast<size_t>(r)];
      if (!own.run.done()) {
        if (!failed()) return fmt::format("rank {} hangs though nobody has failed", r);
        continue;
      }
      if (std::string wrong = callers_[static_cast<size_t>(r)]->check(); !wrong.empty()) return wrong;
    }
    if (failed() && !given_back_) return "nobody is at work on the buffers, and they are not given back";
    if (given_back_ && waits_ == Waits::kLong && callers_[static_cast<size_t>(victim_)]->output() != refilled_) {
      return fmt::format("memory of rank {} was written after it had been given back", victim_);
    }
    return "";
  }

  // Ranks that found the buffers of the victim closed.
  int shut_out() const {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const auto& r) {
      return r->run.failure().kind == RunFailure::Kind::kClosed;
    }));
  }

 private:
  struct Rank {
    IslandChannel board;
    WindowBinding windows;
    Plan plan;
    Blocks blocks;
    PlanRun run;
  };
  Rank& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
  bool failed() const { return events_ > fails_at_; }

  void start(int r, Algorithm algorithm) {
    Rank& own = rank(r);
    const CheckedCall& call = calls_[static_cast<size_t>(r)];
    PlanRequest request;
    request.collective = what_.collective;
    request.algorithm = algorithm;
    request.rank = r;
    request.root = collective_has_root(what_.collective) ? what_.root : -1;
    request.topology.host.assign(static_cast<size_t>(what_.world), 0);
    request.topology.island.assign(static_cast<size_t>(what_.world), 0);
    own.plan = build_plan(request);
    Slicing slicing;
    slicing.slice = kSlice;
    slicing.granule = kSlice;
    slicing.slices_per_chunk = algorithm == Algorithm::kPull ? 2 : 1000;
    own.blocks = lay_out_blocks(call, own.plan, slicing);
    lay_out_windows(call, own.plan, slicing, own.windows);
    for (int peer = 0; peer < what_.world; ++peer) own.windows.ranks.push_back(memory_of(peer, algorithm));
    own.windows.memory = &memory_;
    own.windows.channel = &own.board;
    Binding binding;
    binding.plan = &own.plan;
    binding.blocks = &own.blocks;
    binding.slicing = slicing;
    binding.combine = {call.dtype, call.op, call.scalar, static_cast<uint32_t>(what_.world)};
    binding.element_bytes = dtype_bytes(call.dtype);
    binding.start.buffers = buffers_of(callers_[static_cast<size_t>(r)]->call());
    binding.start.sequence = 1;
    binding.windows = &own.windows;
    own.run.start(binding, {});
  }

  PeerMemory memory_of(int peer, Algorithm algorithm) const {
    const CallBuffers buffers = buffers_of(callers_[static_cast<size_t>(peer)]->call());
    PeerMemory memory;
    memory.world_rank = peer;
    memory.input_address = reinterpret_cast<uint64_t>(buffers.input);
    memory.output_address = reinterpret_cast<uint64_t>(buffers.output);
    if (algorithm == Algorithm::kRegistered) {
      memory.input = const_cast<std::byte*>(buffers.input);
      memory.output = buffers.output;
    }
    return memory;
  }

  // Between two passes, or in the middle of a slice that is pulled.
  void event() {
    ++events_;
    if (!failed() || given_back_) return;
    PostBoard& board = rank(victim_).board.board;
    given_back_ = end_.over(board, memory_, world_, {});
    if (waits_ == Waits::kNotAtAll) given_back_ = end_.over(board, memory_, world_, Clock::time_point::max());
    if (!given_back_) return;
    callers_[static_cast<size_t>(victim_)]->refill();
    refilled_ = callers_[static_cast<size_t>(victim_)]->output();
  }

  const CollectiveCase what_;
  Random random_;
  OneMemory memory_;
  std::vector<int> world_;
  std::vector<std::unique_ptr<Lines[]>> boards_;
  std::vector<std::unique_ptr<CollectiveRank>> callers_;
  std::vector<CheckedCall> calls_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  int victim_ = -1, moving_ = -1;
  uint64_t events_ = 0, fails_at_ = 0;
  Waits waits_ = Waits::kLong;
  GracePeriod end_;
  bool given_back_ = false;
  std::vector<std::byte> refilled_;
};

std::vector<CollectiveCase> cases() {
  std::vector<CollectiveCase> all;
  for (const int world : {2, 3}) {
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce, Collective::kAllGather,
          Collective::kBroadcast, Collective::kGather, Collective::kScatter, Collective::kAllToAll}) {
      CollectiveCase what;
      what.world = world;
      what.collective = collective;
      what.count = 75;  // blocks of several slices, the last one short; several rounds where it is pulled
      what.root = world - 1;
      all.push_back(what);
    }
    // More slices than one pass moves.
    CollectiveCase large = all.front();
    large.world = world;
    large.count = 40 * kSlice * static_cast<uint64_t>(world);
    all.push_back(large);
  }
  return all;
}

// The heads of three ranks' areas.
class Heads {
 public:
  Heads() {
    for (auto& head : heads_) head = std::make_unique<Lines[]>(PostBoard::kHeadBytes / sizeof(Lines));
  }
  PostBoard board_of(int rank) {
    std::vector<std::byte*> places;
    for (auto& head : heads_) places.push_back(head[0].bytes);
    return PostBoard(places, rank, false);
  }

 private:
  std::unique_ptr<Lines[]> heads_[3];
};

}  // namespace

TEST_CASE("a failed rank waits for those who are in its buffers: until they leave, have ended, or are late") {
  // Proves: destroy() does not give registered memory back while another rank still writes to it.
  const std::vector<int> world{0, 1, 2};
  for (const std::string end : {"leaves", "enters again", "ends", "is late"}) {
    CAPTURE(end);
    Heads heads;
    PostBoard own = heads.board_of(0), writer = heads.board_of(1), idle = heads.board_of(2);
    OneMemory island;
    GracePeriod grace;
    writer.enter();
    Clock::time_point now{};
    CHECK_FALSE(grace.over(own, island, world, now));
    CHECK(writer.closed(0));
    CHECK_FALSE(grace.over(own, island, world, now + GracePeriod::kLongest - std::chrono::milliseconds(1)));
    idle.enter();  // after the closing: it sees that and touches nothing
    if (end == "leaves" || end == "enters again") writer.leave();
    if (end == "enters again") writer.enter();
    if (end == "ends") island.gone = 1;
    if (end == "is late") now += GracePeriod::kLongest;
    CHECK(grace.over(own, island, world, now));
    CHECK(grace.stopped() == (end == "is late" ? std::vector<int>{1} : std::vector<int>{}));
  }
}

TEST_CASE("a failed rank forgets nobody who is in its buffers where memory runs out") {
  // Proves: what a look without memory leaves undone the next one does; once the buffers are closed none is needed.
  const std::vector<int> world{0, 1, 2};
  Heads heads;
  PostBoard own = heads.board_of(0), writer = heads.board_of(1);
  OneMemory island;
  GracePeriod grace;
  const auto over_without_memory = [&](Clock::time_point now) {
    bool over = false;
    refuses_memory = true;
    try {
      over = grace.over(own, island, world, now);
    } catch (const std::bad_alloc&) {
    }
    refuses_memory = false;
    return over;
  };
  writer.enter();
  const Clock::time_point now{};
  CHECK_FALSE(over_without_memory(now));
  CHECK_FALSE(grace.over(own, island, world, now));
  CHECK(writer.closed(0));
  CHECK(over_without_memory(now + GracePeriod::kLongest));
  CHECK(grace.stopped() == std::vector<int>{1});
}

TEST_CASE("a pass ends long before a large call over shared memory does") {
  // Proves: a failure or a deadline is seen in the middle of such a call.
  CollectiveCase what;
  what.world = 2;
  what.count = 1000 * kSlice * 2;
  CHECK(Island(what, Algorithm::kRegistered, 1).passes_of(0) > 20);
}

TEST_CASE("a rank fails in the middle of a plan over its buffers, and nobody takes what it refills for data") {
  int shut_out = 0, failures = 0;
  for (const CollectiveCase& what : cases()) {
    for (const Algorithm algorithm : {Algorithm::kPull, Algorithm::kRegistered}) {
      for (const Waits waits : {Waits::kLong, Waits::kNotAtAll}) {
        for (int victim = 0; victim < what.world; ++victim) {
          uint64_t number = 0;
          for (bool fails = true; fails; ++number) {
            const uint64_t seed = number * 7 + static_cast<uint64_t>(victim);
            Island island(what, algorithm, seed);
            fails = island.fail_at(victim, number, waits);
            const std::string wrong = island.check();
            REQUIRE_MESSAGE(wrong.empty(), fmt::format("{} by {}, rank {} fails at event {} (seed {}), {}: {}",
                                                       what.describe(), algorithm_name(algorithm), victim, number, seed,
                                                       waits == Waits::kLong ? "waits" : "does not wait", wrong));
            shut_out += island.shut_out();
            ++failures;
          }
        }
      }
    }
  }
  CHECK(failures > 1000);
  CHECK(shut_out > 1000);
}

}  // namespace rondo::testing
