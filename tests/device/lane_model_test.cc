// Small instances of the protocol by which kernels of a call meet (kernels/device/call_lane.h), and of the host's stop,
// in all executions that weak memory allows (lane_model.h): results are right, no two accesses race, every kernel ends;
// after a host has seen that nobody is at work, nobody touches its memory. Each ordering, weakened, is noticed.
#include "tests/device/lane_model.h"

#include <doctest/doctest.h>

#include "tests/device/lane_calls.h"

namespace rondo::testing {
namespace {

constexpr uint32_t kLineElements = 16;  // a lane's share of a block, at least

struct Instance {
  const char* name;
  uint32_t world, lanes, first, last;  // calls
  enum Host { kWaits, kStops, kIsLate } host = kWaits;
};

// The ranks, their lanes and hosts as threads of a model.
class Ranks {
 public:
  Ranks(const Instance& what, Weakened weakened)
      : what_(what),
        calls_(what.world, kLineElements * what.lanes),
        model_(weakened, what.host == Instance::kIsLate ? 3 : 0),
        order_(what.world) {
    for (uint32_t rank = 0; rank < what.world; ++rank) add_places(rank);
    for (uint32_t rank = 0; rank < what.world; ++rank) {
      for (uint32_t lane = 0; lane < what.lanes; ++lane) {
        model_.add_thread([=, this](ModelMachine& m, uint32_t round) { return run_lane(m, rank, lane, round); });
      }
      model_.add_thread([=, this](ModelMachine& m, uint32_t round) { return run_host(m, rank, round); });
    }
  }
  size_t run() { return model_.run(); }

 private:
  struct Order {
    uint32_t launched, ended;  // kernels, and their lanes
  };
  uint32_t blocks() const { return 2 * what_.world; }
  uint32_t* data(uint32_t rank, uint32_t block, uint32_t lane) {
    return calls_.block(rank, block) + lane * kLineElements;
  }

  void add_places(uint32_t rank) {
    LaneCalls::Rank& own = calls_.of(rank);
    CallStatus& status = own.status;
    const std::string of = " of " + std::to_string(rank);
    DeviceControl& control = *own.control;
    for (const auto& [name, word] : {std::pair{"started", &status.started},
                                     {"met", &status.met},
                                     {"passed", &status.passed},
                                     {"stop", &status.stop},
                                     {"failure", &status.failure},
                                     {"launched", &order_[rank].launched},
                                     {"ended", &order_[rank].ended}}) {
      model_.add_place(word, name + of);
    }
    for (const auto& [name, word] :
         {std::pair{"failed", &control.failed}, {"left", &control.left}, {"entered", &control.entered}}) {
      model_.add_place(word, name + of, what_.lanes == 1);
    }
    model_.add_place(&status.replays_started, "replays_started" + of, true);
    model_.add_place(&status.replays_passed, "replays_passed" + of, true);
    for (uint32_t lane = 0; lane < what_.lanes; ++lane) {
      const std::string at = ", lane " + std::to_string(lane) + of;
      for (uint32_t block = 0; block < blocks(); ++block) {
        model_.add_place(data(rank, block, lane), "block " + std::to_string(block) + at);
      }
      const size_t slot = LaneCalls::kSlotBytes / sizeof(uint32_t);
      for (size_t i = 0; i < kMessageSlots; ++i) {
        model_.add_place(&own.slots[i * slot + lane * slot / what_.lanes], "slot " + std::to_string(i) + at);
      }
      for (uint32_t from = 0; from < what_.world; ++from) {
        for (const size_t word : {0, 1, 4, 5}) {
          if (from == rank) continue;
          model_.add_place(&own.control->lanes[lane].from[from].words[word],
                           "word " + std::to_string(word) + " from " + std::to_string(from) + at);
        }
      }
    }
  }

  bool run_lane(ModelMachine& m, uint32_t rank, uint32_t lane, uint32_t round) {
    const uint32_t number = what_.first + round;
    if (number > what_.last) return false;
    m.await(&order_[rank].launched, round + 1);
    m.await(&order_[rank].ended, round * what_.lanes);
    DeviceCall call = calls_.make(rank, number);
    if (what_.host == Instance::kIsLate) call.limit_ns = 0;  // at the second look
    DeviceControl::Lane& own = calls_.of(rank).control->lanes[lane];
    own.calls = m.counts()[0];
    own.messages = m.counts()[1];
    m.be_lane(lane, what_.lanes);
    LaneState state = {};
    CallLane<ModelMachine>(m, call, state).run();
    m.arrive(&order_[rank].ended);
    m.counts()[0] = own.calls;
    m.counts()[1] = own.messages;
    return true;
  }

  void write_all(ModelMachine& m, uint32_t rank, uint32_t first, uint32_t end, uint32_t number) {
    for (uint32_t block = first; block < end; ++block) {
      for (uint32_t lane = 0; lane < what_.lanes; ++lane) {
        m.write(data(rank, block, lane), LaneCalls::input_of(rank, number, block));
      }
    }
  }
  void launch(ModelMachine& m, uint32_t rank, uint32_t number) {
    write_all(m, rank, 0, what_.world, number);
    m.arrive(&order_[rank].launched);
  }
  void await_end(ModelMachine& m, uint32_t rank, uint32_t number) {
    while (m.load(&calls_.of(rank).status.passed) != number) m.pause();
  }

  bool run_host(ModelMachine& m, uint32_t rank, uint32_t round) {
    const uint32_t number = what_.first + round;
    if (what_.host != Instance::kWaits) return round == 0 && (stop(m, rank), true);
    if (number > what_.last) return false;
    launch(m, rank, number);
    await_end(m, rank, number);
    if (m.load(&calls_.of(rank).status.failure) != 0) throw Broken("a call has failed");
    for (uint32_t block = 0; block < what_.world; ++block) {
      for (uint32_t lane = 0; lane < what_.lanes; ++lane) {
        const uint32_t found = m.read(data(rank, what_.world + block, lane));
        if (found != calls_.output_of(number, block)) throw Broken("a wrong result");
      }
    }
    return true;
  }

  // At any time, or once a kernel has ended because others were late.
  void stop(ModelMachine& m, uint32_t rank) {
    launch(m, rank, what_.first);
    for (uint32_t number = what_.first + 1; number <= what_.last; ++number) m.arrive(&order_[rank].launched);
    if (what_.host == Instance::kIsLate) await_end(m, rank, what_.first);
    m.store(&calls_.of(rank).status.stop, 1);
    const auto load = [&m](const uint32_t& word) { return m.load(&word); };
    const auto anybody = [&] {
      bool any = is_at_work(calls_.of(rank).status, load);
      for (uint32_t other = 0; other < what_.world; ++other) {
        if (other != rank) any |= may_touch(calls_.of(other).status, load);
      }
      return any;
    };
    while (anybody()) m.pause();
    write_all(m, rank, 0, blocks(), 0);
  }

  const Instance what_;
  LaneCalls calls_;
  Model model_;
  std::vector<Order> order_;
};

constexpr Instance kInstances[] = {
    {"2 ranks, a sum and messages", 2, 1, 1, 2},
    {"3 ranks, a sum", 3, 1, 1, 1},
    {"3 ranks, messages", 3, 1, 2, 2},
    {"2 ranks of 2 lanes, a sum", 2, 2, 1, 1},
    {"2 ranks, stopped at any time", 2, 1, 1, 1, Instance::kStops},
    {"1 rank of 2 lanes, stopped at any time", 1, 2, 1, 2, Instance::kStops},
    {"2 ranks that may be late", 2, 1, 1, 1, Instance::kIsLate},
};

std::string what_breaks(Weakened weakened) {
  for (const Instance& what : kInstances) {
    try {
      Ranks(what, weakened).run();
    } catch (const Broken& broken) {
      return std::string(what.name) + ": " + broken.what();
    }
  }
  return "";
}

}  // namespace

TEST_CASE("all executions end well") {
  for (const Instance& what : kInstances) {
    CAPTURE(std::string(what.name));
    size_t states = 0;
    CHECK_NOTHROW(states = Ranks(what, {}).run());
    MESSAGE(std::string(what.name), ": ", states, " states");
  }
}

TEST_CASE("each ordering is needed") {
  const std::pair<const char*, Weakened> kAll[] = {{"acquire", {.acquire = true}},
                                                   {"release", {.release = true}},
                                                   {"left", {.left = true}},
                                                   {"started", {.started = true}},
                                                   {"host", {.host = true}}};
  for (const auto& [ordering, weakened] : kAll) {
    const std::string name = ordering;
    CAPTURE(name);
    const std::string broken = what_breaks(weakened);
    CHECK(broken != "");
    MESSAGE(name, ", weakened: ", broken);
  }
}

}  // namespace rondo::testing
