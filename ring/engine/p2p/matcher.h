#pragma once

#include <cstdint>
#include <vector>

#include "ring/base/node_list.h"
#include "ring/engine/p2p/pool.h"
#include "ring/engine/p2p/request.h"

namespace rondo {

// Brings receives and messages together, as MPI orders it: a receive takes the earliest message that fits it, a
// message the earliest posted receive that fits it. Messages of one peer stay in their order. Probes wait among
// the receives. It does no I/O, and has no memory but the lists: requests belong to their callers, messages to
// the pool.
//
// Cost: one look at the peer's first receive or message, where tags are used in order; linear in those passed
// over.
class P2pMatcher {
 public:
  explicit P2pMatcher(int world);

  // A receive or probe for which there is no message.
  void post(P2pRequest& receive);
  // A message for which there is no receive.
  void add(P2pMessage& message) { arrived_[message.peer].push_back(message); }

  // The receive or probe that a message of `peer` with `tag` belongs to; nullptr if there is none.
  P2pRequest* find_receive(int peer, uint32_t tag) const;
  // Takes that out.
  P2pRequest* take_receive(int peer, uint32_t tag);
  void take(P2pRequest& receive) { list_of(receive.peer).remove(receive); }
  // The message for this receive or probe; nullptr if there is none. For any source the peers are looked at in
  // turn, after the one that the last such receive took from: no peer starves another.
  P2pMessage* find_message(const P2pCall& receive) const;
  // Takes that out.
  P2pMessage* take_message(const P2pCall& receive);
  // Keeps a message for one receive: a matched probe has found it. Returns the number by which that receive
  // asks for it.
  uint64_t claim(P2pMessage& message);
  // Takes out the message of this number; nullptr if there is none.
  P2pMessage* take_claimed(uint64_t number);

  // Whether a message with this tag may go to a receive that asks for `asked`.
  static bool takes(int asked, uint32_t tag) { return asked == kAnyTag || static_cast<uint32_t>(asked) == tag; }

  // Takes out a receive that waits; false if it does not.
  bool withdraw(P2pRequest& receive);
  // Takes out a message.
  void remove(P2pMessage& message);
  // Takes out some message of the peer; nullptr if there is none.
  P2pMessage* pop_message(int peer);
  // Takes out the first receive that names this peer, or (kAnySource) any source; nullptr if there is none.
  P2pRequest* pop_receive(int peer) { return list_of(peer).pop_front(); }

  // No receive and no message waits that would come before the peer's next message and a receive that names the
  // peer: the short way keeps the order then.
  bool nothing_before(int peer) const {
    return posted_[peer].empty() && posted_.back().empty() && arrived_[peer].empty();
  }
  // Receives wait that name the peer.
  bool named(int peer) const { return !posted_[peer].empty(); }
  bool any_source() const { return !posted_.back().empty(); }
  // Some receive waits.
  bool posted() const;

 private:
  NodeList<P2pRequest>& list_of(int peer) { return peer == kAnySource ? posted_.back() : posted_[peer]; }
  // The peer's earliest message that the receive's tag takes; the receive's own peer plays no part.
  P2pMessage* find_from(int peer, const P2pCall& receive) const;

  std::vector<NodeList<P2pRequest>> posted_;   // by peer; the last one: from any source
  std::vector<NodeList<P2pMessage>> arrived_;  // by peer
  // The messages that matched probes have found, of all peers: few, and each waits for the receive that names it.
  NodeList<P2pMessage> claimed_;
  // Counts the posts, so that receives of two lists can be compared.
  uint64_t next_post_ = 0;
  // The number of the last claim. Numbers begin at 1, as 0 means that a message is not claimed.
  uint64_t claims_ = 0;
  int turn_ = 0;  // the peer that the next receive from any source looks at first
};

}  // namespace rondo
