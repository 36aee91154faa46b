#pragma once

#include <cstdint>
#include <vector>

#include "ring/base/node_list.h"
#include "ring/engine/p2p/pool.h"
#include "ring/engine/p2p/request.h"

namespace rondo {

// Brings receives and messages together. A receive takes the earliest message that fits it, a message the earliest
// receive posted that fits it; messages of one peer stay in their order. Probes wait among the receives. No I/O, no
// memory of its own but the lists.
// Cost: one look at the peer's first receive or message where tags are used in order; linear in those passed over.
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
  // The message for this receive or probe; nullptr if there is none. From any source the peers are looked at in turn,
  // beginning after the one that the last such receive took from.
  P2pMessage* find_message(const P2pCall& receive) const;
  // Takes that out.
  P2pMessage* take_message(const P2pCall& receive);
  // Keeps a message that was taken out for the receive that names its number, which this gives it.
  uint64_t claim(P2pMessage& message);
  // Takes that out; nullptr if there is none of this number.
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

  // Neither a receive nor a message waits that would come before what the peer sends to a receive that names it.
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
  P2pMessage* find_from(int peer, const P2pCall& receive) const;

  std::vector<NodeList<P2pRequest>> posted_;   // by peer; the last one: from any source
  std::vector<NodeList<P2pMessage>> arrived_;  // by peer
  NodeList<P2pMessage> claimed_;
  uint64_t next_post_ = 0;
  uint64_t claims_ = 0;
  int turn_ = 0;  // the peer that the next receive from any source looks at first
};

}  // namespace rondo
