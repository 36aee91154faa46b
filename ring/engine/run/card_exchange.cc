#include "ring/engine/run/card_exchange.h"

#include <algorithm>

#include "ring/base/hash.h"
#include "ring/engine/run/one_shot.h"
#include "ring/engine/run/slicing.h"

namespace rondo {
namespace {

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

// Whether `rank` has data that others read, or a result that others write.
bool gives(const CheckedCall& call, int rank) { return !facts_of(call.collective).input.rooted || rank == call.root; }
bool takes(const CheckedCall& call, int rank) { return !facts_of(call.collective).output.rooted || rank == call.root; }

}  // namespace

CardExchange::CardExchange(const CommunicatorContext& context, const std::shared_ptr<const Plan>& plan,
                           IslandMemory& island)
    : context_(context),
      island_(island),
      cards_(context, [&](const CheckedCall& call) { return std::make_unique<BoardRun>(call, plan, island); }) {}

// A rank that neither gives nor takes has no places: its pointers may be anything.
void CardExchange::start(const CheckedCall& call, const RunStart& start) {
  const BufferBytes bytes = buffer_bytes(call, context_.world());
  cards_.own() = CallCard{};
  BufferPlaces& places = cards_.own().places;
  if (gives(call, context_.rank)) {
    places.input = island_.shared().locate(start.buffers.input, bytes.input);
    places.input_address = address_of(start.buffers.input);
  }
  if (takes(call, context_.rank)) {
    places.output = island_.shared().locate(start.buffers.output, bytes.output);
    places.output_address = address_of(start.buffers.output);
  }
  cards_.start(start);
}

void CardExchange::start_trial(const CheckedCall& call, const RunStart& start) {
  const BufferBytes bytes = buffer_bytes(call, context_.world());
  bool readable = true;
  {
    PostBoard& board = island_.channel().board;
    const PostBoard::Access access(board);
    for (int rank = 0; rank < context_.world() && readable; ++rank) {
      // The buffers of a rank that has failed are its own again; this exchange will not complete.
      readable = rank == context_.rank || board.closed(rank) || can_read(rank, bytes);
    }
  }
  cards_.own().unreadable = readable ? 0 : 1;
  cards_.start(start);
}

// Reads a byte at both ends of each buffer that is not mapped here.
bool CardExchange::can_read(int rank, const BufferBytes& bytes) const {
  const BufferPlaces& places = cards()[static_cast<size_t>(rank)].places;
  std::byte byte;
  // A wrong address is no danger here: the kernel refuses to read it, and the rank counts as unreadable.
  const auto reads = [&](const WindowPlace& place, uint64_t address, uint64_t size) {
    if (place.id != 0 || address == 0 || size == 0) return true;
    return island_.shared().pull(context_.world_rank(rank), address, &byte, 1) &&
           island_.shared().pull(context_.world_rank(rank), address + size - 1, &byte, 1);
  };
  return reads(places.input, places.input_address, bytes.input) &&
         reads(places.output, places.output_address, bytes.output);
}

// Whether all buffers of a rank that others touch lie in windows.
bool CardExchange::registered(const CheckedCall& call, int rank) const {
  const bool written = call.collective == Collective::kAllReduce || call.collective == Collective::kReduce ||
                       call.collective == Collective::kAllGather;
  const BufferPlaces& places = cards()[static_cast<size_t>(rank)].places;
  if (gives(call, rank) && places.input.id == 0) return false;
  return !written || !takes(call, rank) || places.output.id != 0;
}

// The same on all ranks, since it depends on the cards alone, and on places that all ranks have tried together.
BufferFacts CardExchange::facts(const CheckedCall& call) const {
  BufferFacts facts;
  for (int rank = 0; rank < context_.world() && facts.plain < 0; ++rank) {
    if (!registered(call, rank)) facts.plain = rank;
  }
  if (facts.plain < 0) return facts;
  const uint64_t digest = digest_of_places(buffer_bytes(call, context_.world()));
  facts.readable = std::find(tried_.begin(), tried_.end(), digest) != tried_.end();
  return facts;
}

bool CardExchange::pulled(const CheckedCall& call) {
  if (unreadable_by() >= 0) return false;
  tried_.push_back(digest_of_places(buffer_bytes(call, context_.world())));
  if (tried_.size() > kTried) tried_.pop_front();
  return true;
}

uint64_t CardExchange::digest_of_places(const BufferBytes& bytes) const {
  Hash64 hash;
  hash.add(bytes.input).add(bytes.output);
  for (const CallCard& card : cards()) {
    hash.add(card.places.input.id).add(card.places.input_address);
    hash.add(card.places.output.id).add(card.places.output_address);
  }
  return hash.value();
}

int CardExchange::unreadable_by() const {
  const auto found =
      std::find_if(cards().begin(), cards().end(), [](const CallCard& card) { return card.unreadable != 0; });
  return found == cards().end() ? -1 : static_cast<int>(found - cards().begin());
}

}  // namespace rondo
