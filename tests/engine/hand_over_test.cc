// The rule of progress over its atomic words (ring/engine/progress/hand_over.h): every interleaving of threads that
// wait, a thread that leaves an operation, the worker's thread and two peers is run. Wherever no thread goes on any
// more, each operation whose peer has done its part has ended; with the order of any one store weakened that is not so.
// Two flows take minutes' worth of states: without RONDO_WHOLE their threads are interrupted once instead of twice.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ring/engine/progress/hand_over.h"
#include "tests/engine/interleavings.h"

namespace rondo::testing {
namespace {

// HandOverOrders with those of `weak` weakened, a bit each.
template <unsigned weak>
struct Orders {
  static constexpr std::memory_order of(unsigned bit) {
    return (weak & bit) != 0 ? std::memory_order_release : std::memory_order_seq_cst;
  }
  static constexpr std::memory_order kRelease = of(1), kDrop = of(2), kGiveUp = of(4), kSoundAsleep = of(8),
                                     kMiss = of(16);
};

// Numbers of those who sleep.
constexpr uint8_t kThread = 3;

// transport/doorbell.h: the number of who sleeps for it.
struct ModelBell {
  ModelAtomic<uint8_t> armed{0, "an armed bell"};
  void arm(uint8_t sleeper) { armed.store(sleeper); }
  void disarm(uint8_t sleeper) { armed.compare_exchange_strong(sleeper, 0); }
};

template <typename Orders>
struct Join {
  struct Flow {
    BasicFlowState<ModelAtomic, Orders> state;
    ModelBell bell;
    ModelAtomic<bool> peer_did{false, "a peer's part"};
    ModelAtomic<bool> done{false, "the end of an operation"};
    ModelAtomic<uint8_t> sleepers{0, "sleepers for a lease"};
    ModelAtomic<bool> changed{false, "a lease that was given back"};
  };
  std::array<Flow, 2> flows;
  BasicWatchState<ModelAtomic, Orders> watch;
  ModelBell thread_bell, watch_bell;
  ModelAtomic<uint8_t> version{0, "the version of the list"};
  ModelAtomic<bool> lock{true, "the worker's lock"};
  std::array<ModelAtomic<bool>, 4> rung{ModelAtomic<bool>{false, "nobody's socket"},
                                        ModelAtomic<bool>{false, "1's socket"}, ModelAtomic<bool>{false, "2's socket"},
                                        ModelAtomic<bool>{false, "the thread's socket"}};

  void ring(ModelBell& bell) {
    if (bell.armed.load() == 0) return;
    if (const uint8_t sleeper = bell.armed.exchange(0); sleeper != 0) rung[sleeper].store(true);
  }
  // Under the lease. True if anything moved.
  bool pass(Flow& flow) {
    if (flow.state.submitted()) {
      flow.state.count(1);
      flow.state.submitted(false);
    }
    if (!flow.peer_did.load() || !flow.state.under_way() || flow.done.load()) return false;
    flow.state.count(-1);
    flow.done.store(true, std::memory_order_release);
    wake_sleepers(flow);
    return true;
  }
  void wake_sleepers(Flow& flow) {
    if (flow.sleepers.load() > 0) flow.changed.store(true);
  }
  void release(Flow& flow) {
    const bool missed = flow.state.release();
    wake_sleepers(flow);
    if (missed) look_again();
  }
  bool try_drive(Flow& flow) {
    if (!flow.state.try_acquire()) return false;
    const bool moved = pass(flow);
    release(flow);
    return moved;
  }

  // --- Worker
  void wake_if_left() {
    if (watch.left()) ring(thread_bell);
  }
  void look_again() {
    ring(watch_bell);
    wake_if_left();
  }
  void list(Flow& flow) {
    lock.await();
    flow.state.list(true);
    version.fetch_add(1);
    lock.store(true);
    look_again();
  }
  void leave(Flow& flow) {
    if (!flow.state.under_way()) return;
    flow.state.listed() ? wake_if_left() : list(flow);
  }
  bool needed() {
    if (watch.asleep()) return false;
    lock.await();
    bool any = false;
    for (Flow& flow : flows) any = any || (flow.state.listed() && !flow.state.idle());
    lock.store(true);
    return any;
  }
  void drop_idle() {
    lock.await();
    bool dropped = false;
    for (Flow& flow : flows) dropped |= flow.state.listed() && flow.state.drop_if_idle();
    if (dropped) version.fetch_add(1);
    lock.store(true);
  }

  // --- Watch: of a thread with a flow of its own, or none
  struct Known {
    uint8_t stage = 0, held = 0, version = 0, listed = 0;  // listed: a bit a flow
  };
  void know(Known& known) {
    if (known.version == version.load()) return;
    lock.await();
    known.listed = 0;
    for (size_t i = 0; i < flows.size(); ++i) known.listed |= flows[i].state.listed() ? 1u << i : 0;
    known.version = version.load();
    lock.store(true);
  }
  bool is_beside(const Known& known, size_t i, size_t own) const { return i != own && (known.listed >> i & 1) != 0; }
  bool take(Known& known) { return known.held != 0 || (known.held = watch.take()) != 0; }
  bool pass_beside(Known& known, size_t own) {
    know(known);
    bool moved = false;
    for (size_t i = 0; i < flows.size(); ++i) {
      if (is_beside(known, i, own) && flows[i].state.under_way()) moved |= try_drive(flows[i]);
    }
    return moved;
  }
  void give_up(Known& known) {
    if (known.held == 0) return;
    watch.give_up();
    const bool knows = known.version == version.load();
    bool all_idle = knows;
    for (size_t i = 0; i < flows.size() && all_idle; ++i)
      all_idle = (known.listed >> i & 1) == 0 || flows[i].state.idle();
    if (!all_idle) wake_if_left();
    known = {};
  }
  // True: it may sleep.
  bool arm(Known& known, uint8_t self, size_t own, ModelBell* bell) {
    if (known.held != 0) know(known);
    if (bell != nullptr) bell->arm(self);
    bool moved = false;
    if (own < flows.size()) {
      flows[own].state.miss();
      wake_sleepers(flows[own]);
      flows[own].bell.arm(self);
      moved = pass(flows[own]);
    }
    if (known.held != 0) {
      watch_bell.arm(self);
      for (size_t i = 0; i < flows.size(); ++i) {
        if (!is_beside(known, i, own) || !flows[i].state.try_acquire_before_sleep()) continue;
        flows[i].bell.arm(self);
        moved |= pass(flows[i]);
        release(flows[i]);
      }
      watch.fall_asleep();
      moved |= known.version != version.load();
    }
    return !moved;
  }
  void woke(const Known& known, uint8_t self, size_t own, ModelBell* bell) {
    if (known.held != 0) watch.wake();
    for (size_t i = 0; i < flows.size(); ++i) {
      if (i == own || (known.held != 0 && is_beside(known, i, own))) flows[i].bell.disarm(self);
    }
    if (known.held != 0) watch_bell.disarm(self);
    if (bell != nullptr) bell->disarm(self);
  }
};

// What takes part, beside the worker's thread and the first flow's peer.
enum class First : uint8_t {
  kLeaves,  // submits an operation, and does something else for ever
  kPolls,   // asks once whether the operation is done, which is under way and listed from the beginning
  kWaits
};
struct Cast {
  First first = First::kLeaves;
  bool listed = false;  // the first flow, from the beginning
  bool second_waits = false;
  bool held = false;  // a thread that waits for another operation of the first flow, for ever, has its lease if it can
  size_t most_interruptions = 1000;  // all
};

size_t most_interruptions(const Cast& cast) {
  return cast.second_waits && std::getenv("RONDO_WHOLE") == nullptr ? 1 : cast.most_interruptions;
}

template <unsigned weak>
struct Model {
  explicit Model(const Cast& cast) {
    the_interleavings = &all;
    join = std::make_unique<Join<Orders<weak>>>();
    BasicFlowState<ModelAtomic, Orders<weak>>& first = join->flows[0].state;
    if (cast.listed) {
      first.list(true);
      join->version.store(1);
    }
    if (cast.first == First::kPolls) first.submitted(true);
    cast.first == First::kWaits ? add_waiter(0) : cast.first == First::kPolls ? add_poller(0) : add_leaver(0);
    if (cast.second_waits) add_waiter(1);
    if (cast.held) add_holder(0);
    add_thread();
    add_peer(0);
    if (cast.second_waits) add_peer(1);
  }
  std::string run(size_t most_interruptions) {
    const auto judge = [this]() -> std::string {
      for (auto& flow : join->flows) {
        if (flow.peer_did.value() && !flow.done.value())
          return "an operation stands still whose peer has done its part";
        if (flow.done.value() && flow.sleepers.value() > 0) return "a thread sleeps on whose operation has ended";
      }
      return "";
    };
    return all.run(judge, most_interruptions);
  }

  void add_peer(size_t own) {
    all.add_thread("peer " + std::to_string(own + 1), [this, own](auto&) {
      join->flows[own].peer_did.store(true);
      join->ring(join->flows[own].bell);
      return false;
    });
  }
  // Flow::look().
  void add_poller(size_t own) {
    all.add_thread("poller " + std::to_string(own + 1), [this, own](auto& local) {
      auto& known = reinterpret_cast<typename Join<Orders<weak>>::Known&>(local);
      join->try_drive(join->flows[own]);
      if (join->take(known)) join->pass_beside(known, own);
      join->give_up(known);
      return false;
    });
  }
  // Flow::notify() of what it has submitted.
  void add_leaver(size_t own) {
    all.add_thread("leaver " + std::to_string(own + 1), [this, own](auto&) {
      auto& flow = join->flows[own];
      flow.state.submitted(true);
      join->ring(flow.bell);
      join->try_drive(flow);
      join->leave(flow);
      return false;
    });
  }
  // Submits an operation and waits for it, as Flow::wait().
  void add_waiter(size_t own) {
    all.add_thread("waiter " + std::to_string(own + 1), [this, own](auto& local) {
      auto& known = reinterpret_cast<typename Join<Orders<weak>>::Known&>(local);
      auto& flow = join->flows[own];
      const auto self = static_cast<uint8_t>(own + 1);
      if (known.stage == 0) {
        flow.state.submitted(true);
        known.stage = 1;
        return true;
      }
      if (known.stage == 1) {
        if (!flow.done.load() && !flow.state.try_acquire()) {
          join->ring(flow.bell);
          flow.sleepers.fetch_add(1);
          if (!flow.done.load() && flow.state.held()) flow.changed.await();
          flow.sleepers.fetch_add(255);
          return true;
        }
        known.stage = 2;
        return true;
      }
      // With the lease, unless it was done before.
      const bool done = flow.done.load() || (join->pass(flow), flow.done.load());
      if (done) {
        join->release(flow);
        if (known.held == 0 && join->watch.nobody() && join->take(known)) join->pass_beside(known, own);
        join->give_up(known);
        return false;
      }
      if (join->take(known) && join->pass_beside(known, own)) return true;
      if (join->arm(known, self, own, nullptr)) join->rung[self].await();
      join->woke(known, self, own, nullptr);
      return true;
    });
  }
  // Flow::Wait::drive() of another operation: keeps the lease while it sleeps.
  void add_holder(size_t own) {
    all.add_thread("holder " + std::to_string(own + 1), [this, own](auto& local) {
      constexpr uint8_t kSelf = 2;
      auto& known = reinterpret_cast<typename Join<Orders<weak>>::Known&>(local);
      auto& flow = join->flows[own];
      if (known.stage == 0) return (known.stage = flow.state.try_acquire()) != 0;
      if (join->pass(flow)) return true;
      if (join->arm(known, kSelf, own, nullptr)) join->rung[kSelf].await();
      join->woke(known, kSelf, own, nullptr);
      return true;
    });
  }
  void add_thread() {
    all.add_thread("the thread", [this](auto& local) {
      auto& known = reinterpret_cast<typename Join<Orders<weak>>::Known&>(local);
      constexpr size_t kNone = 2;
      const bool busy = join->flows[0].state.listed() || join->flows[1].state.listed();
      if (busy && join->take(known)) {
        join->know(known);
        bool under_way = false;
        for (size_t i = 0; i < 2; ++i)
          under_way |= join->is_beside(known, i, kNone) && join->flows[i].state.under_way();
        if (under_way) {
          if (join->pass_beside(known, kNone)) return true;
          if (join->arm(known, kThread, kNone, &join->thread_bell)) join->rung[kThread].await();
          join->woke(known, kThread, kNone, &join->thread_bell);
          return true;
        }
      }
      join->give_up(known);
      if (join->needed()) return true;  // it sleeps for a while
      join->drop_idle();
      join->thread_bell.arm(kThread);
      join->watch.sound_asleep(true);
      if (!join->needed()) join->rung[kThread].await();
      join->watch.sound_asleep(false);
      join->thread_bell.disarm(kThread);
      return true;
    });
  }

  Interleavings all;
  std::unique_ptr<Join<Orders<weak>>> join;
};

constexpr Cast kCasts[] = {
    {.first = First::kWaits, .held = true, .most_interruptions = 2},
    {.first = First::kLeaves},
    {.first = First::kLeaves, .listed = true},
    {.first = First::kPolls, .listed = true},
    {.first = First::kLeaves, .second_waits = true, .most_interruptions = 2},
    {.first = First::kLeaves, .listed = true, .second_waits = true, .most_interruptions = 2},
    {.first = First::kWaits, .second_waits = true, .most_interruptions = 2},
};

template <unsigned weak>
std::string run_all() {
  for (const Cast& cast : kCasts) {
    Model<weak> model(cast);
    const std::string wrong = model.run(most_interruptions(cast));
    MESSAGE(model.all.states() << " states");
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

TEST_CASE("no wake-up is lost between threads that wait, the worker's thread and peers") { CHECK(run_all<0>() == ""); }

TEST_CASE("each order is needed") {
  CHECK(run_all<1>() != "");
  CHECK(run_all<2>() != "");
  CHECK(run_all<4>() != "");
  CHECK(run_all<8>() != "");
  CHECK(run_all<16>() != "");
}

}  // namespace rondo::testing
