#include "tests/engine/interleavings.h"

#include <algorithm>
#include <stdexcept>

namespace rondo::testing {
namespace {

// Older values of a word that a load may find. With 1 in its place hand_over_test has the same verdicts.
constexpr long kMostEarly = 3;

}  // namespace

uint8_t Interleavings::add_word(std::string name, uint8_t value) {
  const size_t number = names_.size();
  if (number == kMostWords) throw std::length_error("more words than there is room for");
  names_.push_back(name.empty() ? "word " + std::to_string(number) : std::move(name));
  first_.push_back(value);
  return static_cast<uint8_t>(number);
}

uint8_t Interleavings::load(uint8_t word, std::memory_order order) { return step(Kind::kLoad, word, 0, 0, order); }
void Interleavings::store(uint8_t word, uint8_t value, std::memory_order order) {
  step(Kind::kStore, word, value, 0, order);
}
uint8_t Interleavings::exchange(uint8_t word, uint8_t value) {
  return step(Kind::kExchange, word, value, 0, std::memory_order_seq_cst);
}
uint8_t Interleavings::add(uint8_t word, uint8_t value) {
  return step(Kind::kAdd, word, value, 0, std::memory_order_seq_cst);
}
bool Interleavings::compare_exchange(uint8_t word, uint8_t& expected, uint8_t value) {
  const uint8_t was = step(Kind::kCompare, word, value, expected, std::memory_order_seq_cst);
  return was == std::exchange(expected, was);
}
void Interleavings::await(uint8_t word) { step(Kind::kAwait, word, 0, 0, std::memory_order_seq_cst); }

uint8_t Interleavings::step(Kind kind, uint8_t word, uint8_t value, uint8_t expected, std::memory_order order) {
  if (state_ == nullptr) {  // the model is being made
    if (kind == Kind::kStore) first_[word] = value;
    return first_[word];
  }
  Thread& own = state_->threads[thread_];
  if (at_ < own.results.size()) return own.results[at_++];
  if (taken_) throw Stop{};
  if (kind == Kind::kAwait && state_->words[word] == 0) {
    blocked_ = true;
    throw Stop{};
  }
  taken_ = true;
  const uint8_t result = take(kind, word, value, expected, order);
  static constexpr const char* kKinds[] = {"loads", "stores to", "exchanges", "adds to", "compares", "is woken by"};
  told_ = threads_[thread_].name + " " + kKinds[static_cast<size_t>(kind)] + " " + names_[word] + ": " +
          std::to_string(kind == Kind::kStore ? value : result);
  own.results.push_back(result);
  ++at_;
  return result;
}

uint8_t Interleavings::take(Kind kind, uint8_t word, uint8_t value, uint8_t expected, std::memory_order order) {
  Thread& own = state_->threads[thread_];
  uint8_t& memory = state_->words[word];
  if (kind == Kind::kLoad) {
    for (auto at = own.buffer.rbegin(); at != own.buffer.rend(); ++at) {
      if (at->word == word) return at->value;
    }
    if (order != std::memory_order_seq_cst) return load_early(own, word, order);
    own.early.clear();
    return memory;
  }
  if (kind == Kind::kStore && order != std::memory_order_seq_cst) {
    own.buffer.push_back({word, value});
    return value;
  }
  while (!own.buffer.empty()) flush_one(*state_, thread_);
  const uint8_t was = memory;
  if (kind != Kind::kStore) own.early.clear();
  if (kind == Kind::kAdd) write(*state_, thread_, word, static_cast<uint8_t>(was + value));
  if (kind == Kind::kStore || kind == Kind::kExchange) write(*state_, thread_, word, value);
  if (kind == Kind::kCompare && was == expected) write(*state_, thread_, word, value);
  if (kind == Kind::kAwait) write(*state_, thread_, word, 0);
  return was;
}

// choice_ says which value it loads: the newest, the one before it, and so on.
uint8_t Interleavings::load_early(Thread& own, uint8_t word, std::memory_order order) {
  if (!std::exchange(goes_ahead_[thread_][word], true)) throw Again{};
  const auto is_its = [word](const Buffered& entry) { return entry.word == word; };
  auto& early = own.early;
  choices_ = 1 + static_cast<size_t>(std::count_if(early.begin(), early.end(), is_its));
  auto found = early.rbegin();
  uint8_t value = state_->words[word];
  for (size_t left = choice_; left > 0; ++found) {
    if (!is_its(*found)) continue;
    value = found->value;
    --left;
  }
  // It went as early as can be: behind the change before that one. Older values of the word have passed; so has, for
  // loads behind an acquire, whatever else was older.
  const auto older = std::find_if(found, early.rend(), is_its).base();
  early.erase(order == std::memory_order_relaxed ? std::remove_if(early.begin(), older, is_its) : early.begin(), older);
  return value;
}

void Interleavings::write(State& state, size_t by, uint8_t word, uint8_t value) const {
  const uint8_t was = std::exchange(state.words[word], value);
  const auto is_its = [word](const Buffered& entry) { return entry.word == word; };
  for (size_t i = 0; i < state.threads.size(); ++i) {
    auto& early = state.threads[i].early;
    if (i == by) std::erase_if(early, is_its);
    if (i == by || state.threads[i].over || was == value || !goes_ahead_[i][word]) continue;
    if (std::count_if(early.begin(), early.end(), is_its) == kMostEarly) {
      early.erase(std::find_if(early.begin(), early.end(), is_its));
    }
    early.push_back({word, was});
  }
}

void Interleavings::flush_one(State& state, size_t thread) const {
  auto& buffer = state.threads[thread].buffer;
  const Buffered oldest = buffer.front();
  buffer.erase(buffer.begin());
  write(state, thread, oldest.word, oldest.value);
}

// The thread takes its next step, or ends. False: it waits.
bool Interleavings::advance(State& state, size_t thread, size_t choice) {
  state_ = &state;
  thread_ = thread;
  at_ = 0;
  choice_ = choice;
  choices_ = 1;
  taken_ = blocked_ = false;
  Thread& own = state.threads[thread];
  Local local = own.local;
  try {
    const bool again = threads_[thread].function(local);
    own.local = local;
    own.results.clear();
    own.over = !again;
    if (!taken_) told_ = threads_[thread].name + (again ? " begins anew" : " ends");
  } catch (const Stop&) {
  }
  return !blocked_;
}

uint64_t Interleavings::hash(const State& state, size_t last, size_t interruptions) const {
  uint64_t value = 0x726f6e646full;
  const auto add = [&value](uint64_t word) {
    value = (value ^ word) * 0x9e3779b97f4a7c15u;
    value ^= value >> 29;
  };
  if (most_interruptions_ < 1000) add(last * 1000 + interruptions);
  for (size_t i = 0; i < names_.size(); ++i) add(state.words[i]);
  for (const Thread& thread : state.threads) {
    for (const uint8_t byte : thread.local) add(byte);
    add(thread.results.size() * 2 + thread.over);
    for (const uint8_t result : thread.results) add(result);
    add(thread.buffer.size());
    for (const Buffered& entry : thread.buffer) add(entry.word * 256u + entry.value);
    add(thread.early.size());
    for (const Buffered& entry : thread.early) add(entry.word * 256u + entry.value);
  }
  return value;
}

std::string Interleavings::run(const Judge& judge, size_t most_interruptions) {
  most_interruptions_ = most_interruptions;
  while (true) {
    seen_.clear();
    path_.clear();
    wrong_.clear();
    State state;
    for (size_t i = 0; i < first_.size(); ++i) state.words[i] = first_[i];
    state.threads.resize(threads_.size());
    try {
      explore(state, judge, 0, 0);
      return wrong_;
    } catch (const Again&) {
    }
  }
}

// False: something was wrong.
bool Interleavings::explore(State& state, const Judge& judge, size_t last, size_t interruptions) {
  if (!seen_.insert(hash(state, last, interruptions)).second) return true;
  bool any = false, last_goes_on = false;
  const auto go_on = [&](State& next, std::string told, size_t thread, size_t so_far) {
    any = true;
    path_.push_back(std::move(told));
    if (!explore(next, judge, thread, so_far)) return false;
    path_.pop_back();
    return true;
  };
  for (size_t i = 0; i < threads_.size(); ++i) {
    const size_t thread = (last + i) % threads_.size();
    if (!state.threads[thread].buffer.empty()) {
      State next = state;
      flush_one(next, thread);
      if (!go_on(next, threads_[thread].name + "'s oldest store is seen", last, interruptions)) return false;
    }
    const size_t interrupted = interruptions + (thread != last && last_goes_on ? 1 : 0);
    if (state.threads[thread].over || interrupted > most_interruptions_) continue;
    size_t choices = 1;
    for (size_t choice = 0; choice < choices; ++choice) {
      State next = state;
      if (!advance(next, thread, choice)) break;
      choices = choices_;
      last_goes_on |= thread == last;
      if (!go_on(next, told_, thread, interrupted)) return false;
    }
  }
  if (any) return true;
  state_ = &state;
  wrong_ = judge();
  if (wrong_.empty()) return true;
  for (const std::string& step : path_) wrong_ += "\n  " + step;
  return false;
}

}  // namespace rondo::testing
