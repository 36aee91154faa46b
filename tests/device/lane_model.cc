#include "tests/device/lane_model.h"

#include <algorithm>
#include <cstring>

namespace rondo::testing {
namespace {

// A hash of states, eight bytes at a time.
class Sum {
 public:
  Sum& add(const void* data, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(data) + at, std::min(bytes - at, sizeof word));
      value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
      value_ ^= value_ >> 29;
    }
    return *this;
  }
  template <class T>
  Sum& add(const T& value) {
    return add(&value, sizeof value);
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0x726f6e646fu;
};

const void* high_half(const uint64_t* word) { return reinterpret_cast<const uint32_t*>(word) + 1; }

}  // namespace

void View::join(const View& other) {
  for (size_t i = 0; i < kMostPlaces; ++i) stores[i] = std::max(stores[i], other.stores[i]);
  for (size_t i = 0; i < kMostThreads; ++i) steps[i] = std::max(steps[i], other.steps[i]);
}

// --- ModelMachine

void ModelMachine::be_lane(uint32_t lane, uint32_t lanes) {
  lane_ = lane;
  lanes_ = lanes;
  weakened_ = model_.weakened_;
}

uint32_t ModelMachine::take(Step::Kind kind, const void* at, std::memory_order order, uint32_t value) {
  const size_t index = index_++;
  if (index < own_.count) return own_.results[index];
  own_.next = {kind, order, model_.place_of(at), value};
  if (!takes_) throw Stop{};
  takes_ = false;
  if (index == kMostSteps) throw Broken("more steps than there is room for");
  state_.path.emplace_back(thread_, own_.next);
  own_.results[index] = Model::take(state_, thread_, own_.next, choice_, weakened_);
  state_.path.back().second.value = own_.results[index];
  ++own_.count;
  if (kind != Step::kLoad) own_.firm = own_.count;
  return own_.results[index];
}

uint32_t ModelMachine::load_relaxed(const uint32_t* word) {
  return model_.has_place(word) ? take(Step::kLoad, word) : *word;
}
void ModelMachine::store_relaxed(uint32_t* word, uint32_t value) {
  if (!model_.has_place(word)) return void(*word = value);
  take(Step::kStore, word, std::memory_order_relaxed, value);
}

uint64_t ModelMachine::load_word(const uint64_t* word) {
  if (!model_.has_place(word)) return *word;
  const uint32_t halves = take(Step::kLoad, word);
  const uint32_t high = weakened_.word ? take(Step::kLoad, high_half(word)) : halves;
  return (halves & 0xffff) | uint64_t{high >> 16} << 32;
}
void ModelMachine::store_word(uint64_t* word, uint64_t value) {
  if (!model_.has_place(word)) return void(*word = value);
  const auto halves = static_cast<uint32_t>((value & 0xffff) | (value >> 32) << 16);
  take(Step::kStore, word, std::memory_order_relaxed, halves);
  if (weakened_.word) take(Step::kStore, high_half(word), std::memory_order_relaxed, halves);
}

void ModelMachine::pause() {
  if (++in_vain_ > model_.kept_in_vain_) throw InVain{};
}

void ModelMachine::fold(const DeviceFold& fold) {
  uint32_t sum = 0;
  for (uint32_t s = 0; s < fold.source_count; ++s) sum += read(fold.sources[s]);
  for (uint32_t t = 0; t < fold.target_count; ++t) write(fold.targets[t], sum);
}

// --- Model

void Model::add_word(const uint64_t* word, const std::string& name) {
  add_place(word, name);
  if (weakened_.word) add_place(high_half(word), "high half of " + name);
}

uint8_t Model::place_of(const void* at) const {
  const auto found = places_.find(at);
  if (found == places_.end()) throw Broken("an address that nobody has named");
  return found->second;
}

// before: 1: the one before it.
const Store& Model::latest(const ModelState& state, uint8_t place, int before) {
  for (auto at = state.stores.rbegin(); at != state.stores.rend(); ++at) {
    if (at->place == place && before-- == 0) return *at;
  }
  throw Broken("no such store");
}

uint32_t Model::choices(const ModelState& state, size_t thread) const {
  const ModelThread& own = state.threads[thread];
  if (own.next.kind == Step::kEnd) return 0;
  const uint8_t last = latest(state, own.next.place).number;
  const bool sequential = own.next.order == std::memory_order_seq_cst && !weakened_.host;
  const uint8_t fenced = sequential ? state.fenced.stores[own.next.place] : 0;
  if (own.next.kind == Step::kAwait) return latest(state, own.next.place).value >= own.next.value ? 1 : 0;
  return own.next.kind == Step::kLoad ? last - std::max(own.view.stores[own.next.place], fenced) + 1u : 1;
}

bool Model::is_eager(const Step& step) const {
  if (step.kind == Step::kAwait || step.kind == Step::kEnd) return false;
  const bool plain_store = step.kind == Step::kStore && step.order != std::memory_order_seq_cst;
  return plain_store || step.kind == Step::kRead || step.kind == Step::kWrite || step.kind == Step::kArrive ||
         named_[step.place].one_thread;
}

uint32_t Model::take(ModelState& state, size_t thread, const Step& step, uint32_t choice, const Weakened& weakened) {
  ModelThread& own = state.threads[thread];
  View& view = own.view;
  const auto now = static_cast<uint8_t>(own.before + own.count + 1);
  view.steps[thread] = now;
  const bool is_plain = step.kind == Step::kRead || step.kind == Step::kWrite;
  const Store from = latest(state, step.place, step.kind == Step::kLoad ? static_cast<int>(choice) : 0);
  if (is_plain) {
    if (view.stores[step.place] < from.number) throw Broken("a race: what is read or written has not been seen");
    if (step.kind == Step::kRead) return state.reads[step.place][thread] = now, from.value;
    for (size_t other = 0; other < kMostThreads; ++other) {
      if (view.steps[other] < state.reads[step.place][other]) throw Broken("a race: others still read");
    }
  }
  const bool both = step.kind == Step::kArrive || (step.order == std::memory_order_acq_rel && !weakened.left);
  const bool sequential = step.order == std::memory_order_seq_cst;
  const bool host = step.kind == Step::kStoreHost;
  const bool acquires = both || step.kind == Step::kAwait || (step.kind == Step::kLoad && sequential) ||
                        (step.order == std::memory_order_acquire && !weakened.acquire);
  const bool releases = both || host || (step.order == std::memory_order_release && !weakened.release);
  const bool fences = step.kind == Step::kStore && sequential && !weakened.started;
  view.stores[step.place] = std::max(view.stores[step.place], from.number);
  if (acquires) view.join(from.view);
  const bool stores = step.kind != Step::kLoad && step.kind != Step::kAwait;
  const bool adds = step.kind == Step::kAdd || step.kind == Step::kArrive;
  const uint32_t value = adds ? from.value + 1 : step.kind == Step::kClaim ? 1 : step.value;
  if (stores) {
    Store made{step.place, static_cast<uint8_t>(from.number + 1), value, {}};
    view.stores[step.place] = made.number;
    if (releases) made.view = view;
    if (adds || step.kind == Step::kClaim) made.view.join(from.view);
    state.stores.push_back(made);
  }
  if (fences) view.join(state.fenced);
  if (fences || host) state.fenced.join(view);
  return from.value;
}

bool Model::advance(ModelState& state, size_t thread, uint32_t choice, bool takes) {
  ModelThread& own = state.threads[thread];
  try {
    while (true) {
      ModelMachine machine(*this, state, thread, choice, takes);
      const bool goes_on = functions_[thread](machine, own.round);
      own.before = static_cast<uint8_t>(own.before + own.count);
      own.count = own.firm = 0;
      ++own.round;
      takes = false;
      if (!goes_on) return own.next = Step{}, true;
    }
  } catch (const ModelMachine::Stop&) {
    return true;
  } catch (const ModelMachine::InVain&) {
    return false;
  } catch (const Broken& broken) {
    throw Broken(broken.what() + text_of(state.path));
  }
}

bool Model::is_stuck(const ModelState& state) {
  bool all_end = true;
  for (size_t thread = 0; thread < functions_.size(); ++thread) {
    ModelState next = state;
    ModelThread& own = next.threads[thread];
    if (own.next.kind == Step::kEnd) continue;
    all_end = false;
    own.count = own.firm;
    if (!advance(next, thread, 0, false)) throw Broken("a look without a load");
    while (choices(next, thread) > 0) {
      const bool loads = own.next.kind == Step::kLoad;
      if (!advance(next, thread, 0, true)) break;
      if (!loads) return false;
    }
  }
  return !all_end;
}

std::string Model::text_of(const std::vector<std::pair<uint8_t, Step>>& path) const {
  constexpr const char* kKinds[] = {"load", "store", "store",  "add",   "claim",
                                    "read", "write", "arrive", "await", "end"};
  std::string text;
  for (const auto& [thread, step] : path) {
    text += "\n  " + std::to_string(thread) + " " + kKinds[step.kind] + " " + named_[step.place].name + ": " +
            std::to_string(step.value);
  }
  return text;
}

uint64_t Model::hash_of(const ModelState& state) {
  Sum all;
  for (const ModelThread& thread : state.threads) {
    all.add(thread.view).add(thread.results.data(), thread.count * sizeof(uint32_t));
    all.add(thread.count).add(thread.round).add(thread.next.kind);
  }
  all.add(state.fenced).add(state.reads);
  uint64_t stores = 0;  // whatever their order
  for (const Store& store : state.stores) {
    stores += Sum().add(store.place).add(store.number).add(store.value).add(store.view).value();
  }
  return all.add(stores).value();
}

size_t Model::run() {
  std::unordered_set<uint64_t> seen;
  std::vector<ModelState> open(1);
  for (const auto& [at, place] : places_) open[0].stores.push_back({place, 0, 0, {}});
  for (size_t thread = 0; thread < functions_.size(); ++thread) advance(open[0], thread, 0, false);
  while (!open.empty()) {
    const ModelState state = std::move(open.back());
    open.pop_back();
    if (!seen.insert(hash_of(state)).second) continue;
    size_t first = 0, end = functions_.size();
    for (size_t thread = 0; thread < functions_.size() && end > first + 1; ++thread) {
      if (is_eager(state.threads[thread].next)) first = thread, end = thread + 1;
    }
    const size_t others = open.size();
    for (size_t thread = first; thread < end; ++thread) {
      const uint32_t most = choices(state, thread);
      for (uint32_t choice = 0; choice < most; ++choice) {
        ModelState next = state;
        if (advance(next, thread, choice, true)) open.push_back(std::move(next));
      }
    }
    if (open.size() == others && is_stuck(state)) throw Broken("threads wait for ever" + text_of(state.path));
  }
  return seen.size();
}

}  // namespace rondo::testing
