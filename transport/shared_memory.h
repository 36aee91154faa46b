#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cross_copy.h"
#include "ring/base/descriptor.h"

namespace rondo {

// A run of memory of one rank that other ranks of its host may reach. Every process that maps it has its own Window
// object; the memory stays where it is until the last of its owners lets go.
class Window {
 public:
  virtual ~Window() = default;
  uint64_t id() const { return id_; }        // never 0; unique among the windows of the rank that made it
  std::byte* data() const { return data_; }  // in this process; aligned to a page
  size_t bytes() const { return bytes_; }

 protected:
  Window(uint64_t id, std::byte* data, size_t bytes) : id_(id), data_(data), bytes_(bytes) {}

 private:
  uint64_t id_;
  std::byte* data_;
  size_t bytes_;
};

// Where memory lies, in words that another rank of the island understands. id 0: in no window.
struct WindowPlace {
  uint64_t id = 0;
  uint64_t offset = 0;  // bytes from the start of the window
  bool operator==(const WindowPlace&) const = default;
};

// The place of `bytes` bytes in a window, as a peer says; nullptr if they are not all in it.
inline std::byte* data_at(const Window& window, const WindowPlace& place, uint64_t bytes) {
  const bool inside = place.offset <= window.bytes() && bytes <= window.bytes() - place.offset;
  return inside ? window.data() + place.offset : nullptr;
}

// Memory that the ranks of one island share: those of a host that have tried it and agreed on it at start
// (Topology::island). Ranks are world ranks. Any thread, unless said otherwise.
//
// Who writes where and when is the business of plans: nothing here orders anything. A slice that travels over a link
// between the two ranks does (release at the sender, acquire at the receiver).
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;

  // Makes a window of zeroed memory here and offers it to every rank of the island. The island maps it for as long as
  // the maker keeps it; the maker lets go only when no operation of its own is under way on it. Waits for no peer, but
  // for the kernel to make the pages: some gigabytes take a second. Throws Exception(kSystem) when memory or
  // descriptors run out, and Exception(kInvalid) for 0 bytes.
  // name: not 0, and of no other window of this rank: the window's id is id_of(name), so that the others know it.
  virtual std::shared_ptr<Window> make(size_t bytes, uint64_t name = 0) = 0;
  // No window without a name has such an id.
  static constexpr uint64_t id_of(uint64_t name) { return name | (uint64_t{1} << 63); }
  // The own window that holds all of [data, data + bytes).
  virtual WindowPlace locate(const void* data, size_t bytes) const = 0;
  // A peer's window, mapped here; nullptr while the offer is under way (the peer made it before it spoke of it, so it
  // will come), or for good if the peer has let go or died.
  virtual std::shared_ptr<Window> find(int peer, uint64_t id) = 0;

  // Hands a descriptor to other ranks of the island, for memory that is not mapped here (a GPU's). name: of no other
  // offer of this rank. Each of `peers` takes it, once.
  virtual void offer(std::span<const int> peers, uint64_t name, Descriptor descriptor) = 0;
  // What `peer` has offered under this name, once; not valid while it is under way, or for good if the peer has died.
  virtual Descriptor take_offer(int peer, uint64_t name) = 0;

  // Whether pull() works between any two ranks of the island; decided at start by a real transfer each way.
  virtual bool can_pull() const = 0;
  // Copies from memory of `peer`'s process (its address there) into `to`: one copy by the kernel, no mapping. The peer
  // must keep the memory as it is meanwhile. False if the kernel refused or the memory is not there (the peer died).
  virtual bool pull(int peer, uint64_t address, std::byte* to, size_t bytes) = 0;

  // How links of this rank, and streams without a choice of their own (ByteStream::set_stores), write what their peers
  // read next, from now on. One value for all communicators: what suits one pair of cores.
  void set_stores(Stores stores) {
    if (stores_->load(std::memory_order_relaxed) != stores) stores_->store(stores, std::memory_order_relaxed);
  }

  // The peer's process has ended: it touches no memory any more.
  virtual bool ended(int peer) const = 0;
  // Whether a peer may stop for long while this rank goes on: processes may (SIGSTOP), threads of one process not.
  virtual bool stops_alone() const = 0;

 protected:
  // Shared with links and streams, which may outlive it.
  std::shared_ptr<const std::atomic<Stores>> stores() const { return stores_; }

 private:
  std::shared_ptr<std::atomic<Stores>> stores_ = std::make_shared<std::atomic<Stores>>(Stores::kCached);
};

}  // namespace rondo
