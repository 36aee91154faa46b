#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "ring/base/descriptor.h"
#include "ring/base/log.h"
#include "transport/rendezvous/peer_card.h"

namespace asio {
class io_context;
}

namespace rondo {

// Which processes of ranks have ended, as proven by the kernel for those of this host, or by the launcher. On the I/O
// thread.
class ProcessWatch {
 public:
  using OnEnded = std::function<void(int rank)>;

  // launcher: Launch::ended; -1: nothing is known there. It is looked at here, and a warning says so where it is
  // another file by now.
  ProcessWatch(asio::io_context& io, int rank, int world, int launcher, const Logger& logger, OnEnded on_ended);
  ~ProcessWatch();

  enum class Now { kUnknown, kEnded };
  // A rank that is lost and may live. kEnded: its process is no more. Else on_ended says so when it is, where the
  // kernel can be asked: on this host, in the same name space of processes.
  Now watch(int peer, const Roster& roster);
  // The ranks, but for this one, whose processes have ended by the launcher's word, which covers other hosts.
  std::vector<int> ended_by_launcher() const;

 private:
  struct Process;

  asio::io_context& io_;
  const int rank_, world_;
  const Descriptor launcher_;
  const OnEnded on_ended_;
  std::map<int, std::unique_ptr<Process>> processes_;  // by rank
};

}  // namespace rondo
