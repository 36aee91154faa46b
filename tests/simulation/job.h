#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rondo/communicator.h"
#include "tests/simulation/kernel.h"
#include "tests/simulation/script.h"

namespace rondo::testing::sim {

struct Report {
  std::string wrong;  // empty: every oracle agrees
  uint64_t steps = 0, digest = 0;
  uint64_t started = 0;  // the step in which the last rank came out of join()
  Time began = 0, ended = 0, last_fault = 0;
  // The longest from the last fault to the failure of a join() that had begun a second before it.
  Time told = 0;
  Time went_on = 0;  // the longest from the last fault to the next step that a rank committed; 0: none did
  int epochs = 0, finished = 0, left_out = 0, without_quorum = 0, failed = 0, killed = 0;  // ends of processes
  // What failures of join() and of the first epoch say: ranks below 64 and codes, a bit each; whether all name the same
  // ranks.
  uint64_t blamed = 0, codes = 0;
  bool blames_differ = false;
};
constexpr uint64_t bit_of(auto rank_or_code) { return uint64_t{1} << static_cast<unsigned>(rank_or_code); }

// A job on the whole library: each rank joins, makes calls and messages, commits, and after a failure shrinks and goes
// on; newcomers are taken in. Checked: every result, which tells ranks, epochs and steps apart; that the members of an
// epoch agree on who they are, on its number and on the committed step, and nobody else is in an epoch of that number;
// that nothing is written to a buffer whose call is over; that a process which ends in good order has closed all it
// opened; that no error blames the program; that all ends in a bounded time.
class Job {
 public:
  explicit Job(Script script);
  ~Job();
  Report run();

 private:
  struct Life;
  struct Buffer;
  // Over at the end of its scope, however that is left.
  class Lent;

  void begin(int host, int rank);
  JoinOptions options_of(const Life& life) const;
  void live(Life& life);
  void note_blame(const Exception& failure);
  void count_end(const Life& life, const Exception& failure);
  void finish(Life& life);
  void play(Life& life, Communicator& group);
  bool advance(Life& life, Communicator& group);
  bool recover(Life& life, Communicator& group, const Exception& failure);
  void enter(Life& life, Communicator& group);
  void compare_epochs(uint64_t epoch, const std::vector<int64_t>& members);
  bool over(int64_t number) const;

  // steps.cc
  void step(Life& life, Communicator& group, int64_t number);
  void sum(Life& life, Communicator& group, int64_t number, Random& draw);
  void gather(Life& life, Communicator& group, int64_t number);
  void part(Life& life, Communicator& group, int64_t number, Random& draw);
  void sum_of_part(Life& life, Communicator& part, int64_t number, std::pair<int, int> first_and_stride, size_t count);
  void messages(Life& life, Communicator& group, int64_t number, Random& draw);
  void exchange(Life& life, Communicator& group, int64_t number, size_t by, size_t count);

  void happen(const Fault& fault);
  void end(Life& life);

  Buffer& buffer(Life& life, size_t count);
  void check_buffers(const Life& life);
  void wrong(const std::string& what);
  void say(const std::string& what) const;  // with RONDO_DEBUG
  static int64_t value(int64_t number, uint64_t epoch, int64_t step, size_t index);

  const Script script_;
  Machine machine_;
  Kernel kernel_;
  std::vector<std::unique_ptr<Life>> lives_;         // by number: the ranks, then newcomers
  std::map<uint64_t, std::vector<int64_t>> epochs_;  // the members, by number
  Report report_;
};

// In a process of its own, so that what a crash leaves behind goes with it. RONDO_HERE: in this one, for a debugger.
Report run_apart(const Script& script);

}  // namespace rondo::testing::sim
