#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/life/flight.h"
#include "tests/life/messages.h"
#include "tests/life/report.h"
#include "tests/support/float_modes.h"

namespace rondo::life {

// This rank's life is over; what() is a fault, or "".
struct Over : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string said(const Error& error);
bool blames(const Error& error, int rank);

inline constexpr char kOurAbort[] = "life: a rank found a fault";
// Memory by its use: slots of the text are below kSlots.
inline constexpr int kSlots = 16, kMessageSlot = 100, kDeferredSlot = 1'000'000;
inline constexpr int kCrowdTag = 500;  // below those of deferred messages

// One thread of a rank: plays its steps on groups of its own.
class Thread {
 public:
  Thread(const Life& life, int process, int thread, Report& report, Group* job);
  ~Thread();
  // group 0: `group`, of all ranks. owned: destroyed at the end.
  void play(Group* group, std::unique_ptr<Group> owned);

 private:
  struct Traffic {  // messages under way
    MessageList list;
    bool probes = false;
    std::vector<Flight> sends = {}, receives = {};
    std::vector<std::unique_ptr<Handle>> sending = {}, receiving = {};
  };
  struct Member {  // of a group
    Group* group = nullptr;
    std::unique_ptr<Group> owned;
    std::vector<int> ranks;  // of the job
    int me = 0;
    uint64_t epoch = 0;
    int64_t committed = -1;
    std::map<std::string, Traffic> deferred;
    int size() const { return static_cast<int>(ranks.size()); }
    void await_sends();
  };
  struct Slot {
    std::unique_ptr<Handle> handle;
    std::vector<Flight> flights;
    std::shared_ptr<std::atomic<int>> ended;  // how often the end function was called
    Member* member = nullptr;
    int line = 0;
    bool is_batch = false;
  };

  void play(const std::vector<Step>& steps);
  void play(const Step& step);

  void must(const Error& error, const std::string& what);
  void set_floats(const Step& step, Member& member);
  [[noreturn]] void fail(const std::string& what);
  Seat seat(const Step& step, const Member& member);
  void free_memory(const Step& step, Member& member);

  // rank.cc: groups
  void make_split(const Step& step, Member& parent);
  void make_new_group(const Step& step, Member& parent);
  void keep_group(const Step& step, const Member& parent, const std::vector<int>& ranks, std::unique_ptr<Group> owned);
  void drop_old(const Step& step);
  void drop_group(const Step& step, Member& member);
  void drop(int number);
  // The group is over for this rank, and with the job its life.
  void leave(const Step& step);
  // Nothing of this group is under way.
  void settle(Member& member);

  // works.cc: calls, and those under way
  void collective(const Step& step, Member& member);
  void batch(const Step& step, Member& member);
  void batch_messages(const Step& step, Member& member, int slot, std::vector<Flight>& flights);
  void end_work(const Step& step, Member& member);
  void await_end(Slot& state);
  void finish(int slot, bool poll = false);
  void finish_all();
  void check(Flight& flight, Member& member);
  std::string equal_calls(const Flight& flight, const Member& member) const;

  // exchange.cc: messages
  void exchange(const Step& step, Member& member);
  void exchange_blocking(Traffic traffic, Member& member);
  void collect_named(const Step& step, Member& member);
  void collect(const std::string& name, Member& member);
  void collect_all(Member& member);
  void shift(const Step& step, Member& member);
  void pass_on(const Step& step, const Seat& here, int tag, Memory& memory, Member& member);
  void finish_messages();
  void send_all(Traffic& traffic, int slot, Member& member);
  void receive_all(Traffic& traffic, const std::string& how, Member& member);
  void wait_for(Traffic& traffic, Member& member);
  // The receive is one of a message that a matched probe has found.
  void probe(Call& receive, Member& member);
  void arrive(MessageList& list, Flight& flight, const rondo::Message& got, Member& member);

  void crowd(const Step& step, Member& member);  // crowd.cc

  // training.cc
  void sparse(const Step& step, Member& member);
  void distopt(const Step& step, Member& member);

  // recovery.cc
  void wait_beside(const Step& step, const Member& job, int lost);
  void end_other_groups(Member& job, int but);
  Flight recoverable_sum(const Step& sum, Member& job);
  void sum_once(const Step& sum, Member& job);
  Error sum_until_loss(const Step& sum, Member& job);
  void lose(const Step& step, Member& job);
  void grow(const Step& step, Member& job);
  void welcome(Member& job);
  void train(const Member& job);
  void begin_epoch(const Member& job);
  void commit(const Step& step, Member& member);

  // mistakes.cc, departures.cc, hostile.cc
  void bad(const Step& step, Member& member);
  // Runs any line of a `disagree`; *got: it gave this rank data of others, or a group.
  Error attempt(const Step& step, Member& member, bool* got);
  void disagree(const Step& step, Member& member);
  Error sum_until_failure(Member& member);
  void departure(const Step& step, Member& member);
  void hostile(const Step& step, Member& member);

  const Life& life_;
  int process_;  // number of the rank at its start; from the world on: of a newcomer
  int thread_;
  Report& report_;
  Memory memory_;
  std::map<int, Member> groups_;
  std::map<int, Slot> slots_;
  std::map<int, uint64_t> reached_;  // by line
  std::map<int, SparseModel> sparse_;
  const Step* now_ = nullptr;
  int floats_ = 0;  // how this thread sets its floats for the library's calls: testing::FloatMode
};

// Plays the life as one rank in this process (or, with Ranks::kThreads, as all of them). The exit code of the process.
int play_life(const Life& life, int rank, const std::string& meeting, const std::string& folder);

}  // namespace rondo::life
