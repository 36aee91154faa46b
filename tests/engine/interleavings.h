#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

// Every interleaving of a few threads over a few atomic words, with what processors do to their orders. A store that is
// not sequentially consistent may stay in its thread's buffer while later loads go on (x86, Arm). A load that is not
// may have gone ahead of its thread's earlier stores, and of its loads but for those that acquire (Arm's LDAPR and
// LDR): it finds what the word held since. Left out: plain stores that pass each other, which the thread sanitizer
// looks for.
//
// A thread is a function that is run again from its beginning for each of its steps, with what its steps returned
// before. It keeps what it knows in its Local, a plain struct of bytes, and returns at the end of each round of its
// loop, so that states come again and are not gone on from.
namespace rondo::testing {

class Interleavings {
 public:
  static constexpr size_t kMostWords = 48, kMostThreads = 6, kLocalBytes = 16;
  using Local = std::array<uint8_t, kLocalBytes>;
  // True: another round follows.
  using Function = std::function<bool(Local& local)>;
  // What is wrong with a state in which no thread can go on, or "".
  using Judge = std::function<std::string()>;

  // --- before run(); what is stored then is there from the beginning
  uint8_t add_word(std::string name, uint8_t value);
  void add_thread(std::string name, Function function) { threads_.push_back({std::move(name), std::move(function)}); }

  // Runs all of them in which at most so many threads are interrupted: another goes on though this one could. Returns
  // what was wrong, with the steps that led to it, or "".
  std::string run(const Judge& judge, size_t most_interruptions = 1000);
  size_t states() const { return seen_.size(); }

  // --- by threads' functions; value() by a judge
  uint8_t load(uint8_t word, std::memory_order order);
  void store(uint8_t word, uint8_t value, std::memory_order order);
  // Sequentially consistent.
  uint8_t exchange(uint8_t word, uint8_t value);
  uint8_t add(uint8_t word, uint8_t value);
  bool compare_exchange(uint8_t word, uint8_t& expected, uint8_t value);
  // Goes on once the word is not 0, which this sets to 0.
  void await(uint8_t word);
  uint8_t value(uint8_t word) const { return state_->words[word]; }

 private:
  struct Stop {};   // the step of this run has been taken, or there is none
  struct Again {};  // a word is loaded early, which was not known before
  struct Buffered {
    uint8_t word, value;
  };
  struct Thread {
    Local local{};
    std::vector<uint8_t> results;  // of this round's steps
    std::vector<Buffered> buffer;  // stores that only it sees; oldest first
    std::vector<Buffered> early;   // what words held before, which a load that goes ahead finds; oldest first
    bool over = false;
  };
  struct State {
    std::array<uint8_t, kMostWords> words{};
    std::vector<Thread> threads;
  };
  struct Named {
    std::string name;
    Function function;
  };
  enum class Kind : uint8_t { kLoad, kStore, kExchange, kAdd, kCompare, kAwait };

  uint8_t step(Kind kind, uint8_t word, uint8_t value, uint8_t expected, std::memory_order order);
  uint8_t take(Kind kind, uint8_t word, uint8_t value, uint8_t expected, std::memory_order order);
  uint8_t load_early(Thread& own, uint8_t word, std::memory_order order);
  bool advance(State& state, size_t thread, size_t choice);
  void write(State& state, size_t by, uint8_t word, uint8_t value) const;
  void flush_one(State& state, size_t thread) const;
  uint64_t hash(const State& state, size_t last, size_t interruptions) const;
  bool explore(State& state, const Judge& judge, size_t last, size_t interruptions);

  std::vector<std::string> names_;
  std::vector<uint8_t> first_;
  std::array<std::array<bool, kMostWords>, kMostThreads> goes_ahead_{};  // some load of the word by the thread
  std::vector<Named> threads_;
  std::unordered_set<uint64_t> seen_;
  std::vector<std::string> path_;
  std::string wrong_;
  size_t most_interruptions_ = 0;
  // The run of a function:
  State* state_ = nullptr;
  size_t thread_ = 0, at_ = 0;
  size_t choice_ = 0, choices_ = 1;  // of what a load may find
  bool taken_ = false, blocked_ = false;
  std::string told_;
};

// The one of this thread that is being made or run.
inline thread_local Interleavings* the_interleavings = nullptr;

// An atomic word of it, with std::atomic's calls.
template <typename T>
class ModelAtomic {
 public:
  explicit ModelAtomic(T value) : word_(the_interleavings->add_word("", byte(value))) {}
  ModelAtomic(T value, std::string name) : word_(the_interleavings->add_word(std::move(name), byte(value))) {}
  T load(std::memory_order order = std::memory_order_seq_cst) const { return T(the_interleavings->load(word_, order)); }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    the_interleavings->store(word_, byte(value), order);
  }
  T exchange(T value) { return T(the_interleavings->exchange(word_, byte(value))); }
  T fetch_add(T value) { return T(the_interleavings->add(word_, byte(value))); }
  bool compare_exchange_strong(T& expected, T value) {
    uint8_t was = byte(expected);
    const bool done = the_interleavings->compare_exchange(word_, was, byte(value));
    expected = T(was);
    return done;
  }
  void await() { the_interleavings->await(word_); }
  T value() const { return T(the_interleavings->value(word_)); }

 private:
  static uint8_t byte(T value) { return static_cast<uint8_t>(value); }
  uint8_t word_;
};

}  // namespace rondo::testing
