#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ring/base/newest.h"
#include "transport/hello/secured_socket.h"

namespace rondo {

// kData: a Link's connections. A stream has one connection: kStreamTo is dialed by this rank, kStreamFrom accepted.
enum class LinkKind : uint8_t { kData, kStreamTo, kStreamFrom };

// The order of the fields matters: entries of one communicator, and in it of one kind, lie together in entries_.
struct LinkName {
  uint64_t communicator = 0;
  LinkKind kind = LinkKind::kData;
  int peer = -1;
  auto operator<=>(const LinkName&) const = default;
};

// Which data links and streams are wished for, under way, complete and taken, with the sockets that have come so far,
// also for communicators that this rank has not opened yet. Pure bookkeeping; not thread safe.
class PendingLinks {
 public:
  // connections: of a data link. max_early: sockets kept for communicators that are not open; of them,
  // max_early_of_peer for one peer.
  PendingLinks(uint32_t connections, size_t max_early, size_t max_early_of_peer = SIZE_MAX)
      : connections_(connections), max_early_(max_early), max_early_of_peer_(max_early_of_peer) {}

  // The first wish for this link gives true: the caller then brings it about. Of a communicator that is not open the
  // wish keeps places for all its connections; false where there are none left.
  bool want(const LinkName& name);

  enum class Fit { kYes, kNo, kLater };  // kLater: too many wait for communicators to be opened
  Fit fits(const LinkName& name, uint32_t index) const;
  // Requires that fits() is not kNo; what was kYes when it was asked is added even if others have come since. True if
  // this completed the link.
  bool add(const LinkName& name, uint32_t index, SecuredSocket socket);

  // The sockets of a complete link, once; empty before and after.
  std::vector<SecuredSocket> take(const LinkName& name);
  // Some complete stream from a peer: its rank and socket.
  std::optional<std::pair<int, SecuredSocket>> take_stream_from(uint64_t communicator);
  // The peers whose streams of this kind are complete, taken or not.
  std::set<int> streams(uint64_t communicator, LinkKind kind) const;

  void open(uint64_t communicator);
  // Closes what was not taken, and what comes later. False if no link was ever wished for or begun.
  bool close(uint64_t communicator);

 private:
  // A link from the first wish or socket on, until its communicator is closed. sockets: by connection; empty until the
  // first has come, and again once taken.
  struct Entry {
    bool wanted = false;
    bool taken = false;
    uint32_t arrived = 0;
    std::vector<SecuredSocket> sockets;
  };
  uint32_t needed(LinkKind kind) const { return kind == LinkKind::kData ? connections_ : 1; }
  bool complete(const LinkName& name, const Entry& entry) const {
    return !entry.taken && entry.arrived == needed(name.kind);
  }

  bool has_early_room(int peer) const;
  void count_early(int peer, size_t sockets);
  void uncount_early(int peer, size_t sockets);
  void uncount_early_of(uint64_t communicator);

  uint32_t connections_;
  size_t max_early_, max_early_of_peer_;
  // Sockets that are kept for communicators which are not open: of a wished link all of its connections, of another one
  // those that have come. Of those links a wish never follows a socket: a link has one dialer, which wishes first
  // (DataLinks::on_wish()), and the other rank wishes only once it has opened the communicator.
  size_t early_ = 0;
  std::map<int, size_t> early_of_;  // by peer; none is 0
  std::map<LinkName, Entry> entries_;
  std::set<uint64_t> open_;
  Newest<bool> closed_{4096};  // what comes late is refused
};

}  // namespace rondo
