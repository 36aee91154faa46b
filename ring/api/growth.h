#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ring/engine/communicator_state.h"
#include "rondo/config.h"
#include "rondo/store.h"
#include "transport/rendezvous/door.h"
#include "transport/rendezvous/launch.h"

namespace rondo {

// What a communicator of all ranks of a start has besides the fabric.
struct WorldOptions {
  Config config;
  uint64_t epoch = 0;
  std::shared_ptr<Observer> observer = {};          // of the epoch before, shared with it; null: a new one
  std::vector<int> observed_ranks = {};             // CommunicatorContext's
  std::shared_ptr<Allocations> memory_before = {};  // likewise
  std::shared_ptr<Lineage> lineage = {};            // likewise
};
// The communicator of all ranks of a start, with a worker and, unless one is given, an observer of its own.
std::shared_ptr<CommunicatorState> world_group(std::shared_ptr<Fabric> fabric, WorldOptions options);

// How the communicator of join() takes in newcomers, and its next epochs do: all epochs share one object.
//
// Growing is a start of all ranks and the newcomers, with a fabric of its own. The members of the old
// communicator then agree, as in shrink(), to go on in the new one: they do if all of them that live have
// opened it. One thread at a time: grow() and newcomers() are collective.
class Growth {
 public:
  explicit Growth(Launch launch, const Config& config);

  // For a process without a rank: waits until the ranks of a job have taken it in. Throws at the deadline.
  std::shared_ptr<CommunicatorState> enter(const Config& config, Store::Deadline deadline);

  // The job ends in good order: processes that wait to be taken in get an answer.
  void end() noexcept;

  // Collective: how many processes wait, as rank 0 knows. 0 where no address is known.
  int newcomers(CommunicatorState& group);
  // Collective: Communicator::grow().
  std::shared_ptr<CommunicatorState> grow(CommunicatorState& group, OutsideBatch outside, int newcomers,
                                          std::chrono::milliseconds timeout);

 private:
  struct Invitation;
  // newcomers() where an address is known. Broadcasts rank 0's count.
  int count_newcomers(CommunicatorState& group);
  // The parts of grow(), in this order. The first throws what is wrong with this rank's own call, kept until agree(),
  // so that the other ranks do not wait for a rank that has refused.
  std::chrono::milliseconds wait_of(CommunicatorState& group, int newcomers, std::chrono::milliseconds timeout) const;
  void agree(CommunicatorState& group, int newcomers, bool refused, std::chrono::milliseconds timeout);
  Invitation invite(CommunicatorState& group, int newcomers, std::chrono::milliseconds wait);
  std::shared_ptr<CommunicatorState> open(CommunicatorState& group, int newcomers, Invitation invitation);
  // Opens the address at its first use. Throws where another process serves it. Rank 0 only.
  Door& door(const Config& config, Store::Deadline deadline);

  // What join() has found; its secret is that of newcomers, who know no unique id.
  Launch launch_;
  std::unique_ptr<Door> door_;  // of rank 0, from its first look at who waits
  // Rank 0: not before this time is an address tried again that another process served.
  std::chrono::steady_clock::time_point try_door_at_{};
};

}  // namespace rondo
