#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "ring/base/descriptor.h"
#include "rondo/error.h"
#include "transport/shared_memory.h"

namespace rondo {

// Zeroed memory that begins on a page; pages come as they are touched. Throws Exception(kSystem).
inline std::shared_ptr<std::byte> plain_memory(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Exception(ErrorCode::kSystem, "no memory for " + std::to_string(bytes) + " bytes between threads");
  }
  return {static_cast<std::byte*>(memory), [bytes](std::byte* data) { ::munmap(data, bytes); }};
}

// A window of a rank that is a thread: its peers use the same object.
class InprocWindow final : public Window {
 public:
  InprocWindow(uint64_t id, std::shared_ptr<std::byte> memory, size_t bytes)
      : Window(id, memory.get(), bytes), memory_(std::move(memory)) {}

 private:
  std::shared_ptr<std::byte> memory_;  // this window's alone
};

// What the ranks of one process share: where their windows are, and the descriptors that they offer each other. Any
// thread.
class InprocWindows {
 public:
  using Key = std::pair<int, uint64_t>;  // rank, id or name

  // id 0: one that no window of the process has.
  std::shared_ptr<Window> make(int rank, uint64_t id, size_t bytes) {
    auto memory = plain_memory(bytes);
    std::lock_guard lock(mutex_);
    if (id == 0) id = ++last_id_;
    const auto window = std::make_shared<InprocWindow>(id, std::move(memory), bytes);
    std::erase_if(windows_, [](const auto& entry) { return entry.second.expired(); });
    windows_[{rank, id}] = window;
    return window;
  }
  // nullptr: there is none, or its maker has let go.
  std::shared_ptr<Window> find(const Key& key) const {
    std::lock_guard lock(mutex_);
    const auto found = windows_.find(key);
    return found == windows_.end() ? nullptr : found->second.lock();
  }
  // Looks through the rank's own windows: the others' are not its to name.
  WindowPlace locate(int rank, const std::byte* data, size_t bytes) const {
    std::lock_guard lock(mutex_);
    for (auto it = windows_.lower_bound({rank, 0}); it != windows_.end() && it->first.first == rank; ++it) {
      const auto window = it->second.lock();
      if (!window || data < window->data()) continue;
      const auto offset = static_cast<size_t>(data - window->data());
      if (offset <= window->bytes() && bytes <= window->bytes() - offset) return {window->id(), offset};
    }
    return {};
  }

  // The last taker gets the descriptor itself, and the others a copy. Without takers it is closed.
  void offer(const Key& key, Descriptor descriptor, std::span<const int> takers) {
    std::lock_guard lock(mutex_);
    if (!takers.empty()) offers_[key] = {std::move(descriptor), {takers.begin(), takers.end()}};
  }
  // Not valid: it was not offered to this rank, or the rank has taken it.
  Descriptor take_offer(const Key& key, int taker) {
    std::lock_guard lock(mutex_);
    const auto found = offers_.find(key);
    if (found == offers_.end() || found->second.takers.erase(taker) == 0) return {};
    if (found->second.takers.empty()) return std::move(offers_.extract(found).mapped().descriptor);
    Descriptor copy([&] { return ::fcntl(found->second.descriptor.get(), F_DUPFD_CLOEXEC, 0); });
    if (!copy.valid()) throw Exception(ErrorCode::kSystem, "no descriptor is left for shared memory");
    return copy;
  }

 private:
  struct Offer {
    Descriptor descriptor;
    std::set<int> takers;  // ranks that have not taken it
  };
  // Guards the members below it.
  mutable std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::map<Key, std::weak_ptr<Window>> windows_;  // those that have ended go when the next one is made
  std::map<Key, Offer> offers_;
};

// The shared memory of one rank that is a thread of this process: its peers' windows are its own memory, and pulling is
// copying.
class InprocMemory final : public SharedMemory {
 public:
  InprocMemory(std::shared_ptr<InprocWindows> windows, int rank) : windows_(std::move(windows)), rank_(rank) {}

  std::shared_ptr<Window> make(size_t bytes, uint64_t name) override {
    if (bytes == 0) throw Exception(ErrorCode::kInvalid, "a window of 0 bytes");
    return windows_->make(rank_, name != 0 ? id_of(name) : 0, bytes);
  }
  WindowPlace locate(const void* data, size_t bytes) const override {
    return windows_->locate(rank_, static_cast<const std::byte*>(data), bytes);
  }
  std::shared_ptr<Window> find(int peer, uint64_t id) override { return windows_->find({peer, id}); }

  void offer(std::span<const int> peers, uint64_t name, Descriptor descriptor) override {
    windows_->offer({rank_, name}, std::move(descriptor), peers);
  }
  Descriptor take_offer(int peer, uint64_t name) override { return windows_->take_offer({peer, name}, rank_); }

  bool can_pull() const override { return true; }
  bool pull(int, uint64_t address, std::byte* to, size_t bytes) override {
    std::memcpy(to, reinterpret_cast<const std::byte*>(address), bytes);
    return true;
  }
  bool ended(int) const override { return false; }
  bool stops_alone() const override { return false; }
  using SharedMemory::stores;  // for the links and streams of this rank

 private:
  const std::shared_ptr<InprocWindows> windows_;  // shared by the ranks
  const int rank_;
};

}  // namespace rondo
