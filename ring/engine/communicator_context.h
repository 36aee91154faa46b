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

// How long a rank's I/O thread may take to answer what that rank does.
inline constexpr std::chrono::milliseconds kAnswerPatience{100};

// What the parts of one communicator share: who its members are, its settings, its failure. Its two flows and
// the CommunicatorState share it. It is constant once made, but for failure and log, which any thread may use,
// and the times in `observed`, which are under the lease of the collectives.
//
// members[r] is the world rank of rank r of the communicator.
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
  // The observer's numbers of the fabric's ranks: ranks of the job at the observer's start. Empty: they are the
  // same.
  std::vector<int> observed_ranks;
  const ForkMark mark;  // of the process that made it
  const int pid;        // that process

  int world() const { return static_cast<int>(members.size()); }
  int world_rank(int rank_in_group) const { return members[static_cast<size_t>(rank_in_group)]; }
  // "rank 1 (host b, pid 17)", and the world rank where that differs.
  std::string name(int rank_in_group) const;
  // -1 if the world rank is not a member.
  int group_rank(int world_rank_of_peer) const;
  // The time limit of a call; 0 stands for the configured one.
  std::chrono::milliseconds limit_of(std::chrono::milliseconds timeout) const {
    return timeout.count() > 0 ? timeout : std::chrono::milliseconds(config.timeout_ms);
  }

  // Throws what stands against any call now: a fork, or the communicator's failure. Every call begins with it,
  // so it costs two loads. Any thread.
  void check_usable() const {
    if (!mark.same_process() || failure.get() != nullptr) refuse_use();
  }
  // The program's interrupt function has ended a wait: the communicator fails with kInterrupted here and
  // kAborted on the other members. Any thread.
  void interrupt() noexcept;
  // Fails the communicator on all members with an error that this rank has met. If the error names no culprit
  // (ranks of the group), it is this rank. Nothing happens if it has failed before. Afterwards check_usable()
  // throws. Any thread.
  void fail(const Error& error) noexcept;
  // Runs a part of a call that the other ranks make, too. If it throws std::bad_alloc the communicator fails,
  // which this throws: the others would wait for this rank.
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
