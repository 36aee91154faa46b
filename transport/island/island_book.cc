#include "transport/island/island_book.h"

namespace rondo {

// A frame about a communicator that is not open here is early, or late. Late ones are recognized by closed_, so that
// they make no group that nobody would ever close.
IslandBook::Group* IslandBook::mentioned(uint64_t communicator) {
  const auto found = groups_.find(communicator);
  if (found != groups_.end()) return &found->second;
  if (closed_.has(communicator) || early_ == kMaxEarly) return nullptr;
  ++early_;
  return &groups_[communicator];
}

// Early groups do not count: this rank has no doorbell for them yet.
IslandBook::Group* IslandBook::opened(uint64_t communicator) {
  const auto found = groups_.find(communicator);
  return found != groups_.end() && found->second.open ? &found->second : nullptr;
}

// What was said before this rank knew the members may be a stranger's: it is dropped now.
IslandBook::Group& IslandBook::open(uint64_t communicator, std::set<int> members) {
  if (groups_.count(communicator) != 0) --early_;
  Group& group = groups_[communicator];
  group.open = true;
  group.members = std::move(members);
  const auto foreign = [&group](int peer) { return group.members.count(peer) == 0; };
  std::erase_if(group.shown, [&](const auto& entry) { return foreign(entry.first); });
  std::erase_if(group.links, [&](const auto& entry) { return foreign(entry.first); });
  std::erase_if(group.streams_from, [&](const auto& entry) { return foreign(entry.first); });
  return group;
}

// The caller destroys what it gets without its lock: ends of mappings and windows send frames and unmap memory.
IslandBook::Group IslandBook::close(uint64_t communicator) {
  Group closed;
  if (const auto found = groups_.find(communicator); found != groups_.end()) {
    if (!found->second.open) --early_;
    closed = std::move(found->second);
    groups_.erase(found);
  }
  closed_[communicator] = true;
  return closed;
}

}  // namespace rondo
