// Small instances of the protocol by which kernels of a call meet (kernels/device/call_lane.h), and of the host's stop,
// in all executions that weak memory allows (lane_model.h): results are right, no two accesses race, every kernel ends;
// after a host has seen that nobody is at work, nobody touches its memory, but for posts that nobody takes. Each
// ordering, weakened, is noticed.
#include "tests/device/lane_model.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/device/lane_calls.h"

namespace rondo::testing {
namespace {

using Form = LaneCalls::Form;
constexpr uint32_t kLineElements = 16;  // a lane's share of a block, at least

struct Instance {
  const char* name;
  uint32_t world, lanes;
  std::vector<Form> forms;  // of calls
  enum Host { kWaits, kStops, kIsLate } host = kWaits;
  bool is_large = false;  // many states: for RONDO_WHOLE alone

  bool stages() const {
    return std::ranges::count(forms, Form::kStaged) > 0 || std::ranges::count(forms, Form::kUneven) > 0;
  }
  uint32_t slices() const { return stages() ? 2 : 1; }
};

// The ranks, their lanes and hosts as threads of a model.
class Ranks {
 public:
  Ranks(const Instance& what, Weakened weakened)
      : what_(what),
        calls_(what.world, kLineElements * what.lanes * what.slices(), what.forms, 1),
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
  uint32_t last() const { return static_cast<uint32_t>(what_.forms.size()); }
  // The share of a lane of each slice.
  uint32_t shares() const { return what_.lanes * what_.slices(); }
  uint32_t* data(uint32_t rank, uint32_t block, uint32_t share) {
    return calls_.block(rank, block) + share * kLineElements;
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
        for (uint32_t share = lane; share < shares(); share += what_.lanes) {
          model_.add_place(data(rank, block, share), "block " + std::to_string(block) + at);
        }
        if (!what_.stages()) continue;
        model_.add_place(calls_.staged(rank, block) + lane * kLineElements, "slice of " + std::to_string(block) + at);
      }
      const size_t slot = LaneCalls::kSlotBytes / sizeof(uint32_t);
      for (size_t i = 0; i < kMessageSlots; ++i) {
        model_.add_place(&own.slots[i * slot + lane * slot / what_.lanes], "slot " + std::to_string(i) + at);
      }
      for (uint32_t from = 0; from < what_.world; ++from) {
        if (from != rank) add_mail(own, lane, from, " from " + std::to_string(from) + at);
      }
    }
  }
  void add_mail(LaneCalls::Rank& own, uint32_t lane, uint32_t from, const std::string& of) {
    LaneMail& mail = own.control->lanes[lane].from[from];
    for (const size_t word : {0, 1, 4, 5}) model_.add_place(&mail.words[word], "word " + std::to_string(word) + of);
    for (const size_t turn : {0, 1}) {
      for (uint64_t& print : mail.prints[turn]) model_.add_word(&print, "print" + of);
    }
    if (lane > 0 || std::ranges::count(what_.forms, Form::kPosts) == 0) return;
    const uint64_t each = LaneCalls::kPostBytes, words = kPostedBytes * each / sizeof(uint64_t);
    for (const size_t turn : {0, 1}) model_.add_word(&own.posts[(turn * what_.world + from) * words], "post" + of);
    auto* const taken =
        reinterpret_cast<std::byte*>(own.posts.data()) + 2 * kPostedBytes * kMostPostBytes * what_.world;
    model_.add_place(taken + from * each, "taken" + of);
  }

  bool run_lane(ModelMachine& m, uint32_t rank, uint32_t lane, uint32_t round) {
    const uint32_t number = round + 1;
    if (number > last()) return false;
    m.await(&order_[rank].launched, round + 1);
    m.await(&order_[rank].ended, round * what_.lanes);
    DeviceCall call = calls_.make(rank, number);
    if (what_.host == Instance::kIsLate) call.limit_ns = 0;  // at the second look
    DeviceControl::Lane& own = calls_.of(rank).control->lanes[lane];
    own.calls = m.counts()[0];
    own.messages = m.counts()[1];
    own.slices = m.counts()[2];
    m.be_lane(lane, what_.lanes);
    LaneState state = {};
    CallLane<ModelMachine>(m, call, state).run();
    m.arrive(&order_[rank].ended);
    m.counts()[0] = own.calls;
    m.counts()[1] = own.messages;
    m.counts()[2] = own.slices;
    return true;
  }

  void write_all(ModelMachine& m, uint32_t rank, uint32_t first, uint32_t end, uint32_t number) {
    for (uint32_t block = first; block < end; ++block) {
      for (uint32_t share = 0; share < shares(); ++share) {
        m.write(data(rank, block, share), LaneCalls::input_of(rank, number, block));
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
    const uint32_t number = round + 1;
    if (what_.host != Instance::kWaits) return round == 0 && (stop(m, rank), true);
    if (number > last()) return false;
    launch(m, rank, number);
    await_end(m, rank, number);
    if (m.load(&calls_.of(rank).status.failure) != 0) throw Broken("a call has failed");
    check(m, rank, number);
    return true;
  }
  void check(ModelMachine& m, uint32_t rank, uint32_t number) {
    const bool posts = calls_.form_of(number) == Form::kPosts;
    for (uint32_t block = 0; block < (posts ? 1 : what_.world); ++block) {
      for (uint32_t share = 0; share < (posts ? 1 : shares()); ++share) {
        const uint32_t found = m.read(data(rank, what_.world + block, share));
        if (found != calls_.output_of(number, block)) throw Broken("a wrong result");
      }
    }
  }

  // At any time, or once a kernel has ended because others were late.
  void stop(ModelMachine& m, uint32_t rank) {
    launch(m, rank, 1);
    for (uint32_t number = 2; number <= last(); ++number) m.arrive(&order_[rank].launched);
    if (what_.host == Instance::kIsLate) await_end(m, rank, 1);
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
    const CallStatus& status = calls_.of(rank).status;
    if (m.load(&status.passed) == 1 && m.load(&status.failure) == 0) check(m, rank, 1);
    write_all(m, rank, 0, blocks(), 0);
  }

  const Instance what_;
  LaneCalls calls_;
  Model model_;
  std::vector<Order> order_;
};

const Instance kInstances[] = {
    {"2 ranks, a sum and messages", 2, 1, {Form::kSum, Form::kGather}},
    {"3 ranks, a sum", 3, 1, {Form::kSum}},
    {"2 ranks, of which one stages slices", 2, 1, {Form::kStaged}},
    {"2 ranks that learn of slices when they meet", 2, 1, {Form::kUneven}},
    {"2 ranks that stage twice", 2, 1, {Form::kStaged, Form::kStaged}, Instance::kWaits, true},
    {"3 ranks, messages", 3, 1, {Form::kGather}, Instance::kWaits, true},
    {"2 ranks of 2 lanes, a sum", 2, 2, {Form::kSum}, Instance::kWaits, true},
    {"2 ranks, posts", 2, 1, {Form::kPosts, Form::kPosts, Form::kPosts}},
    {"3 ranks, posts", 3, 1, {Form::kPosts}, Instance::kWaits, true},
    {"2 ranks, posts and a sum", 2, 1, {Form::kPosts, Form::kSum, Form::kPosts}},
    {"2 ranks, stopped at any time", 2, 1, {Form::kSum}, Instance::kStops},
    {"2 ranks with posts, stopped at any time", 2, 1, {Form::kPosts}, Instance::kStops},
    {"2 ranks of which one stages, stopped at any time", 2, 1, {Form::kStaged}, Instance::kStops, true},
    {"1 rank of 2 lanes, stopped at any time", 1, 2, {Form::kSum, Form::kGather}, Instance::kStops},
    {"2 ranks that may be late", 2, 1, {Form::kSum}, Instance::kIsLate},
};

bool is_run(const Instance& what) { return !what.is_large || std::getenv("RONDO_WHOLE") != nullptr; }

std::string what_breaks(Weakened weakened) {
  for (const Instance& what : kInstances) {
    if (!is_run(what)) continue;
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
    if (!is_run(what)) continue;
    CAPTURE(std::string(what.name));
    size_t states = 0;
    CHECK_NOTHROW(states = Ranks(what, {}).run());
    MESSAGE(std::string(what.name), ": ", states, " states");
  }
}

TEST_CASE("each ordering is needed") {
  const std::pair<const char*, Weakened> kAll[] = {{"acquire", {.acquire = true}}, {"release", {.release = true}},
                                                   {"left", {.left = true}},       {"started", {.started = true}},
                                                   {"host", {.host = true}},       {"word", {.word = true}}};
  for (const auto& [ordering, weakened] : kAll) {
    const std::string name = ordering;
    CAPTURE(name);
    const std::string broken = what_breaks(weakened);
    CHECK(broken != "");
    MESSAGE(name, ", weakened: ", broken);
  }
}

}  // namespace rondo::testing
