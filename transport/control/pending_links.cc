#include "transport/control/pending_links.h"

#include "ring/base/check.h"

namespace rondo {

// A second wish, and one for a link whose sockets are coming already, bring nothing about.
bool PendingLinks::want(const LinkName& name) {
  if (closed_.has(name.communicator)) return false;
  if (!open_.count(name.communicator) && !entries_.count(name)) {
    if (!has_early_room(name.peer)) return false;
    count_early(name.peer, needed(name.kind));
  }
  Entry& entry = entries_[name];
  const bool first = !entry.wanted && entry.arrived == 0 && !entry.taken;
  entry.wanted = true;
  return first;
}

// kNo is final: no such connection, one that is there already, or a communicator that is closed.
PendingLinks::Fit PendingLinks::fits(const LinkName& name, uint32_t index) const {
  if (index >= needed(name.kind) || closed_.has(name.communicator)) return Fit::kNo;
  const auto found = entries_.find(name);
  if (found != entries_.end()) {
    const Entry& entry = found->second;
    if (entry.taken || (!entry.sockets.empty() && entry.sockets[index].valid())) return Fit::kNo;
    if (entry.wanted) return Fit::kYes;  // its places were kept
  }
  return open_.count(name.communicator) || has_early_room(name.peer) ? Fit::kYes : Fit::kLater;
}

bool PendingLinks::add(const LinkName& name, uint32_t index, SecuredSocket socket) {
  RONDO_CHECK(fits(name, index) != Fit::kNo, "a connection is judged before it is added");
  Entry& entry = entries_[name];
  if (entry.sockets.empty()) entry.sockets.resize(needed(name.kind));
  entry.sockets[index] = std::move(socket);
  if (!open_.count(name.communicator) && !entry.wanted) count_early(name.peer, 1);
  return ++entry.arrived == needed(name.kind);
}

std::vector<SecuredSocket> PendingLinks::take(const LinkName& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || !complete(name, found->second)) return {};
  found->second.taken = true;
  return std::move(found->second.sockets);
}

// The lowest peer's first.
std::optional<std::pair<int, SecuredSocket>> PendingLinks::take_stream_from(uint64_t communicator) {
  auto it = entries_.lower_bound(LinkName{communicator, LinkKind::kStreamFrom, -1});
  for (; it != entries_.end() && it->first.communicator == communicator; ++it) {
    if (it->first.kind != LinkKind::kStreamFrom || !complete(it->first, it->second)) continue;
    it->second.taken = true;
    return std::pair(it->first.peer, std::move(it->second.sockets[0]));
  }
  return std::nullopt;
}

// A goodbye names them (ByeMessage::streams).
std::set<int> PendingLinks::streams(uint64_t communicator, LinkKind kind) const {
  std::set<int> peers;
  auto it = entries_.lower_bound(LinkName{communicator, kind, -1});
  for (; it != entries_.end() && it->first.communicator == communicator && it->first.kind == kind; ++it) {
    if (it->second.arrived == needed(kind)) peers.insert(it->first.peer);
  }
  return peers;
}

// Its sockets do not count as early any more.
void PendingLinks::open(uint64_t communicator) {
  if (open_.insert(communicator).second) uncount_early_of(communicator);
}

void PendingLinks::uncount_early_of(uint64_t communicator) {
  auto it = entries_.lower_bound(LinkName{communicator, LinkKind::kData, -1});
  for (; it != entries_.end() && it->first.communicator == communicator; ++it) {
    uncount_early(it->first.peer, it->second.wanted ? needed(it->first.kind) : it->second.arrived);
  }
}

bool PendingLinks::has_early_room(int peer) const {
  const auto found = early_of_.find(peer);
  return early_ < max_early_ && (found == early_of_.end() || found->second < max_early_of_peer_);
}

void PendingLinks::count_early(int peer, size_t sockets) {
  if (sockets == 0) return;
  early_ += sockets;
  early_of_[peer] += sockets;
}

void PendingLinks::uncount_early(int peer, size_t sockets) {
  if (sockets == 0) return;
  early_ -= sockets;
  const auto found = early_of_.find(peer);
  if ((found->second -= sockets) == 0) early_of_.erase(found);
}

// The sockets of links that were not taken are closed here; the peer sees their end.
bool PendingLinks::close(uint64_t communicator) {
  const size_t before = entries_.size();
  if (open_.erase(communicator) == 0) uncount_early_of(communicator);
  auto it = entries_.lower_bound(LinkName{communicator, LinkKind::kData, -1});
  while (it != entries_.end() && it->first.communicator == communicator) it = entries_.erase(it);
  closed_[communicator] = true;
  return entries_.size() < before;
}

}  // namespace rondo
