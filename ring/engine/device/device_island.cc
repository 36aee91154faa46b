#include "ring/engine/device/device_island.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "ring/base/caught.h"
#include "ring/base/hash.h"
#include "ring/base/interrupt.h"

namespace rondo {
namespace {

// The most windows of one communicator in all its life: their numbers are equal on all ranks, and never used again.
constexpr size_t kMaxWindows = 4096;
// A page, which locking takes whole.
constexpr size_t kPageBytes = 4096;
// The longest wait for a rank of another process, which may be stopped in a pass, or whose device may be broken: as on
// the host (GracePeriod).
constexpr std::chrono::seconds kLongestPass{1};
// The longest wait for a kernel of this process. It ends by itself, unless its device is broken, but may have to share
// the device for longer than a second, and touches memory that is freed behind this wait.
constexpr std::chrono::seconds kLongestOwnPass{10};
// What other ranks offer rings no bell, so it is looked for. Only by threads that attach or allocate.
constexpr std::chrono::milliseconds kBetweenLooks{1};

// Looks until it is there, the deadline has passed, or the communicator has failed, as where the program ends the wait.
template <class There>
void look_for(CommunicatorContext& context, Clock::time_point deadline, const There& there) {
  while (!there() && Clock::now() < deadline && context.failure.get() == nullptr) {
    if (call_interrupted()) context.interrupt();
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

uint64_t whole_pages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

DeviceIsland::DeviceIsland(CommunicatorContext& context, std::shared_ptr<const DeviceDriver> driver, int device)
    : context_(context),
      driver_(std::move(driver)),
      device_(device),
      rank_(context.rank),
      world_(context.world()),
      posts_at_(whole_pages(sizeof(DeviceControl) + kMaxWindows * static_cast<size_t>(world_) * sizeof(DeviceWindow))),
      header_bytes_(posts_at_ + post_room(static_cast<uint64_t>(world_))),
      board_windows_(context.members.size()) {
  windows_.reserve(kMaxWindows);  // bounce() reads the first one without the lock
}

std::string DeviceIsland::first_without(const CommunicatorContext& context, const std::vector<uint64_t>& said) {
  const auto found = std::find(said.begin(), said.end(), 0);
  return found == said.end() ? "" : context.name(static_cast<int>(found - said.begin()));
}

// Each step ends with a word of every rank, so that all go on, or all give up, with the same verdict.
std::string DeviceIsland::connect(uint32_t lanes, const AllSay& all_say, Clock::time_point deadline) {
  lanes_ = lanes;  // close() gives them back
  std::string wrong;
  try {
    share_boards(deadline);
  } catch (...) {
    wrong = caught().message;
  }
  const std::string without = first_without(all_say(wrong.empty() ? 1 : 0));
  if (!without.empty()) return wrong.empty() ? without + " cannot share host memory with devices" : wrong;
  wrong = share(header_bytes_ + context_.config.device_window_bytes, all_say, deadline);
  if (!wrong.empty()) return wrong;
  if (!try_transfers(all_say)) return "transfers between the devices do not arrive";
  order_ = ring_order(reach_);
  if (!reach_.complete() && order_.empty()) {
    return "the devices do not reach each other's memory, not even around a ring" + refused_;
  }
  return try_kernel(all_say, deadline);
}

// Locks host memory for the device; returns where kernels reach it.
void* DeviceIsland::lock(void* memory, size_t bytes) {
  driver_->check(driver_->lock_host(device_, memory, bytes), "locking host memory");
  locked_.push_back(memory);
  void* at_kernels = nullptr;
  driver_->check(driver_->kernel_address(device_, memory, &at_kernels), "mapping host memory");
  return at_kernels;
}

// The name of a board's window is a hash of the communicator, so the others find it without a message.
void DeviceIsland::share_boards(Clock::time_point deadline) {
  SharedMemory& shared = *context_.fabric->shared_memory();
  const uint64_t name = Hash64().add("device board").add(context_.id).value();
  std::vector<RankBoard*> boards;
  board_windows_[static_cast<size_t>(rank_)] = shared.make(sizeof(RankBoard), name);
  for (int rank = 0; rank < world_; ++rank) {
    std::shared_ptr<Window>& window = board_windows_[static_cast<size_t>(rank)];
    look_for(context_, deadline, [&] {
      if (!window) window = shared.find(context_.world_rank(rank), SharedMemory::id_of(name));
      return window != nullptr;
    });
    if (!window || window->bytes() < sizeof(RankBoard)) {
      throw Exception(ErrorCode::kSystem, "the host memory of " + context_.name(rank) + " did not come");
    }
    boards.push_back(reinterpret_cast<RankBoard*>(window->data()));
  }
  boards_ = std::move(boards);  // of all ranks or of none: let_go() and close() find their own by its rank
  const std::shared_ptr<Window>& own = board_windows_[static_cast<size_t>(rank_)];
  status_at_ = &static_cast<RankBoard*>(lock(own->data(), own->bytes()))->status;
}

// Two words of every rank: its memory is there; it has mapped the others'. Where one could not map, a third: it has let
// go of them. Until then they keep the memory of ranks that have given it up.
std::string DeviceIsland::share(uint64_t bytes, const AllSay& all_say, Clock::time_point deadline) {
  DeviceMemory memory;
  memory.bytes = bytes;
  memory.mapped.resize(static_cast<size_t>(world_));
  int number = -1;
  std::string wrong;
  if (const DeviceStatus status = driver_->allocate_shared(device_, bytes, &memory.own, &number)) {
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
      if (!without.empty()) {
        release(*driver_, memory);
        all_say(0);
      }
    }
  } catch (...) {
    release(*driver_, memory);
    throw;
  }
  if (!without.empty()) {
    release(*driver_, memory);
    return wrong.empty() ? without + " cannot share its device memory" : wrong;
  }
  std::lock_guard lock(mutex_);
  windows_.push_back(std::move(memory));
  // Before the next collective, which every rank waits in.
  if (!show(windows_.size() - 1, windows_.back(), sizes)) {
    context_.fail({ErrorCode::kSystem, "the table of device memory cannot be written: the device has failed", {}});
    context_.check_usable();
  }
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

// Takes the offer of every rank, also of one that it cannot reach, or behind an error: a descriptor that nobody takes
// would stay open. Before the reach is known a map may fail; afterwards that is an error.
std::string DeviceIsland::map_peers(DeviceMemory& memory, const std::vector<uint64_t>& bytes, uint64_t name,
                                    Clock::time_point deadline) {
  const bool known = !reach_.reaches.empty();
  std::string wrong;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    Descriptor descriptor;
    look_for(context_, deadline, [&] {
      descriptor = context_.fabric->shared_memory()->take_offer(context_.world_rank(rank), name);
      return descriptor.valid();
    });
    if (!descriptor.valid()) return "the device memory of " + context_.name(rank) + " did not come";
    if (!wrong.empty() || (known && !reach_.of(rank_, rank))) continue;
    const auto peer = static_cast<size_t>(rank);
    if (const DeviceStatus status = driver_->map_shared(device_, descriptor.get(), bytes[peer], &memory.mapped[peer])) {
      memory.mapped[peer] = nullptr;
      const std::string why =
          fmt::format("the device memory of {} cannot be mapped: {}", context_.name(rank), driver_->error_text(status));
      (known ? wrong : refused_) = known ? why : "; " + why;
    }
  }
  return wrong;
}

// Gives a window up. Other ranks may still map it: their mappings keep the memory.
void DeviceIsland::release(const DeviceDriver& driver, DeviceMemory& memory) {
  for (void* const mapped : memory.mapped) {
    if (mapped != nullptr) driver.release_shared(mapped);
  }
  if (memory.own != nullptr) driver.release_shared(memory.own);
  memory = {};
}

// Writes into the device's table where kernels find a window of each rank; memory.own nullptr: nowhere. False:
// the device has failed.
bool DeviceIsland::show(size_t window, const DeviceMemory& memory, const std::vector<uint64_t>& bytes) {
  DeviceWindow* const row = own().row;
  std::fill_n(row, world_, DeviceWindow{});
  for (size_t rank = 0; rank < memory.mapped.size(); ++rank) {
    row[rank] = {static_cast<int>(rank) == rank_ ? memory.own : memory.mapped[rank], bytes[rank]};
  }
  const size_t row_bytes = static_cast<size_t>(world_) * sizeof(DeviceWindow);
  std::byte* const table = static_cast<std::byte*>(windows_.front().own) + sizeof(DeviceControl);
  const DeviceCopy copy{table + window * row_bytes, row, row_bytes, row_bytes, row_bytes, 1};
  return in_own_stream([&](DeviceStream stream) { return driver_->copy(copy, stream) == 0; });
}

void DeviceIsland::describe(DeviceCall& call, uint32_t number, int to) const {
  const DeviceMemory& window = windows_.front();
  const auto at = [&](int rank) {
    return static_cast<std::byte*>(rank == rank_ ? window.own : window.mapped[static_cast<size_t>(rank)]);
  };
  for (int rank = 0; rank < world_; ++rank) {
    call.controls[rank] = reinterpret_cast<DeviceControl*>(at(rank));
    call.posts[rank] = at(rank) + posts_at_;
  }
  call.post_bytes = reach_.complete() && lanes_ > 0 ? post_bytes() : 0;
  call.windows = reinterpret_cast<const DeviceWindow*>(at(rank_) + sizeof(DeviceControl));
  call.status = status_at_;
  call.arrivals = at(rank_) + header_bytes_;
  if (to >= 0) call.departures = at(to) + header_bytes_;
  call.slot_bytes = slot_bytes();
  call.number = number;
  call.window_count = kMaxWindows;
  call.rank = static_cast<uint8_t>(rank_);
  call.world = static_cast<uint8_t>(world_);
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
  show(static_cast<size_t>(found - windows_.begin()), {}, {});
  release(*driver_, *found);
  return true;
}

std::optional<DeviceIsland::DevicePlace> DeviceIsland::locate(const void* data, uint64_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  std::lock_guard lock(mutex_);
  for (size_t window = 1; window < windows_.size(); ++window) {
    const auto first = reinterpret_cast<uintptr_t>(windows_[window].own);
    if (first == 0 || at < first || at - first > windows_[window].bytes) continue;
    if (bytes > windows_[window].bytes - (at - first)) continue;
    return DevicePlace{static_cast<uint32_t>(window), at - first};
  }
  return std::nullopt;
}

bool DeviceIsland::all_called(uint32_t number) {
  store_word(own().called, number);
  return std::all_of(boards_.begin(), boards_.end(),
                     [number](const RankBoard* board) { return at_least(load_word(board->called), number); });
}

Error DeviceIsland::late(uint32_t number, const std::string& call) const {
  Error error{ErrorCode::kTimeout, "", {}};
  for (size_t rank = 0; rank < boards_.size(); ++rank) {
    if (!at_least(load_word(boards_[rank]->called), number)) error.ranks.push_back(static_cast<int>(rank));
  }
  error.message = fmt::format("{} did not begin on rank {} before its deadline; these ranks have not made the call: {}",
                              call, context_.rank, fmt::join(error.ranks, ", "));
  return error;
}

// Whether a kernel of that rank may touch memory of this one, after this rank's communicator has failed.
// Kernels that begin later find this rank's stop.
bool DeviceIsland::peer_at_work(int rank) const {
  if (context_.fabric->shared_memory()->ended(context_.world_rank(rank))) return false;
  return may_touch(boards_[static_cast<size_t>(rank)]->status, load_word);
}

// The stop is stored before the looks. A kernel says that it begins before it looks at the stop. So it ends, or
// is seen at work.
bool DeviceIsland::let_go(Clock::time_point now, bool broken) {
  std::lock_guard lock(end_mutex_);
  if (boards_.empty()) return true;
  CallStatus& status = own().status;
  store_word(status.stop, 1);
  if (!asked_to_end_) asked_to_end_ = now;
  bool own = is_at_work(status, load_word) && !broken, others = false;
  const bool unfinished = done_.load() != last_number_.load() || load_word(status.replays_started) != 0;
  for (int rank = 0; rank < world_ && unfinished; ++rank) {
    if (rank == rank_ || !peer_at_work(rank)) continue;
    const bool in_process = context_.fabric->process(context_.world_rank(rank)) == ::getpid();
    const bool runs = is_at_work(boards_[static_cast<size_t>(rank)]->status, load_word);
    (in_process && runs ? own : others) = true;
  }
  const auto waited = now - *asked_to_end_;
  return (!own || waited >= kLongestOwnPass) && (!others || waited >= kLongestPass);
}

void DeviceIsland::keep_in(const StreamFacts& captured) {
  if (captured.graph == nullptr || last_capture_.load() == captured.id) return;
  driver_->check(driver_->keep_in_graph(captured.graph, left_to_graphs_), "keeping memory for a graph");
  last_capture_.store(captured.id);
}

// Leaves all memory to the graphs that have calls of this rank. False: there are none.
bool DeviceIsland::leave_to_graphs() {
  driver_->free_ended();
  const std::shared_ptr<Left> left = std::exchange(left_to_graphs_, nullptr);
  if (left == nullptr || left.use_count() == 1) return false;
  left->driver = driver_;
  left->windows = std::move(windows_);
  left->locked = std::exchange(locked_, {});
  left->boards = board_windows_;
  return true;
}

// The last graph is gone.
DeviceIsland::Left::~Left() {
  for (DeviceMemory& window : windows) release(*driver, window);
  for (void* const memory : locked) driver->unlock_host(memory);
}

// The stop comes first: kernels that still begin touch nothing. The boards go last, since locked memory lies there.
void DeviceIsland::close() {
  {
    std::lock_guard end(end_mutex_);
    if (!boards_.empty()) store_word(own().status.stop, 1);
  }
  {
    std::lock_guard lock(mutex_);
    if (!leave_to_graphs()) {
      for (size_t window = windows_.size(); window-- > 0;) release(*driver_, windows_[window]);
    }
    windows_.clear();
  }
  std::lock_guard end(end_mutex_);
  for (void* memory : std::exchange(locked_, {})) driver_->unlock_host(memory);
  boards_.clear();
  board_windows_.clear();
  driver_->give_blocks(device_, std::exchange(lanes_, 0));
  driver_->leave_streams(context_.id, rank_);
}

}  // namespace rondo
