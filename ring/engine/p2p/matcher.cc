#include "ring/engine/p2p/matcher.h"

#include <algorithm>

namespace rondo {
namespace {

// The earliest receive of the list that takes the tag.
P2pRequest* first_taking(const NodeList<P2pRequest>& list, uint32_t tag) {
  P2pRequest* receive = list.front();
  while (receive && !P2pMatcher::takes(receive->tag, tag)) receive = receive->next;
  return receive;
}

}  // namespace

P2pMatcher::P2pMatcher(int world) : posted_(static_cast<size_t>(world) + 1), arrived_(static_cast<size_t>(world)) {}

void P2pMatcher::post(P2pRequest& receive) {
  receive.posted = next_post_++;
  list_of(receive.peer).push_back(receive);
}

// The request may be in no list, or in one of a sender's or receiver's, so it is looked for before it is taken out.
bool P2pMatcher::withdraw(P2pRequest& receive) {
  NodeList<P2pRequest>& list = list_of(receive.peer);
  for (const P2pRequest* waiting = list.front(); waiting != nullptr; waiting = waiting->next) {
    if (waiting == &receive) return list.remove(receive), true;
  }
  return false;
}

// A message may belong to a receive that names its peer or to one from any source: the one that was posted first.
P2pRequest* P2pMatcher::find_receive(int peer, uint32_t tag) const {
  P2pRequest* named = first_taking(posted_[peer], tag);
  P2pRequest* any = first_taking(posted_.back(), tag);
  return !named || (any && any->posted < named->posted) ? any : named;
}

// A probe only looks, so it does not change whose turn it is: the receive after it finds the same message.
P2pMessage* P2pMatcher::find_message(const P2pCall& receive) const {
  if (receive.peer != kAnySource) return find_from(receive.peer, receive);
  const int world = static_cast<int>(arrived_.size());
  for (int i = 0; i < world; ++i) {
    if (P2pMessage* message = find_from((turn_ + i) % world, receive)) return message;
  }
  return nullptr;
}

P2pRequest* P2pMatcher::take_receive(int peer, uint32_t tag) {
  P2pRequest* receive = find_receive(peer, tag);
  if (receive) take(*receive);
  return receive;
}

P2pMessage* P2pMatcher::take_message(const P2pCall& receive) {
  P2pMessage* message = receive.peer != kAnySource ? find_from(receive.peer, receive) : find_message(receive);
  if (!message) return nullptr;
  remove(*message);
  if (receive.peer == kAnySource) turn_ = (message->peer + 1) % static_cast<int>(arrived_.size());
  return message;
}

uint64_t P2pMatcher::claim(P2pMessage& message) {
  message.claim = ++claims_;
  claimed_.push_back(message);
  return message.claim;
}

// A number comes from the program, and may name a message that was received already.
P2pMessage* P2pMatcher::take_claimed(uint64_t number) {
  P2pMessage* message = claimed_.front();
  while (message && message->claim != number) message = message->next;
  if (message) claimed_.remove(*message);
  return message;
}

void P2pMatcher::remove(P2pMessage& message) {
  (message.claim != 0 ? claimed_ : arrived_[message.peer]).remove(message);
}

// Claimed messages come last. Those of one peer lie among those of others.
P2pMessage* P2pMatcher::pop_message(int peer) {
  P2pMessage* message = arrived_[peer].front() ? arrived_[peer].front() : claimed_.front();
  while (message && message->peer != peer) message = message->next;
  if (message) remove(*message);
  return message;
}

bool P2pMatcher::posted() const {
  return std::any_of(posted_.begin(), posted_.end(), [](const auto& list) { return !list.empty(); });
}

P2pMessage* P2pMatcher::find_from(int peer, const P2pCall& receive) const {
  P2pMessage* message = arrived_[peer].front();
  while (message && !takes(receive.tag, message->envelope.tag)) message = message->next;
  return message;
}

}  // namespace rondo
