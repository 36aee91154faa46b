#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/island/island_memory.h"
#include "ring/engine/route/route.h"
#include "ring/engine/run/gather.h"
#include "ring/engine/run/run.h"
#include "ring/engine/run/slicing.h"
#include "transport/shared_memory.h"

namespace rondo {

// Where a rank's buffers lie: in which windows (id 0: in none), and at which addresses of its process. A buffer that
// no other rank touches has neither.
struct BufferPlaces {
  WindowPlace input, output;
  uint64_t input_address = 0, output_address = 0;
  bool operator==(const BufferPlaces&) const = default;
};

// What a rank tells all others about its buffers for one call.
struct CallCard {
  BufferPlaces places;
  uint64_t unreadable = 0;  // 1: this rank could not read the others' buffers
};

// The exchange by which the ranks of an island learn where the buffers of a call lie: a one-shot all_gather of
// cards. It is a barrier, too: afterwards every rank has made the call, so its buffers may be touched. Under
// the lease.
class CardExchange {
 public:
  // plan: an all_gather by posts. What is referred to must outlive it.
  CardExchange(const CommunicatorContext& context, const std::shared_ptr<const Plan>& plan, IslandMemory& island);

  // Begins the exchange for this call; run() moves it.
  void start(const CheckedCall& call, const RunStart& start);
  // Begins a second one for the same call, after this rank has read a byte at both ends of each buffer of the
  // others. That pull() works in this island (SharedMemory::can_pull) does not say that it reaches this memory.
  void start_trial(const CheckedCall& call, const RunStart& start);
  Run& run() { return cards_.run(); }

  // What the cards say together: the same on all ranks. readable: there is nothing to read, or all ranks have
  // read these places lately.
  BufferFacts facts(const CheckedCall& call) const;
  const std::vector<CallCard>& cards() const { return cards_.records(); }
  // After start_trial(): whether all ranks could read the others' buffers.
  bool pulled(const CheckedCall& call);
  // The first rank that could not; -1: there is none.
  int unreadable_by() const;

 private:
  // Sets of places that were read last and need no further trial: a program's buffers take turns.
  static constexpr size_t kTried = 16;

  // All of these are functions of the cards, which peers have written.
  bool registered(const CheckedCall& call, int rank) const;
  bool can_read(int rank, const BufferBytes& bytes) const;
  uint64_t digest_of_places(const BufferBytes& bytes) const;

  const CommunicatorContext& context_;
  IslandMemory& island_;
  Gather<CallCard> cards_;
  std::deque<uint64_t> tried_;  // digests of places that all ranks could read
};

}  // namespace rondo
