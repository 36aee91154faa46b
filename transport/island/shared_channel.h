#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cross_copy.h"
#include "rondo/error.h"
#include "transport/bell.h"
#include "transport/island/cell_ring.h"

namespace rondo {

// Whether the process at the other end of an island connection is there. Shared by the links to it, whose threads read
// it without a lock.
struct PeerLife {
  std::atomic<bool> over{false};  // set by the I/O thread
};

// One end of a link or stream between two ranks that share memory.
struct ChannelEnd {
  std::shared_ptr<void> memory;    // keeps it there; shared by both ends where they are in one process
  std::byte* data = nullptr;       // zeroed before the first end was made; begins on a page
  bool first = true;               // this end writes the first of the two rings; the other end has false
  std::shared_ptr<Bell> bell;      // the peer's; shared with the I/O thread, which connects it
  std::shared_ptr<PeerLife> life;  // likewise
  std::string peer_name;
  std::shared_ptr<const std::atomic<Stores>> stores = {};  // as SharedMemory::set_stores(); null: kCached
};

//   [closed by the first, by the second][ring that the first writes][ring that the second writes]
template <typename Kind>
struct ChannelLayout {
  static constexpr size_t kFirst = kCellBytes;
  constexpr explicit ChannelLayout(const Kind& kind)
      : second(kFirst + CellLayout<Kind>(kind, kFirst).bytes), bytes(second + CellLayout<Kind>(kind, second).bytes) {}
  constexpr size_t begin(bool first) const { return first ? kFirst : second; }
  size_t second, bytes;
};

// Two rings, one each way, and the ends of both sides. The memory is the peer's to write as well: SharedLink and
// SharedStream compare each number before they use it. One thread at a time on each side.
template <typename Kind, typename Orders>
class SharedChannel {
 public:
  SharedChannel(ChannelEnd end, const Kind& kind)
      : end_(std::move(end)), out(ring(kind, end_.first)), in(ring(kind, !end_.first)) {}
  SharedChannel(const SharedChannel&) = delete;
  SharedChannel& operator=(const SharedChannel&) = delete;
  ~SharedChannel() {
    if (::getpid() != pid_) return;  // the parent's: the child must not speak for it
    closed(end_.first).store(1, Orders::kEnd);
    end_.bell->ring();
  }

  // After what the peer may sleep for was stored.
  void ring_bell() const { end_.bell->ring(); }
  // What the peer wrote before its end is to be used first: ask this, and then look once more.
  bool peer_gone() const {
    return closed(!end_.first).load(Orders::kSeeEnd) != 0 || end_.life->over.load(Orders::kSeeEnd);
  }
  Stores stores() const { return end_.stores ? end_.stores->load(std::memory_order_relaxed) : Stores::kCached; }
  const std::string& peer_name() const { return end_.peer_name; }
  Error corrupt(const std::string& what) const {
    return {ErrorCode::kProtocol, "the memory shared with " + end_.peer_name + " is corrupt: " + what, {}};
  }

 private:
  const ChannelEnd end_;
  const pid_t pid_ = ::getpid();

 public:
  // The ring that this side writes, and the one that it reads.
  CellWriter<Kind, Orders> out;
  CellReader<Kind, Orders> in;

 private:
  CellRing<Kind, Orders> ring(const Kind& kind, bool of_first) const {
    const size_t begin = ChannelLayout<Kind>(kind).begin(of_first);
    return {end_.data + begin, kind, begin};
  }
  // Not 0: that end has been closed. Only its own side stores it, but the peer may write anything there.
  std::atomic<uint32_t>& closed(bool by_first) const {
    return reinterpret_cast<std::atomic<uint32_t>*>(end_.data)[by_first ? 0 : 1];
  }
};

}  // namespace rondo
