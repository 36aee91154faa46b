#pragma once

#include <memory>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/island/island_memory.h"
#include "ring/engine/island/peer_memory.h"
#include "ring/engine/run/card_exchange.h"
#include "ring/engine/run/slicing.h"

namespace rondo {

// Where a plan over windows finds the memory of the others, as the cards of one call said. Under the lease.
class BoundWindows {
 public:
  BoundWindows(const CommunicatorContext& context, IslandMemory& island) : context_(context), island_(island) {}

  enum class Bound : uint8_t {
    kAsBefore,  // to the same memory
    kAnew,
    kNotYet,  // a window is on its way; the doorbell rings when it comes
  };
  // Binds what the plan touches: a rank that no step uses may be done, and its windows gone. All that is bound stays
  // mapped until release(), whatever its makers do. Throws Exception(kProtocol) where a card cannot be true.
  Bound bind(const CheckedCall& call, const Plan& plan, const Slicing& slicing, const std::vector<CallCard>& cards);
  const WindowBinding& binding() const { return binding_; }
  // The makers alone decide what becomes of it now.
  void release() { in_use_.clear(); }

 private:
  bool take_again(const std::vector<CallCard>& cards);
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
