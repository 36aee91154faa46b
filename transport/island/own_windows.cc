#include "transport/island/own_windows.h"

#include <fmt/format.h>

#include <iterator>
#include <new>

#include "rondo/error.h"

namespace rondo {

MappedWindow::~MappedWindow() {
  if (own_ != nullptr && !own_->in_child()) own_->drop(*this);
}

// The peers unmap it. Its maker lets go only when no operation of its own is under way on it (SharedMemory::make).
void OwnWindows::drop(const MappedWindow& window) noexcept {
  std::lock_guard lock(mutex_);
  by_address_.erase(window.data());
  by_id_.erase(window.id());
  const IslandFrame frame{.topic = IslandTopic::kDrop, .id = window.id()};
  for (const auto& [peer, connection] : connections_) announce_end(*connection, frame);
}

// Requires the lock. Without memory, the peer keeps what it has.
void OwnWindows::announce_end(IslandConnection& connection, const IslandFrame& frame) noexcept {
  try {
    connection.send(frame);
  } catch (const std::bad_alloc&) {
  }
}

// Requires the lock.
void OwnWindows::announce(const IslandFrame& frame, const std::vector<int>& descriptors,
                          const std::shared_ptr<void>& keep) {
  for (const auto& [peer, connection] : connections_) connection->send(frame, descriptors, keep);
}

bool OwnWindows::keeps_many() const {
  std::lock_guard lock(mutex_);
  return !all_connected_ && by_address_.size() >= kMostKept;
}

// The map and the announcement are one step under the lock: connect() either finds the window in the map or is served
// by announce(), never both and never neither.
std::shared_ptr<Window> OwnWindows::add(size_t bytes, std::shared_ptr<Mapping> memory, std::shared_ptr<Descriptor> file,
                                        uint64_t name) {
  std::shared_ptr<MappedWindow> window;  // if the map does not take it, it goes without the lock
  std::lock_guard lock(mutex_);
  if (by_address_.size() >= kMost) {
    throw Exception(ErrorCode::kSystem,
                    fmt::format("shared memory of {} bytes: this rank shares {} pieces of memory already, which is all "
                                "that the others map; give some back, or allocate fewer and larger ones",
                                bytes, kMost));
  }
  window = std::make_shared<MappedWindow>(name != 0 ? SharedMemory::id_of(name) : ++last_id_, bytes, std::move(memory),
                                          shared_from_this());
  const IslandFrame frame{.topic = IslandTopic::kWindow, .id = window->id(), .bytes = bytes};
  by_address_[window->data()] = {window, frame, all_connected_ ? nullptr : file};
  by_id_[window->id()] = window->data();  // last: find() takes what is here for whole, also where there is no memory
  if (file) announce(frame, {file->get()}, file);
  return window;
}

// by_address_ is ordered by where windows begin, so the one that may hold the address is the last that begins before
// it.
WindowPlace OwnWindows::locate(const void* data, size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(data);
  std::shared_ptr<Window> window;  // let go without the lock
  std::lock_guard lock(mutex_);
  auto found = by_address_.upper_bound(first);
  if (found == by_address_.begin()) return {};
  window = std::prev(found)->second.window.lock();
  if (window == nullptr) return {};
  const auto offset = static_cast<size_t>(first - window->data());
  if (offset > window->bytes() || bytes > window->bytes() - offset) return {};
  return {window->id(), offset};
}

std::shared_ptr<Window> OwnWindows::find(uint64_t id) const {
  std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : by_address_.at(found->second).window.lock();
}

void OwnWindows::add_sleeper(uint32_t number, int socket, const std::shared_ptr<void>& keep) {
  const IslandFrame frame{.topic = IslandTopic::kSleeper, .id = number};
  std::lock_guard lock(mutex_);
  sleepers_.emplace_back(frame, socket);
  announce(frame, {socket}, keep);
}

// Sleepers first: once the peer has a page of this rank, it may ring any of them.
void OwnWindows::connect(int peer, IslandConnection& connection, const std::shared_ptr<void>& keep_sleepers) {
  std::lock_guard lock(mutex_);
  for (const auto& [frame, socket] : sleepers_) connection.send(frame, {socket}, keep_sleepers);
  for (const auto& [address, made] : by_address_) connection.send(made.frame, {made.file->get()}, made.file);
  connections_[peer] = &connection;
}

// Every peer has been sent every descriptor, or has it in its queue: the windows need theirs no more.
void OwnWindows::settle() {
  std::lock_guard lock(mutex_);
  if (connections_.size() != peers_) return;
  all_connected_ = true;
  for (auto& [address, made] : by_address_) made.file.reset();
}

void OwnWindows::disconnect(int peer) {
  std::lock_guard lock(mutex_);
  connections_.erase(peer);
}

// Connections are about to end, and windows may live on.
void OwnWindows::disconnect_all() {
  std::lock_guard lock(mutex_);
  connections_.clear();
}

void OwnWindows::let_go(int peer, uint64_t communicator) noexcept {
  if (in_child()) return;  // the parent still uses it
  const IslandFrame frame{.topic = IslandTopic::kLetGo, .communicator = communicator};
  std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  if (found != connections_.end()) announce_end(*found->second, frame);
}

}  // namespace rondo
