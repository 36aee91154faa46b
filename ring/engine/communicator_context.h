#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "ring/base/types.h"
#include "ring/engine/call_log.h"
#include "ring/engine/failure.h"
#include "ring/engine/observe/observer.h"
#include "ring/engine/progress/fork_mark.h"
#include "rondo/config.h"
#include "transport/fabric.h"

namespace rondo {

// How long a rank's I/O thread may take to answer what its rank does.
inline constexpr std::chrono::milliseconds kAnswerPatience{100};

// What the parts of one communicator share. `members[r]` is the world rank of its rank r.
struct CommunicatorContext {
  explicit CommunicatorContext(ForkMark of_process = {});

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
  const int pid;        // likewise

  int world() const { return static_cast<int>(members.size()); }
  int world_rank(int rank_in_group) const { return members[static_cast<size_t>(rank_in_group)]; }
  // "rank 1 (host b, pid 17)", and the world rank where that differs.
  std::string name(int rank_in_group) const;
  // -1 if the world rank is not a member.
  int group_rank(int world_rank_of_peer) const;
  // The configured one for 0.
  std::chrono::milliseconds limit_of(std::chrono::milliseconds timeout) const {
    return timeout.count() > 0 ? timeout : std::chrono::milliseconds(config.timeout_ms);
  }

  // Throws what stands against any call now: a fork, the communicator's failure. Any thread.
  void check_usable() const {
    if (!mark.same_process() || failure.get() != nullptr) refuse_use();
  }
  // The program has ended a wait: the communicator fails with kInterrupted here and kAborted on the other members. Any
  // thread.
  void interrupt() noexcept;
  // The communicator fails on all members, with an error that this rank has met; one that names no culprit (ranks of
  // the group) is this rank's own. Nothing if it has failed before; afterwards check_usable() throws. Any thread.
  void fail(const Error& error) noexcept;
  // Runs a part of a call that the other ranks make, too: where it throws std::bad_alloc, the communicator fails, which
  // it throws.
  template <typename Action>
  auto with_memory(Action action) {
    try {
      return action();
    } catch (const std::bad_alloc&) {
      fail_for_memory();
    }
  }
  [[noreturn]] void fail_for_memory();

  [[noreturn]] void refuse_use() const;

 private:
  void locate(Error& error) const;
  void abort_everywhere(Error error);
  void fail_without_memory() noexcept;
};

}  // namespace rondo
