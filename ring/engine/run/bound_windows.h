#pragma once

#include <memory>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/island/island_memory.h"
#include "ring/engine/island/peer_memory.h"
#include "ring/engine/run/card_exchange.h"
#include "ring/engine/run/slicing.h"

namespace rondo {

// The other ranks' memory for a plan over windows, as the cards of one call said where it lies. Under the
// lease.
//
// It holds weak references to the windows it was bound to, and shared ones while a call is under way: a window
// must not be unmapped in the middle of a call, and must not be kept mapped after its maker has freed it.
class BoundWindows {
 public:
  BoundWindows(const CommunicatorContext& context, IslandMemory& island) : context_(context), island_(island) {}

  enum class Bound : uint8_t {
    kAsBefore,  // to the same memory
    kAnew,
    kNotYet,  // a window is on its way; the doorbell rings when it comes
  };
  // Binds the windows that the plan touches, and no others: a rank that no step uses may be done, and its
  // windows gone. What is bound stays mapped until release(), whatever its makers do. Throws
  // Exception(kProtocol) where a card cannot be true.
  Bound bind(const CheckedCall& call, const Plan& plan, const Slicing& slicing, const std::vector<CallCard>& cards);
  const WindowBinding& binding() const { return binding_; }
  // The call is over: from now on the makers alone decide how long their windows stay.
  void release() { in_use_.clear(); }

 private:
  // True: the windows of the last call are held again, and `binding_` is right as it is.
  bool take_again(const std::vector<CallCard>& cards);
  // These return false where a window is not mapped yet. Places are a peer's words.
  bool bind(const Ref& ref, const BufferPlaces& places, const BufferBytes& bytes);
  bool find(int rank, const WindowPlace& place, uint64_t bytes, std::byte*& data);

  const CommunicatorContext& context_;
  IslandMemory& island_;
  WindowBinding binding_;
  std::vector<BufferPlaces> places_;  // by rank, of the last bind(); empty: nothing is bound
  std::vector<std::weak_ptr<Window>> bound_;
  std::vector<std::shared_ptr<Window>> in_use_;
};

}  // namespace rondo
