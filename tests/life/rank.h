#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/life/flight.h"

namespace rondo::life {

// What a rank found, and where it is: two files of the player's folder (README.md, "A rank").
class Report {
 public:
  Report(const std::string& folder, int rank);
  ~Report();  // writes the report
  Report(const Report&) = delete;

  void at(int thread, int line);
  void fault(const std::string& text);
  // Of a line whose result all members of the group led by rank `leader` of the job have. False: it was different
  // before. compare: whether it must be the same each time.
  bool bits(int line, int leader, uint64_t hash, bool compare);
  bool clean();

 private:
  std::string folder_;
  int rank_;
  std::atomic<uint64_t>* at_ = nullptr;
  std::mutex mutex_;
  std::vector<std::string> faults_;
  std::map<std::pair<int, int>, uint64_t> bits_;
};

// One thread of a rank: plays its steps on groups of its own.
class Thread {
 public:
  Thread(const Life& life, int rank, int thread, Report& report, Group* job);
  ~Thread();
  // group 0: `group`, of all ranks. owned: destroyed at the end.
  void play(Group* group, std::unique_ptr<Group> owned);

 private:
  struct Message {
    int src, dst, tag;
    uint64_t count;
  };
  struct Deferred {
    const Step* step = nullptr;
    uint64_t salt = 0;
    std::vector<Flight> flights;
    std::vector<std::unique_ptr<Handle>> sends;
  };
  struct Member {  // of a group
    Group* group = nullptr;
    std::unique_ptr<Group> owned;
    std::vector<int> ranks;  // of the job
    int me = 0;
    std::map<std::string, Deferred> deferred;
    int size() const { return static_cast<int>(ranks.size()); }
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
  void make_split(const Step& step, Member& parent);
  void make_new_group(const Step& step, Member& parent);
  void drop(int number);
  void collective(const Step& step, Member& member);
  void finish(int slot, bool poll = false, bool drop = false);
  void check(Flight& flight, Member& member);
  void batch(const Step& step, Member& member);
  void finish_messages();
  void exchange(const Step& step, Member& member);
  void collect(const std::string& name, Member& member, bool all_or_words = false);
  void shift(const Step& step, Member& member);
  void sparse(const Step& step, Member& member);
  void distopt(const Step& step, Member& member);
  void bad(const Step& step, Member& member);
  void disagree(const Step& step, int number, Member& member);
  void departure(const Step& step, int number, Member& member);
  void hostile(const Step& step, Member& member);

  Seat seat(const Step& step, const Member& member);
  std::vector<Message> messages(const Step& step, const Member& member) const;
  Flight send_flight(const Step& step, const Member& member, const Message& message, int k, uint64_t salt, int slot);
  Flight recv_flight(const Step& step, const Member& member, const std::vector<Message>& list, int k, int slot);
  void expect_message(Flight& flight, const Step& step, const Member& member, const std::vector<Message>& list,
                      std::vector<bool>& seen, Work::Message got, uint64_t salt);
  void receive_all(const Step& step, Member& member, uint64_t salt, const std::string& how,
                   std::vector<Flight>& flights, std::vector<std::unique_ptr<Handle>>& handles);
  // Runs any line of a `disagree`; *got: it gave this rank data of others, or a group.
  Error attempt(const Step& step, Member& member, bool* got);
  void must(const Error& error, const std::string& what);
  Error sum_until_failure(Member& member);
  [[noreturn]] void fail(const std::string& what);

  const Life& life_;
  int rank_;
  int thread_;
  Report& report_;
  Memory memory_;
  std::map<int, Member> groups_;
  std::map<int, Slot> slots_;
  std::map<int, uint64_t> reached_;  // by line
  std::map<int, SparseModel> sparse_;
  const Step* now_ = nullptr;
};

// Plays the life as one rank in this process (or, with Ranks::kThreads, as all of them). The exit code of the process.
int play_life(const Life& life, int rank, const std::string& meeting, const std::string& folder);

}  // namespace rondo::life
