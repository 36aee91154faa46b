#pragma once

#include <cstddef>
#include <cstdint>

#include "ring/base/hash.h"
#include "rondo/error.h"

namespace rondo {

// What travels with every slice and is compared before a byte of it is used, or lands in the caller's memory.
struct SliceTag {
  uint64_t sequence = 0;     // of the operation on its communicator
  uint64_t fingerprint = 0;  // of everything that the ranks must agree on, and a note (ring/base/hash.h)
  uint32_t bytes = 0;        // payload; 0 is a signal
  bool at_most = false;      // of a landing: the payload may be shorter
  // Whether a slice with this tag may land there, for a landing's tag.
  bool takes(const SliceTag& got) const {
    return sequence == got.sequence && agreed_bits(fingerprint) == agreed_bits(got.fingerprint) &&
           (at_most ? got.bytes <= bytes : got.bytes == bytes);
  }
};

// A duplex, ordered channel of slices to one peer, for one communicator. Is owned by the one that took it from the
// fabric; used by one thread at a time; nothing blocks. Every implementation passes tests/support/link_contract.h.
//
// Promise of depth: depth() slices can be committed though the peer has released none, as long as the peer calls
// pump(); so the receiver reads ahead into landings of its own. Plans are proved for that depth: over a link that holds
// fewer slices they may deadlock.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  virtual uint32_t depth() const = 0;

  // --- receiving: landings are posted, filled and released in the order of slices.
  // Fewer than depth() landings are open (posted and not yet released).
  virtual bool can_post() const = 0;
  // Says what the next slice must be, and where its payload goes: `landing` (tag.bytes, must stay valid until the slice
  // is released or the link is destroyed) or, with nullptr, a slot of the link's. Requires can_post().
  virtual void post(const SliceTag& tag, std::byte* landing) = 0;
  // Landings posted and not yet filled.
  virtual uint32_t unfilled() const = 0;
  // The oldest landing's payload if it is complete, else nullptr. Not null for an empty slice.
  virtual const std::byte* arrived() = 0;
  // Its bytes. Requires arrived() != nullptr.
  virtual uint32_t arrived_bytes() const = 0;
  // Gives the oldest landing back. Requires arrived() != nullptr.
  virtual void release() = 0;

  // --- sending
  // Room for one more slice.
  virtual bool can_send() const = 0;
  // A slot to write the next outgoing slice into. Requires can_send(). commit() sends it, or the first tag.bytes of it
  // (what it returns is as for send()); a second reserve() without commit() returns the same slot.
  virtual std::byte* reserve(uint32_t bytes) = 0;
  virtual uint64_t commit(const SliceTag& tag) = 0;
  // Sends `payload` (tag.bytes), which must stay unchanged until sent() has reached the value that this call returns.
  // Requires can_send() and no reserved slot.
  virtual uint64_t send(const SliceTag& tag, const std::byte* payload) = 0;
  // Slices (committed or sent, from the first on) whose memory the link needs no more.
  virtual uint64_t sent() const = 0;

  // --- both
  // Moves what can be moved without blocking. True if anything moved. A link touches the caller's memory in its calls
  // alone: after a failure, who pumps no more has all of it back.
  virtual bool pump() = 0;
  // The last slice whose tag was not the one posted, and that one; {}: there is none. After an error it is why;
  // without, the notes of its fingerprint differ.
  struct Refused {
    SliceTag got, expected;
  };
  virtual Refused refused() const { return {}; }
  // nullptr, or why nothing will move any more. Stays until the link is destroyed; arrived slices can still be read.
  virtual const Error* error() const = 0;
};

}  // namespace rondo
