#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#include "kernels/device/call_lane.h"

// All executions of a few threads on memory as weak as C++ has it, with release and acquire and full fences, but
// without stores that come from later loads: a load may return any store to its word that the thread has not yet seen a
// later one of; an acquire sees what the release behind the value had seen (views: Kang et al., "A Promising Semantics
// for Relaxed-Memory Concurrency", POPL 2017). Plain accesses that no such order separates are a race.
//
// A thread is a function, which is run again from its beginning for each of its steps, with the results of the steps
// before; states that have been seen are not gone on from. Stores and plain accesses come at once, since loads choose.
namespace rondo::testing {

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr size_t kMostPlaces = 136, kMostThreads = 8, kMostSteps = 96;

// What a thread has seen: the number of the latest store to each place, and of the latest step of each thread.
struct View {
  std::array<uint8_t, kMostPlaces> stores{};
  std::array<uint8_t, kMostThreads> steps{};
  void join(const View& other);
};
struct Store {
  uint8_t place, number;
  uint32_t value;
  View view;  // of who acquires it
};
struct Step {
  enum Kind : uint8_t { kLoad, kStore, kStoreHost, kAdd, kClaim, kRead, kWrite, kArrive, kAwait, kEnd } kind = kEnd;
  std::memory_order order = std::memory_order_relaxed;
  uint8_t place = 0;
  uint32_t value = 0;
  bool operator==(const Step&) const = default;
};
struct ModelThread {
  View view;
  std::array<uint32_t, kMostSteps> results{};
  uint8_t count = 0;        // of results
  uint8_t firm = 0;         // up to the last one of a step that is no load
  uint8_t before = 0;       // steps of functions that have ended
  uint32_t round = 0;       // functions that have ended
  uint32_t counts[3] = {};  // a lane's calls, messages and slices
  Step next;
};
struct ModelState {
  std::array<ModelThread, kMostThreads> threads;
  std::vector<Store> stores;
  View fenced;
  std::array<std::array<uint8_t, kMostThreads>, kMostPlaces> reads{};  // by place and thread: the last step
  std::vector<std::pair<uint8_t, Step>> path;                          // by thread
};

// What is weakened.
struct Weakened {
  bool acquire = false, release = false, left = false, started = false, host = false;
  bool word = false;  // its halves are stored and loaded one by one
};

class Model;

// Runs the function of a thread up to its next step, and takes that one; a Machine of CallLane.
class ModelMachine {
 public:
  static constexpr uint32_t kBetweenClocks = 1;
  static constexpr uint64_t kBetweenStopsNs = 0;
  struct Stop {};
  struct InVain {};

  ModelMachine(Model& model, ModelState& state, size_t thread, uint32_t choice, bool takes)
      : model_(model), state_(state), own_(state.threads[thread]), thread_(thread), choice_(choice), takes_(takes) {}
  // From now on it is a lane, whose orderings are weakened.
  void be_lane(uint32_t lane, uint32_t lanes);
  uint32_t* counts() { return own_.counts; }

  ThreadPlace thread() const { return {0, 1}; }
  uint32_t& step() { return step_; }
  uint32_t lane() const { return lane_; }
  uint32_t lanes() const { return lanes_; }
  uint64_t element_bytes() const { return sizeof(uint32_t); }
  bool any(bool it) const { return it; }
  uint32_t load_acquire(const uint32_t* word) { return take(Step::kLoad, word, std::memory_order_acquire); }
  // Words that no place is named for are the lane's own.
  uint32_t load_relaxed(const uint32_t* word);
  void store_release(uint32_t* word, uint32_t value) { take(Step::kStore, word, std::memory_order_release, value); }
  void store_relaxed(uint32_t* word, uint32_t value);
  void store_started(uint32_t* word, uint32_t value) { take(Step::kStore, word, std::memory_order_seq_cst, value); }
  bool claim(uint32_t* word) { return take(Step::kClaim, word) == 0; }
  uint32_t add_left(uint32_t* word) { return take(Step::kAdd, word, std::memory_order_acq_rel); }
  // Words whose halves fit 16 bits. Those that no place is named for are the same in all calls.
  uint64_t load_word(const uint64_t* word);
  void store_word(uint64_t* word, uint64_t value);
  // Not ordered with what the host does behind its stop.
  uint32_t load_data(const Byte* from, uint64_t) { return take(Step::kLoad, from); }
  void store_data(Byte* to, uint32_t data, uint64_t) { write(to, data); }
  template <class T>
  T* reach(T* memory, uint64_t) const {
    return memory;
  }
  uint64_t now() { return ++clock_; }
  // What a look in vain has seen a later one sees, too: such executions are not gone on with.
  void pause();
  void run(const Pass& pass) { fold(pass.fold); }

  // Steps of a host.
  uint32_t load(const uint32_t* word) { return take(Step::kLoad, word, std::memory_order_seq_cst); }
  void store(uint32_t* word, uint32_t value) { take(Step::kStoreHost, word, std::memory_order_seq_cst, value); }
  uint32_t read(const void* data) { return take(Step::kRead, data); }
  void write(const void* data, uint32_t value) { take(Step::kWrite, data, std::memory_order_relaxed, value); }
  // What streams order: adds one, and waits until so many have.
  void arrive(const uint32_t* at) { take(Step::kArrive, at); }
  void await(const uint32_t* at, uint32_t number) { take(Step::kAwait, at, std::memory_order_relaxed, number); }

 private:
  void fold(const DeviceFold& fold);
  uint32_t take(Step::Kind kind, const void* at, std::memory_order order = std::memory_order_relaxed,
                uint32_t value = 0);

  Model& model_;
  ModelState& state_;
  ModelThread& own_;
  const size_t thread_;
  const uint32_t choice_;
  bool takes_;  // a step, still
  Weakened weakened_;
  uint32_t lane_ = 0, lanes_ = 1, step_ = 0;
  uint64_t clock_ = 0;
  size_t index_ = 0, in_vain_ = 0;
};

class Model {
 public:
  // round: how often the function has ended; false: the thread has no more of them.
  using Function = std::function<bool(ModelMachine& machine, uint32_t round)>;
  // kept_in_vain: looks in vain of one function that are gone on with.
  explicit Model(Weakened weakened, size_t kept_in_vain = 0) : weakened_(weakened), kept_in_vain_(kept_in_vain) {}
  void add_thread(Function function) { functions_.push_back(std::move(function)); }
  // Every address that threads use, once; its first store, of 0, is before everything, and seen by all. one_thread: no
  // more stores there, or not by several threads that wait for no other one between.
  void add_place(const void* at, std::string name, bool one_thread = false) {
    places_.emplace(at, static_cast<uint8_t>(named_.size()));
    named_.push_back({std::move(name), one_thread});
  }
  void add_word(const uint64_t* word, const std::string& name);
  // Runs all executions; returns the number of states. Throws Broken: what one of them has done, or exception of a
  // thread.
  size_t run();

 private:
  friend class ModelMachine;
  uint8_t place_of(const void* at) const;
  bool has_place(const void* at) const { return places_.contains(at); }
  static uint32_t take(ModelState& state, size_t thread, const Step& step, uint32_t choice, const Weakened& weakened);
  uint32_t choices(const ModelState& state, size_t thread) const;
  bool is_eager(const Step& step) const;
  static const Store& latest(const ModelState& state, uint8_t place, int before = 0);
  // The thread takes its next step, and comes to the one after it. False: it has looked in vain.
  bool advance(ModelState& state, size_t thread, uint32_t choice, bool takes);
  // Whether nobody goes on any more, whatever is looked at.
  bool is_stuck(const ModelState& state);
  std::string text_of(const std::vector<std::pair<uint8_t, Step>>& path) const;
  static uint64_t hash_of(const ModelState& state);

  const Weakened weakened_;
  const size_t kept_in_vain_;
  struct Named {
    std::string name;
    bool one_thread;
  };
  std::vector<Named> named_;
  std::vector<Function> functions_;
  std::map<const void*, uint8_t> places_;
};

}  // namespace rondo::testing
