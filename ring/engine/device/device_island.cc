#include "ring/engine/device/device_island.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "ring/base/caught.h"
#include "ring/base/hash.h"

namespace rondo {
namespace {

// 16 bytes a rank and window.
constexpr size_t kMaxWindows = Inbox::kMaxWindows;
// A call's pieces are cut by whole elements of every block, so they may be a little larger.
constexpr uint64_t kSlackBytes = 64 * 1024;
// A page, which locking takes whole.
constexpr size_t kPageBytes = 4096;
// Streams that are let go wait for no number that a program reaches.
constexpr uint32_t kFarAhead = 1u << 30;
// A rank whose process is stopped in a pass, or whose device is broken, is waited for so long, as on the host
// (GracePeriod). What begins later finds the stop and touches nothing.
constexpr std::chrono::seconds kLongestPass{1};
// What other ranks offer, or let go of, comes without a sign. By the thread that attaches, allocates or destroys.
constexpr std::chrono::milliseconds kBetweenLooks{1};

// Looks until it is there, the deadline has passed, or the communicator has failed.
template <class There>
void look_for(const CommunicatorContext& context, Clock::time_point deadline, const There& there) {
  while (!there() && Clock::now() < deadline && context.failure.get() == nullptr) {
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

DeviceIsland::DeviceIsland(const CommunicatorContext& context, std::shared_ptr<const DeviceDriver> driver, int device)
    : context_(context),
      driver_(std::move(driver)),
      device_(device),
      rank_(context.rank),
      world_(context.world()),
      inbox_windows_(context.members.size()) {
  windows_.reserve(kMaxWindows);  // bounce() reads the first one without the lock
}

std::string DeviceIsland::first_without(const std::vector<uint64_t>& said) const {
  const auto found = std::find(said.begin(), said.end(), 0);
  return found == said.end() ? "" : context_.name(static_cast<int>(found - said.begin()));
}

std::string DeviceIsland::connect(int32_t sharings, const AllSay& all_say, Clock::time_point deadline) {
  std::string wrong;
  try {
    share_inboxes(deadline);
  } catch (...) {
    wrong = caught().message;
  }
  const std::string without = first_without(all_say(wrong.empty() ? 1 : 0));
  if (!without.empty()) return wrong.empty() ? without + " cannot share host memory with devices" : wrong;
  wrong = "the devices have no way of sharing memory in common";
  if ((sharings & kSharesByDescriptor) != 0) wrong = connect_by(MemorySharing::kDescriptor, all_say, deadline);
  if (!wrong.empty() && (sharings & kSharesByIpc) != 0) wrong = connect_by(MemorySharing::kIpc, all_say, deadline);
  return wrong;
}

std::string DeviceIsland::connect_by(MemorySharing sharing, const AllSay& all_say, Clock::time_point deadline) {
  sharing_ = sharing;
  const std::string wrong = share(context_.config.device_window_bytes + kSlackBytes, all_say, deadline);
  if (!wrong.empty()) return wrong;
  const bool arrive = try_transfers(all_say);
  order_ = arrive ? ring_order(reach_) : std::vector<int>{};
  if (arrive && (reach_.complete() || !order_.empty())) return "";
  reach_ = {};
  std::lock_guard lock(mutex_);
  let_go_of(0);
  windows_.clear();
  if (!arrive) return "transfers between the devices do not arrive";
  return "the devices do not reach each other's memory, not even around a ring" + refused_;
}

void DeviceIsland::lock(void* memory, size_t bytes) {
  driver_->check(driver_->lock_host(device_, memory, bytes), "locking host memory");
  locked_.push_back(memory);
}

void DeviceIsland::share_inboxes(Clock::time_point deadline) {
  SharedMemory& shared = *context_.fabric->shared_memory();
  const uint64_t name = Hash64().add("device inbox").add(context_.id).value();
  inbox_windows_[static_cast<size_t>(rank_)] = shared.make(sizeof(Inbox), name);
  for (int rank = 0; rank < world_; ++rank) {
    std::shared_ptr<Window>& window = inbox_windows_[static_cast<size_t>(rank)];
    look_for(context_, deadline, [&] {
      if (!window) window = shared.find(context_.world_rank(rank), SharedMemory::id_of(name));
      return window != nullptr;
    });
    if (!window || window->bytes() < sizeof(Inbox)) {
      throw Exception(ErrorCode::kSystem, "the host memory of " + context_.name(rank) + " did not come");
    }
    lock(window->data(), window->bytes());
    inboxes_.push_back(reinterpret_cast<Inbox*>(window->data()));
    void* at_kernels = nullptr;
    driver_->check(driver_->kernel_address(device_, window->data(), &at_kernels), "mapping host memory");
    at_kernels_.push_back(static_cast<Inbox*>(at_kernels));
  }
  const size_t bytes =
      (kMaxWindows * static_cast<size_t>(world_) * sizeof(DeviceWindow) + kPageBytes - 1) / kPageBytes * kPageBytes;
  // A lambda: the type of std::free would be a symbol of librondo.a that programs see.
  table_memory_ = std::shared_ptr<void>(std::aligned_alloc(kPageBytes, bytes), [](void* at) { std::free(at); });
  if (table_memory_ == nullptr) throw Exception(ErrorCode::kSystem, "no host memory for the table of windows");
  std::memset(table_memory_.get(), 0, bytes);
  lock(table_memory_.get(), bytes);
  shown_ = static_cast<DeviceWindow*>(table_memory_.get());
  void* at_kernels = nullptr;
  driver_->check(driver_->kernel_address(device_, shown_, &at_kernels), "mapping host memory");
  shown_at_ = static_cast<DeviceWindow*>(at_kernels);
}

std::string DeviceIsland::share(uint64_t bytes, const AllSay& all_say, Clock::time_point deadline) {
  DeviceMemory memory;
  memory.bytes = bytes;
  memory.mapped.resize(static_cast<size_t>(world_));
  int number = -1;
  std::string wrong;
  if (const DeviceStatus status = driver_->allocate_shared(device_, bytes, sharing_, &memory.own, &number)) {
    memory.own = nullptr;
    wrong = fmt::format("{} bytes of device memory to share: {}", bytes, driver_->error_text(status));
  }
  Descriptor descriptor(number);
  std::vector<uint64_t> sizes;
  std::string without;
  try {
    sizes = all_say(wrong.empty() ? bytes : 0);
    without = first_without(sizes);
    if (without.empty()) {
      wrong = exchange(std::move(descriptor), sizes, memory, deadline);
      without = first_without(all_say(wrong.empty() ? 1 : 0));
    }
  } catch (...) {
    release(memory);
    throw;
  }
  if (!without.empty()) {
    release_mapped(memory);
    all_say(1);  // nobody maps it any more
    release(memory);
    return wrong.empty() ? without + " cannot share its device memory" : wrong;
  }
  std::lock_guard lock(mutex_);
  show(windows_.size(), memory, sizes);
  windows_.push_back(std::move(memory));
  return "";
}

std::string DeviceIsland::exchange(Descriptor descriptor, const std::vector<uint64_t>& bytes, DeviceMemory& memory,
                                   Clock::time_point deadline) {
  const uint64_t name = Hash64().add("device window").add(context_.id).add(++shares_).value();
  std::vector<int> peers;
  for (const int member : context_.members) {
    if (member != context_.world_rank(rank_)) peers.push_back(member);
  }
  context_.fabric->shared_memory()->offer(peers, name, std::move(descriptor));
  return map_peers(memory, bytes, name, deadline);
}

std::string DeviceIsland::map_peers(DeviceMemory& memory, const std::vector<uint64_t>& bytes, uint64_t name,
                                    Clock::time_point deadline) {
  for (int rank = 0; rank < world_; ++rank) {
    const bool known = !reach_.reaches.empty();
    if (rank == rank_) continue;
    Descriptor descriptor;
    look_for(context_, deadline, [&] {
      descriptor = context_.fabric->shared_memory()->take_offer(context_.world_rank(rank), name);
      return descriptor.valid();
    });
    if (!descriptor.valid()) return "the device memory of " + context_.name(rank) + " did not come";
    if (known && !reach_.of(rank_, rank)) continue;
    const auto peer = static_cast<size_t>(rank);
    if (const DeviceStatus status =
            driver_->map_shared(device_, descriptor.get(), sharing_, bytes[peer], &memory.mapped[peer])) {
      memory.mapped[peer] = nullptr;
      const std::string why =
          fmt::format("the device memory of {} cannot be mapped: {}", context_.name(rank), driver_->error_text(status));
      if (known) return why;
      refused_ = "; " + why;
    }
  }
  return "";
}

void DeviceIsland::release_mapped(DeviceMemory& memory) {
  for (void*& mapped : memory.mapped) {
    if (mapped != nullptr) driver_->release_shared(std::exchange(mapped, nullptr));
  }
}

void DeviceIsland::release(DeviceMemory& memory) {
  release_mapped(memory);
  if (memory.own != nullptr) driver_->release_shared(memory.own);
  memory = {};
}

// Requires the lock. Others may still map it: with descriptors that is theirs.
void DeviceIsland::let_go_of(size_t window) {
  DeviceMemory& memory = windows_[window];
  if (memory.own == nullptr) return;
  for (int rank = 0; rank < world_; ++rank) {
    shown_[window * static_cast<size_t>(world_) + static_cast<size_t>(rank)] = {};
  }
  release_mapped(memory);
  if (sharing_ == MemorySharing::kIpc) {
    for (Inbox* inbox : inboxes_) std::atomic_ref<uint64_t>(inbox->closed[window]).fetch_or(uint64_t{1} << rank_);
    left_.emplace_back(window, std::exchange(memory.own, nullptr));
    release_left();
  }
  release(memory);
}

// Requires the lock.
void DeviceIsland::release_left() {
  std::erase_if(left_, [this](const std::pair<size_t, void*>& left) {
    if (!is_closed(left.first)) return false;
    driver_->release_shared(left.second);
    return true;
  });
}

bool DeviceIsland::is_closed(size_t window) const {
  const uint64_t closed = std::atomic_ref<uint64_t>(own().closed[window]).load();
  for (int rank = 0; rank < world_; ++rank) {
    const bool gone = context_.fabric->shared_memory()->ended(context_.world_rank(rank));
    if (rank != rank_ && !gone && (closed >> rank & 1) == 0) return false;
  }
  return true;
}

void DeviceIsland::show(size_t window, const DeviceMemory& memory, const std::vector<uint64_t>& bytes) {
  for (size_t rank = 0; rank < memory.mapped.size(); ++rank) {
    void* const data = static_cast<int>(rank) == rank_ ? memory.own : memory.mapped[rank];
    shown_[window * static_cast<size_t>(world_) + rank] = {data, bytes[rank]};
  }
}

std::byte* DeviceIsland::places(int rank) const {
  const DeviceMemory& window = windows_.front();
  return static_cast<std::byte*>(rank == rank_ ? window.own : window.mapped[static_cast<size_t>(rank)]);
}

void* DeviceIsland::allocate(size_t bytes, const AllSay& all_say, Clock::time_point deadline) {
  if (windows_.size() == kMaxWindows) {  // on all ranks
    throw Exception(ErrorCode::kSystem, fmt::format("allocate on rank {}: this communicator has allocated {} pieces of "
                                                    "device memory, which is all; allocate fewer and larger ones",
                                                    rank_, kMaxWindows - 1));
  }
  if (const std::string wrong = share(bytes, all_say, deadline); !wrong.empty()) {
    throw Exception(ErrorCode::kSystem, fmt::format("allocate on rank {}: {}", rank_, wrong));
  }
  std::lock_guard lock(mutex_);
  return windows_.back().own;
}

bool DeviceIsland::deallocate(void* data) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(windows_.begin() + 1, windows_.end(),
                                  [&](const DeviceMemory& window) { return window.own == data; });
  if (found == windows_.end()) return false;
  let_go_of(static_cast<size_t>(found - windows_.begin()));
  return true;
}

std::optional<DeviceIsland::Place> DeviceIsland::locate(const void* data, uint64_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  std::lock_guard lock(mutex_);
  for (size_t window = 1; window < windows_.size(); ++window) {
    const auto first = reinterpret_cast<uintptr_t>(windows_[window].own);
    if (first == 0 || at < first || at - first > windows_[window].bytes) continue;
    if (bytes > windows_[window].bytes - (at - first)) continue;
    return Place{static_cast<uint32_t>(window), at - first};
  }
  return std::nullopt;
}

void DeviceIsland::fill_places(uint32_t number, uint64_t fingerprint, PeerPlaces& places) const {
  for (int rank = 0; rank < world_; ++rank) {
    places.cards[rank] = &at_kernels_[static_cast<size_t>(rank)]->cards[number % Inbox::kCards];
  }
  Inbox* const own_inbox = at_kernels_[static_cast<size_t>(rank_)];
  places.windows = shown_at_;
  places.stop = &own_inbox->stop;
  places.refused = &own_inbox->refused;
  places.fingerprint = fingerprint;
  places.world = static_cast<uint32_t>(world_);
  places.window_count = kMaxWindows;
}

void DeviceIsland::show_card(uint32_t number, const DeviceCard& card) {
  std::lock_guard lock(end_mutex_);
  DeviceCard& shown = own().cards[number % Inbox::kCards];
  shown.input = card.input;
  shown.output = card.output;
  const bool closed = load_word(own().stop) != 0;
  std::atomic_ref<uint64_t>(shown.fingerprint).store(closed ? Inbox::kClosed : card.fingerprint);
}

// Of calls that this rank has not ended well. What its streams still signal must bring no pass of another rank to its
// memory, and no other rank to the belief that this one has done its part. Requires end_mutex_.
void DeviceIsland::close_cards() {
  const uint32_t done = done_.load();
  for (uint32_t number = done + 1; number != done + Inbox::kCards / 2; ++number) {
    std::atomic_ref<uint64_t>(own().cards[number % Inbox::kCards].fingerprint).store(Inbox::kClosed);
  }
}

// Whether the rank is still in the call that it was in at the end.
bool DeviceIsland::peer_at_work(int rank) {
  uint32_t& number = at_end_[static_cast<size_t>(rank)];
  if (number == 0) return false;
  if (at_least(load_word(of(rank).passed), number)) number = 0;
  if (context_.fabric->shared_memory()->ended(context_.world_rank(rank))) number = 0;
  return number != 0;
}

bool DeviceIsland::let_go(Clock::time_point now) {
  std::lock_guard lock(end_mutex_);
  if (inboxes_.empty()) return true;
  Inbox& inbox = own();
  // Closed first: a pass that finds the stop does not do its part.
  if (load_word(inbox.stop) == 0) close_cards();
  store_word(inbox.stop, 1);
  // Again each time: what another rank's stream has still to write lowers a word.
  for (uint32_t index = 0; index < kStreamWords; ++index) {
    const uint32_t last = index < kArrivedWord ? last_number_.load() : last_message_.load();
    for (uint32_t& word : inbox.words[index]) store_word(word, last + kFarAhead);
  }
  if (!end_until_) {
    end_until_ = now + kLongestPass;
    at_end_.resize(static_cast<size_t>(world_));
    for (int rank = 0; rank < world_; ++rank) {
      const uint32_t started = load_word(of(rank).started);
      if (rank != rank_ && !at_least(load_word(of(rank).passed), started)) at_end_[static_cast<size_t>(rank)] = started;
    }
  }
  bool any = !at_least(load_word(inbox.passed), load_word(inbox.started));
  for (int rank = 0; rank < world_; ++rank) any |= peer_at_work(rank);
  return !any || now >= *end_until_;
}

void DeviceIsland::close(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  for (size_t window = 0; window < windows_.size(); ++window) let_go_of(window);
  for (release_left(); !left_.empty() && Clock::now() < until; release_left()) {
    lock.unlock();
    std::this_thread::sleep_for(kBetweenLooks);
    lock.lock();
  }
  windows_.clear();
  lock.unlock();
  std::lock_guard end(end_mutex_);
  for (void* memory : std::exchange(locked_, {})) driver_->unlock_host(memory);
  inboxes_.clear();
  inbox_windows_.clear();
}

}  // namespace rondo
