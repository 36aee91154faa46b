#include "ring/engine/p2p/matcher.h"

#include <algorithm>

namespace rondo {
namespace {

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

bool P2pMatcher::withdraw(P2pRequest& receive) {
  NodeList<P2pRequest>& list = list_of(receive.peer);
  for (const P2pRequest* waiting = list.front(); waiting != nullptr; waiting = waiting->next) {
    if (waiting == &receive) return list.remove(receive), true;
  }
  return false;
}

void P2pMatcher::add(P2pMessage& message) { arrived_[message.peer].push_back(message); }

P2pRequest* P2pMatcher::take_receive(int peer, uint32_t tag) {
  P2pRequest* named = first_taking(posted_[peer], tag);
  P2pRequest* any = first_taking(posted_.back(), tag);
  P2pRequest* earliest = !named || (any && any->posted < named->posted) ? any : named;
  if (earliest) list_of(earliest->peer).remove(*earliest);
  return earliest;
}

P2pMessage* P2pMatcher::take_message(const P2pCall& receive) {
  if (receive.peer != kAnySource) return take_from(receive.peer, receive);
  const int world = static_cast<int>(arrived_.size());
  for (int i = 0; i < world; ++i) {
    const int peer = (turn_ + i) % world;
    P2pMessage* message = take_from(peer, receive);
    if (!message) continue;
    turn_ = (peer + 1) % world;
    return message;
  }
  return nullptr;
}

bool P2pMatcher::posted() const {
  return std::any_of(posted_.begin(), posted_.end(), [](const auto& list) { return !list.empty(); });
}

P2pMessage* P2pMatcher::take_from(int peer, const P2pCall& receive) {
  for (P2pMessage* message = arrived_[peer].front(); message; message = message->next) {
    if (!takes(receive.tag, message->envelope.tag)) continue;
    arrived_[peer].remove(*message);
    return message;
  }
  return nullptr;
}

}  // namespace rondo
