#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "ring/base/newest.h"
#include "transport/bell.h"
#include "transport/doorbell.h"
#include "transport/fabric.h"
#include "transport/island/memory_file.h"
#include "transport/island/page_store.h"
#include "transport/island/shared_stream.h"

namespace rondo {

// The memory of one link or stream, mapped here.
struct LinkMemory {
  std::shared_ptr<Mapping> memory;  // shared by both ends where they are in one process, else this end's alone
  LinkShape shape;                  // of a link
};

// What the ranks of an island have said about their communicators: pages, links and streams made and not yet taken;
// also about communicators that this rank has not opened yet. Pure bookkeeping; not thread safe: Island's lock guards
// it.
class IslandBook {
 public:
  struct Member {                                           // a peer
    std::shared_ptr<Bell> data = std::make_shared<Bell>();  // shared with the links
    std::shared_ptr<Bell> p2p = std::make_shared<Bell>();
    std::shared_ptr<std::byte> page;  // shared with its bells, and with those who use it; null: not there yet
  };
  // This rank's page of a communicator. It is held by the group, by its doorbells, and by each peer that has been told
  // of it and has not let go.
  struct OwnPage {
    std::shared_ptr<const PageStore::Page> page;
    std::vector<std::shared_ptr<Window>> windows = {};  // Fabric::keep()
  };
  // What is known about one communicator, open here or not.
  struct Group {
    bool open = false;
    std::set<int> members;                             // ranks of the world, once it is open
    std::shared_ptr<Doorbell> doorbell, p2p_doorbell;  // own; shared with the flows
    std::shared_ptr<OwnPage> page;                     // shared likewise, and with the peers
    std::map<int, Member> shown;                       // by peer
    std::map<int, LinkMemory> links;                   // by peer; made and not taken
    std::set<int> made;                                // peers to whom a link was made, or who were asked for one
    std::set<int> asked;                               // those of them whose link has not come
    std::set<int> streams_to;                          // peers
    std::set<int> streamed;                            // peers that have made theirs to this rank
    std::deque<std::pair<int, LinkMemory>> streams_from;
    std::map<int, std::shared_ptr<StreamBuffers>> buffers;  // by peer; shared with its streams
  };

  // nullptr: closed already, or one of too many that are not open here (kMaxEarly).
  Group* mentioned(uint64_t communicator);
  Group* opened(uint64_t communicator);  // nullptr: not open
  // Forgets what ranks that are no members have said about it.
  Group& open(uint64_t communicator, std::set<int> members);
  // Returns what was known of it.
  Group close(uint64_t communicator);
  template <typename Action>
  void for_each_open(Action action) {
    for (auto& [id, group] : groups_) {
      if (group.open) action(id, group);
    }
  }

 private:
  // Communicators that peers have opened and this rank has not: a rank is rarely more than one behind.
  static constexpr size_t kMaxEarly = 4096;

  std::map<uint64_t, Group> groups_;
  // Groups that are not open.
  size_t early_ = 0;
  Newest<bool> closed_{1024};  // a late frame about them is not taken for an early one
};

}  // namespace rondo
