#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "kernels/cross_copy.h"
#include "transport/fabric.h"
#include "transport/link.h"
#include "transport/shared/memory_file.h"
#include "transport/shared/remote_bell.h"

namespace rondo {

struct SharedLinkEnd {
  std::shared_ptr<void> memory;      // keeps it mapped; shared by nobody else but where both ends are in one process
  std::byte* data = nullptr;         // MailboxLayout(shape).bytes, zeroed before the first end was made
  bool lower = true;                 // this end is that of the lower rank
  std::shared_ptr<RemoteBell> bell;  // the peer's; shared with the I/O thread, which connects it
  std::shared_ptr<PeerLife> life;    // likewise
  std::string peer_name;
  std::shared_ptr<const std::atomic<Stores>> stores;  // as SharedMemory::set_stores(); null: kCached
};

// A Link over memory that both ends map (mailbox.h). A slice costs its sender one copy into the slot, or none if it is
// written there (reserve); the receiver one copy if it gave a landing, else none: slots are lent.
std::unique_ptr<Link> make_shared_link(SharedLinkEnd end, const LinkShape& shape);

}  // namespace rondo
