#include "ring/engine/run/bound_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rondo {

// Uses the binding of the last call again if all cards are equal and all its windows live. Costs no look-up.
bool BoundWindows::take_again(const std::vector<CallCard>& cards) {
  const bool same = std::equal(places_.begin(), places_.end(), cards.begin(), cards.end(),
                               [](const BufferPlaces& places, const CallCard& card) { return places == card.places; });
  if (!same) return false;
  for (const std::weak_ptr<Window>& bound : bound_) {
    std::shared_ptr<Window> window = bound.lock();
    if (!window) return false;
    in_use_.push_back(std::move(window));
  }
  return true;
}

BoundWindows::Bound BoundWindows::bind(const CheckedCall& call, const Plan& plan, const Slicing& slicing,
                                       const std::vector<CallCard>& cards) {
  in_use_.clear();
  if (take_again(cards)) return Bound::kAsBefore;
  in_use_.clear();
  places_.clear();
  const BufferBytes bytes = buffer_bytes(call, context_.world());
  binding_.memory = &island_.shared();
  binding_.channel = &island_.channel();
  binding_.ranks.assign(cards.size(), {});
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    PeerMemory& peer = binding_.ranks[rank];
    peer.world_rank = context_.world_rank(static_cast<int>(rank));
    peer.input_address = cards[rank].places.input_address;
    peer.output_address = cards[rank].places.output_address;
  }
  for (const Ref& ref : plan.refs) {
    if (ref.space == Space::kWindow && !bind(ref, cards[ref.peer].places, bytes)) return Bound::kNotYet;
  }
  lay_out_windows(call, plan, slicing, binding_);
  for (const CallCard& card : cards) places_.push_back(card.places);
  bound_.assign(in_use_.begin(), in_use_.end());
  return Bound::kAnew;
}

// Binds what one ref touches. False: the window is on its way.
bool BoundWindows::bind(const Ref& ref, const BufferPlaces& places, const BufferBytes& bytes) {
  PeerMemory& peer = binding_.ranks[ref.peer];
  if ((ref.flags & kStaging) != 0) {
    peer.staging = island_.staging(ref.peer);
    return peer.staging != nullptr;
  }
  if ((ref.flags & kPeerOutput) != 0) {
    return peer.output != nullptr || find(ref.peer, places.output, bytes.output, peer.output);
  }
  return peer.input != nullptr || find(ref.peer, places.input, bytes.input, peer.input);
}

// Finds a place in a peer's window. A place in no window leaves `data` as it is. The numbers are the peer's
// words, so they are checked against the window.
bool BoundWindows::find(int rank, const WindowPlace& place, uint64_t bytes, std::byte*& data) {
  if (place.id == 0) return true;
  std::shared_ptr<Window> window = island_.shared().find(context_.world_rank(rank), place.id);
  if (!window) return false;
  data = data_at(*window, place, bytes);
  if (data == nullptr) {
    throw Exception(Error{ErrorCode::kProtocol,
                          fmt::format("{} speaks of {} bytes from byte {} on of memory that has {}",
                                      context_.name(rank), bytes, place.offset, window->bytes()),
                          {rank}});
  }
  in_use_.push_back(std::move(window));
  return true;
}

}  // namespace rondo
