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

// What a rank gives to all others for one call.
struct CallCard {
  BufferPlaces places;
  uint64_t unreadable = 0;  // 1: this rank could not read the others' buffers
};

// The exchange by which the ranks of an island learn of each other where the buffers of a call lie: a one-shot
// all_gather of cards; it is a barrier, too. Under the lease.
class CardExchange {
 public:
  // plan: an all_gather by posts. What is referred to must outlive it.
  CardExchange(const CommunicatorContext& context, const std::shared_ptr<const Plan>& plan, IslandMemory& island);

  // Begins it; run() is what moves it.
  void start(const CheckedCall& call, const RunStart& start);
  // A second one for the same call, after this rank has read a byte at both ends of each buffer of the others.
  void start_trial(const CheckedCall& call, const RunStart& start);
  Run& run() { return cards_.run(); }

  // --- once it is done
  // What the cards of all say. readable: there is nothing to be read, or they have read it for such a call not long
  // ago.
  BufferFacts facts(const CheckedCall& call) const;
  const std::vector<CallCard>& cards() const { return cards_.records(); }
  // After a trial: whether all ranks could read the others' buffers.
  bool pulled(const CheckedCall& call);
  // The first rank that could not; -1: there is none.
  int unreadable_by() const;

 private:
  // Sets of places that were tried last: a program's buffers take turns.
  static constexpr size_t kTried = 16;

  bool registered(const CheckedCall& call, int rank) const;
  bool can_read(int rank, const BufferBytes& bytes) const;
  uint64_t digest_of_places(const BufferBytes& bytes) const;

  const CommunicatorContext& context_;
  IslandMemory& island_;
  Gather<CallCard> cards_;
  std::deque<uint64_t> tried_;  // digests of places that all ranks could read
};

}  // namespace rondo
