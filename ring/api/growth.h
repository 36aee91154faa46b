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

// What a communicator of all ranks of a start has beside the fabric.
struct WorldOptions {
  Config config;
  uint64_t epoch = 0;
  std::shared_ptr<Observer> observer = {};          // of the epoch before, shared with it; null: a new one
  std::vector<int> observed_ranks = {};             // CommunicatorContext's
  std::shared_ptr<Allocations> memory_before = {};  // likewise
  std::shared_ptr<Lineage> lineage = {};            // likewise
};
std::shared_ptr<CommunicatorState> world_group(std::shared_ptr<Fabric> fabric, WorldOptions options);

// How the communicator that join() makes takes in processes, and the next epochs of it: one object for all of them.
// Growing is a start of all ranks and the newcomers, with a fabric of its own, and then shrink() of the old
// communicator, in which its members agree on going on in the new one: if all of them that live have opened it.
class Growth {
 public:
  explicit Growth(Launch launch, const Config& config);

  // For a process that has no rank: waits until the ranks of a job have taken it in.
  std::shared_ptr<CommunicatorState> enter(const Config& config, Store::Deadline deadline);

  // The job ends in good order: those that wait hear it.
  void end() noexcept;

  // Collective: how many processes wait, as rank 0 knows. 0 where no address is known.
  int newcomers(CommunicatorState& group);
  // Collective. As Communicator::grow().
  std::shared_ptr<CommunicatorState> grow(CommunicatorState& group, OutsideBatch outside, int newcomers,
                                          std::chrono::milliseconds timeout);

 private:
  struct Invitation;
  int count_newcomers(CommunicatorState& group);
  std::chrono::milliseconds wait_of(CommunicatorState& group, int newcomers, std::chrono::milliseconds timeout) const;
  void agree(CommunicatorState& group, int newcomers, bool refused, std::chrono::milliseconds timeout);
  Invitation invite(CommunicatorState& group, int newcomers, std::chrono::milliseconds wait);
  std::shared_ptr<CommunicatorState> open(CommunicatorState& group, int newcomers, Invitation invitation);
  Door& door(const Config& config, Store::Deadline deadline);

  Launch launch_;
  std::unique_ptr<Door> door_;  // rank 0's, once it has looked who waits
  std::chrono::steady_clock::time_point try_door_at_{};
};

}  // namespace rondo
