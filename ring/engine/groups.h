#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "ring/engine/progress/operation.h"
#include "rondo/call.h"
#include "transport/fabric.h"

namespace rondo {

class Allocations;
class CommunicatorState;
class Lineage;
class OutsideBatch;

// What the ranks of a communicator make of it: communicators of some of them (split, new_group), and its next
// epoch, of those that live (shrink, grow). All calls but committed() are collective, and all ranks make them
// in one order. Any thread.
class Groups {
 public:
  // group has this as a member.
  explicit Groups(CommunicatorState& group) : group_(group) {}

  std::shared_ptr<CommunicatorState> split(OutsideBatch, int color, int key);  // nullptr: this rank is in no group
  std::shared_ptr<CommunicatorState> new_group(OutsideBatch, std::span<const int> ranks, Purpose by);
  // A group, and the operation that opens it; null: there is none, in a group of this rank alone.
  using Opening = std::pair<std::shared_ptr<CommunicatorState>, OperationRef<Operation>>;
  Opening new_group_async(OutsideBatch, std::span<const int> ranks, uint64_t series);

  std::shared_ptr<CommunicatorState> shrink(OutsideBatch, std::chrono::milliseconds timeout);
  // Makes the next epoch of this communicator of the ranks that live; this one ends. A rank that dies while the
  // next epoch opens is lost there, and the survivors go on once more. by: the name of the call, for messages.
  std::shared_ptr<CommunicatorState> go_on(OutsideBatch, std::chrono::milliseconds patience, const char* by);
  // grow() has made a communicator of the members and the newcomers, its ranks first. go_on() takes it if all
  // members that live have it.
  void hold(std::shared_ptr<CommunicatorState> grown) { grown_ = std::move(grown); }
  // The first exchange of a communicator with newcomers: afterwards all ranks are in it, with one committed
  // step.
  void enter(std::chrono::milliseconds timeout);
  // How long to wait for members; 0: the configured time. Throws Exception(kInvalid) that names the call.
  std::chrono::milliseconds patience_of(std::chrono::milliseconds timeout, const char* call) const;

  void commit(OutsideBatch, int64_t step, uint64_t digest);
  int64_t committed() const { return committed_.load(); }

 private:
  // Who is in a communicator that is made. Each of them computes the same id by itself.
  struct Members {
    uint64_t id = 0;  // of their communicator
    std::vector<int> world_ranks;
    uint64_t epoch = 0;
  };
  // The number of a split, in the order in which all ranks make them.
  uint64_t next_split();
  Members numbered(std::span<const int> ranks, uint64_t series);
  Members members_of(std::span<const int> ranks, uint64_t series);
  // lineage: the one of an epoch before; null: a new one, made of this communicator.
  std::shared_ptr<CommunicatorState> make(const Members& made, std::shared_ptr<Lineage> lineage = {},
                                          std::shared_ptr<Allocations> allocations = {}) const;
  [[noreturn]] void decline(const Members& made, const Error& why) const;
  std::shared_ptr<CommunicatorState> subgroup(const Members& made, Purpose by);
  Shrunk agree_on_members(std::chrono::milliseconds patience, const char* by);
  std::shared_ptr<CommunicatorState> shrunk_to(std::vector<int> world_ranks) const;
  void agree_on_committed(std::chrono::milliseconds timeout);

  CommunicatorState& group_;
  std::mutex mutex_;  // of these two, which count what was made in the order of the calls
  uint64_t splits_ = 0;
  std::map<std::pair<uint64_t, std::vector<int>>, uint64_t> groups_made_;  // by series and ranks

  // The last step that every rank has committed; -1: none.
  std::atomic<int64_t> committed_{-1};
  // What hold() was given, until go_on() takes it; null: grow() is not under way.
  std::shared_ptr<CommunicatorState> grown_;
};

}  // namespace rondo
