#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/types.h"
#include "ring/engine/call_log.h"
#include "ring/engine/failure.h"
#include "ring/engine/observe/observer.h"
#include "ring/engine/progress/fork_mark.h"
#include "rondo/config.h"
#include "transport/fabric.h"

namespace rondo {

// What the parts of one communicator share. `members[r]` is the world rank of its rank r.
struct CommunicatorContext {
  explicit CommunicatorContext(ForkMark of_process = {}) : mark(std::move(of_process)) {}

  std::shared_ptr<Fabric> fabric;  // shared by all communicators of the process
  uint64_t id = 0;
  uint64_t epoch = 0;  // how often it has shrunk or grown
  std::vector<int> members;
  int rank = 0;
  Topology topology;  // of the members, in their order
  Config config;
  Failure failure{[this](Error& error) { locate(error); }};
  CallLog log;
  Observed observed;
  // The observer's numbers of the fabric's ranks, those from its own start on; empty: the same ones.
  std::vector<int> observed_ranks;
  const ForkMark mark;  // of the process that made it

  int world() const { return static_cast<int>(members.size()); }
  int world_rank(int rank_in_group) const { return members[static_cast<size_t>(rank_in_group)]; }
  // "rank 1 (host b, pid 17)", and the world rank where that differs.
  std::string name(int rank_in_group) const {
    const std::string in_world = fabric->peer_name(world_rank(rank_in_group));
    if (world_rank(rank_in_group) == rank_in_group) return in_world;
    return "rank " + std::to_string(rank_in_group) + " (world " + in_world + ")";
  }
  // -1 if the world rank is not a member.
  int group_rank(int world_rank_of_peer) const {
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] == world_rank_of_peer) return static_cast<int>(i);
    }
    return -1;
  }
  // The program has ended a wait: the communicator fails with kInterrupted here and kAborted on the other members. Any
  // thread.
  void interrupt() noexcept {
    try {
      const std::string text = name(rank) + " was interrupted while it waited";
      failure.set({ErrorCode::kInterrupted, text, {rank}});
      fabric->abort(id, {ErrorCode::kAborted, text, {world_rank(rank)}});
    } catch (...) {
      fail_without_memory();
    }
  }
  // The communicator fails on all members, with an error that this rank has met; one that names no culprit (ranks of
  // the group) is this rank's own. Nothing if it has failed before. Any thread.
  void fail(const Error& error) noexcept {
    if (failure.get() != nullptr) return;
    try {
      Error named = error;
      if (named.ranks.empty()) {
        named.ranks = {rank};
        named.message = name(rank) + ": " + error.message;
      }
      failure.set(named);
      abort_everywhere(named);
    } catch (...) {
      fail_without_memory();
    }
  }

 private:
  void locate(Error& error) const {
    for (const int culprit : error.ranks) {
      const bool member = culprit >= 0 && culprit < world() && fabric != nullptr;
      error.world_ranks.push_back(member ? world_rank(culprit) : -1);
      error.processes.push_back(member ? fabric->process(error.world_ranks.back()) : 0);
    }
  }
  void abort_everywhere(Error error) {
    for (int& culprit : error.ranks) culprit = world_rank(culprit);
    fabric->abort(id, error);
  }
  // A second try with less to say: what other threads do frees memory now and then.
  void fail_without_memory() noexcept {
    failure.set({ErrorCode::kSystem, "out of memory", {}});
    try {
      abort_everywhere({ErrorCode::kSystem, name(rank) + ": out of memory", {rank}});
    } catch (...) {
      // The others find out by their deadline, or by the end of this process.
    }
  }
};

}  // namespace rondo
