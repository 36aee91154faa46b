#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"
#include "transport/island/island_connection.h"
#include "transport/island/island_frame.h"
#include "transport/island/memory_file.h"
#include "transport/shared_memory.h"

namespace rondo {

class OwnWindows;

// A window over a mapping: a peer's, or one of OwnWindows, which announces its end.
class MappedWindow final : public Window {
 public:
  // own: null for a peer's.
  MappedWindow(uint64_t window_id, size_t size, std::shared_ptr<Mapping> memory, std::shared_ptr<OwnWindows> own)
      : Window(window_id, memory->data(), size), memory_(std::move(memory)), own_(std::move(own)) {}
  ~MappedWindow() override;

  // Maps its pages, unless that was done. Any thread.
  void populate_once() {
    if (populated_.load(std::memory_order_relaxed) || populated_.exchange(true)) return;
    memory_->populate();
  }

 private:
  std::shared_ptr<Mapping> memory_;
  std::shared_ptr<OwnWindows> own_;
  std::atomic<bool> populated_{false};
};

// What a rank has made and announces to its island: its windows, and the sockets that wake its sleepers.
// Shared with its windows, which may outlive the island. Any thread. Its lock is taken before an IslandConnection's.
class OwnWindows : public std::enable_shared_from_this<OwnWindows> {
 public:
  // The most windows of one rank: each is a mapping, of which the kernel gives a process some 65,000.
  static constexpr size_t kMost = 16 * 1024;
  // Descriptors of windows, kept for ranks that are not connected yet; before there are more, all are to be connected.
  static constexpr size_t kMostKept = 64;

  explicit OwnWindows(size_t peers) : peers_(peers) {}

  // The next window needs connections to all peers.
  bool keeps_many() const;
  // bytes: of `memory`, which is the file's. file: null where no peer connects, between threads. name: as
  // SharedMemory::make. Throws Exception(kSystem) beyond kMost.
  std::shared_ptr<Window> add(size_t bytes, std::shared_ptr<Mapping> memory, std::shared_ptr<Descriptor> file,
                              uint64_t name);
  WindowPlace locate(const void* data, size_t bytes) const;
  // nullptr: there is none, or its maker has let go.
  std::shared_ptr<Window> find(uint64_t id) const;
  // keep: owns the socket.
  void add_sleeper(uint32_t number, int socket, const std::shared_ptr<void>& keep);

  // Announces to the peer what there is, and from now on what is added.
  void connect(int peer, IslandConnection& connection, const std::shared_ptr<void>& keep_sleepers);
  // Takes connect() back.
  void disconnect(int peer);
  // No connection is taken back any more: once there is one to each peer, no descriptors are kept.
  void settle();
  void disconnect_all();
  // Nobody here uses the peer's page of this communicator any more.
  void let_go(int peer, uint64_t communicator) noexcept;

 private:
  friend class MappedWindow;
  // A window of this rank, for the peers that connect later.
  struct Made {
    std::weak_ptr<Window> window;
    IslandFrame frame;                 // that offers it
    std::shared_ptr<Descriptor> file;  // shared with the connections' queues; null once all peers are connected
  };

  // The window ends: the peers are told to unmap it.
  void drop(const MappedWindow& window) noexcept;
  static void announce_end(IslandConnection& connection, const IslandFrame& frame) noexcept;
  void announce(const IslandFrame& frame, const std::vector<int>& descriptors, const std::shared_ptr<void>& keep);
  bool in_child() const { return pid_ != ::getpid(); }

  mutable std::mutex mutex_;
  // Windows that have not ended, by their first byte, and where each begins.
  std::map<const std::byte*, Made> by_address_;
  std::map<uint64_t, const std::byte*> by_id_;
  uint64_t last_id_ = 0;
  std::vector<std::pair<IslandFrame, int>> sleepers_;  // announced, and their sockets
  const size_t peers_;
  std::map<int, IslandConnection*> connections_;  // by peer, of those that are needed; empty once the island is gone
  bool all_connected_ = false;                    // for good
  const pid_t pid_ = ::getpid();
};

}  // namespace rondo
