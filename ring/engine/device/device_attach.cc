// DeviceSide: how ranks find their devices, and what they share on them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/log.h"
#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

constexpr int kOldestMajor = 8;   // compute capability that there are kernels for
constexpr int kQueuesWanted = 8;  // what the driver has unless it is told otherwise

// What ranks tell each other when they attach. Every rank reads all cards, so all draw the same conclusions.
struct AttachCard {
  int64_t pid = 0;
  int64_t works = 0;
  int64_t shares = 0;  // its device shares memory: DeviceFacts::shares_memory
  int64_t launches_wait = 0, queues = 0, serves_processes = 0;
  cuda::Uuid device = {};
};

bool same_device(const AttachCard& one, const AttachCard& other) {
  return std::memcmp(&one.device, &other.device, sizeof(cuda::Uuid)) == 0;
}

}  // namespace

// Under the lock, so that two threads attach once. attached_ is stored last, with release: a thread that sees
// it sees calls_ and island_.
void DeviceSide::attach_for(const char* call, std::chrono::milliseconds timeout, void* const* stream) {
  if (attached_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(attach_mutex_);
  if (attached_.load()) return;
  if (stream != nullptr) check_first_stream(call, *stream);
  try {
    exchange(timeout, stream);
    if (island_wanted()) connect(timeout);
  } catch (...) {
    if (calls_) std::exchange(calls_, nullptr)->free_all();
    throw;
  }
  attached_.store(true, std::memory_order_release);
}

// Refuses a stream that is being captured before attach() begins: attaching makes memory and waits for the
// device, which would end the capture.
void DeviceSide::check_first_stream(const char* call, void* stream) const {
  std::shared_ptr<const DeviceDriver> driver;
  try {
    driver = DeviceDriver::open(group_.context().config.device_library);
  } catch (const Exception&) {
    return;  // exchange() says so to all ranks
  }
  check_stream(*driver, call, stream);
}

// Opens the driver and finds the rank's device. Throws if there are no kernels for it.
void DeviceSide::open(void* const* stream, DeviceFacts& facts) {
  auto driver = DeviceDriver::open(group_.context().config.device_library);
  driver->check(driver->current(&device_), "asking for the current device");
  StreamFacts where{};
  if (stream != nullptr && driver->stream_facts(*stream, &where) == 0) device_ = where.device;
  driver->check(driver->facts(device_, &facts), "asking for the device's properties");
  if (facts.major < kOldestMajor) {
    throw Exception(
        ErrorCode::kUnsupported,
        fmt::format("no GPU can be used: device {} ({}) has compute capability {}.{}; {}.0 or newer is needed", device_,
                    facts.name, facts.major, facts.minor, kOldestMajor));
  }
  calls_ = std::make_shared<StreamCalls>(driver, device_, group_.context().fabric->shared_memory(), group_.rank());
  calls_->prepare(device_);
}

DeviceIsland::AllSay DeviceSide::all_say(std::chrono::milliseconds timeout) {
  return [this, timeout](uint64_t own) { return group_.calls().gather(own, Purpose::kAttach, timeout); };
}

Clock::time_point DeviceSide::deadline(std::chrono::milliseconds timeout) const {
  return deadline_after(Clock::now(), group_.context().limit_of(timeout));
}

// All ranks open the driver, then tell each other whether it was there. A rank whose driver is missing takes
// part, too: the others wait for its card.
void DeviceSide::exchange(std::chrono::milliseconds timeout, void* const* stream) {
  DeviceFacts facts{};
  Error error;
  try {
    open(stream, facts);
  } catch (...) {  // the others wait for what this rank says
    error = caught();
  }
  const CommunicatorContext& context = group_.context();
  const AttachCard own{getpid(),
                       error.ok() ? 1 : 0,
                       facts.shares_memory ? 1 : 0,
                       facts.launches_wait ? 1 : 0,
                       facts.queues,
                       facts.serves_processes ? 1 : 0,
                       facts.uuid};
  const std::vector<AttachCard> cards = group_.calls().gather(own, Purpose::kAttach, timeout);
  if (!error.ok()) {
    throw Exception(error.code, fmt::format("attach_device on rank {}: {}", group_.rank(), error.message));
  }
  const std::vector<int>& host = context.topology.host;
  for (int r = 0; r < group_.size(); ++r) {
    const AttachCard& card = cards[static_cast<size_t>(r)];
    if (card.works == 0) {
      throw Exception(Error{ErrorCode::kUnsupported,
                            fmt::format("attach_device on rank {}: {} can use no GPU; its own error says why",
                                        group_.rank(), context.name(r)),
                            {r}});
    }
    // Streams of one process may share a queue of the device, in which a wait of one rank would stand before the copy
    // of another one that it waits for.
    const bool here = host[static_cast<size_t>(r)] == host[static_cast<size_t>(group_.rank())] && card.pid == own.pid;
    if (r != group_.rank() && here) waits_ = StreamOperation::Waits::kHost;
  }
  if (island_wanted()) look_at(cards);
}

// An island is of one host's ranks. Equal on all ranks, as all that it reads is.
bool DeviceSide::island_wanted() const {
  const CommunicatorContext& context = group_.context();
  return context.topology.one_island() && context.config.device_window_bytes > 0 && group_.size() <= kMaxDeviceRanks;
}

// Finds what hinders an island. Kernels that wait for one another need memory that all ranks share, and launches that
// return before they have ended. On one device they must also run at once: as threads of one process, or as processes
// if the device runs kernels of several.
template <class Attached>
void DeviceSide::look_at(const std::vector<Attached>& cards) {
  const auto name = [&](const Attached& card) { return group_.context().name(static_cast<int>(&card - cards.data())); };
  const Attached& own = cards[static_cast<size_t>(group_.rank())];
  ranks_on_device_ = 0;
  for (const Attached& card : cards) {
    if (same_device(card, own)) ++ranks_on_device_;
    if (card.shares == 0) hindered_ = name(card) + " has a GPU whose driver gives no file descriptors for its memory";
    if (card.launches_wait != 0) {
      hindered_ = name(card) + " has CUDA_LAUNCH_BLOCKING set: its host would wait for the kernels of all; unset it";
    }
    if (card.queues < kQueuesWanted) {
      queues_ = fmt::format(
          "; streams of {} share the {} queue{} of CUDA_DEVICE_MAX_CONNECTIONS, in which one that waits "
          "holds up the others: set it to {} or more, or unset it",
          name(card), card.queues, card.queues == 1 ? "" : "s", kQueuesWanted);
    }
    for (const Attached& other : cards) {
      if (card.serves_processes != 0 || card.pid == other.pid || !same_device(card, other)) continue;
      hindered_ = fmt::format("{} and {} share a GPU that runs kernels of one process at a time; start an MPS daemon",
                              name(other), name(card));
    }
  }
}

// Makes the island: device memory that all ranks map, and kernels that meet there. Returns "", or why it cannot
// be: the same verdict on all ranks.
std::string DeviceSide::connect(DeviceIsland& island, std::chrono::milliseconds timeout) {
  if (!hindered_.empty()) return hindered_;
  try {
    const uint32_t most = group_.context().config.device_blocks;
    const uint32_t lanes = driver().take_blocks(device_, most, ranks_on_device_);
    const std::string wrong = island.connect(lanes, all_say(timeout), deadline(timeout));
    return wrong == DeviceIsland::kDoNotMeet ? wrong + queues_ : wrong;
  } catch (...) {
    island.close();
    throw;
  }
}

// Without an island calls are staged, which is slower and no failure; the log says why. With one, the flow of
// collectives learns how to let the streams go after a failure.
void DeviceSide::connect(std::chrono::milliseconds timeout) {
  auto island = std::make_shared<DeviceIsland>(group_.context(), calls_->driver, device_);
  const std::string wrong = connect(*island, timeout);
  const Logger log(group_.context().config.debug, group_.context().world_rank(group_.rank()));
  if (!wrong.empty()) {
    island->close();
    if (log.shows(LogLevel::kWarn)) {
      log.warn(fmt::format("calls on device memory are staged through host memory: {}", wrong));
    }
    return;
  }
  if (group_.rank() == 0 && log.shows(LogLevel::kInfo)) {
    log.info(fmt::format("devices share memory, {}; their ring: {}",
                         island->reach().complete() ? "each with all others" : "not each with all others",
                         island->order().empty() ? "none" : fmt::format("{}", fmt::join(island->order(), " "))));
  }
  if (group_.rank() == 0 && island->lanes() < group_.context().config.device_blocks && log.shows(LogLevel::kWarn)) {
    log.warn(
        fmt::format("kernels of this communicator get {} blocks of the {} of RONDO_DEVICE_BLOCKS: other "
                    "communicators or ranks have the rest of a device's",
                    island->lanes(), group_.context().config.device_blocks));
  }
  island_ = std::move(island);
  plans_.emplace(group_.rank(), group_.context().topology, island_->order(), island_->reach().complete());
  group_.calls().flow()->set_streams([island = island_, calls = calls_](Clock::time_point now) {
    const bool broken = calls->broken(StreamCalls::Look::kSeen).has_value();
    if (!island->let_go(now, broken)) return StreamsEnd::kAtWork;
    return calls->wait_for_all(now) ? StreamsEnd::kDrained : StreamsEnd::kEntriesLeft;
  });
}

// All ranks say whether they have the memory, and all throw if one has not: otherwise a rank would go on alone.
void* DeviceSide::allocate(size_t bytes) {
  if (bytes == 0) {
    throw Exception(ErrorCode::kInvalid, fmt::format("allocate on rank {}: 0 bytes", group_.rank()));
  }
  attach({});
  if (island_) return island_->allocate(bytes, all_say({}), deadline({}));
  void* data = nullptr;
  DeviceStatus status = driver().allocate(device_, bytes, &data);
  if (status == 0) status = driver().zero(device_, data, bytes);
  const std::string without = DeviceIsland::first_without(group_.context(), all_say({})(status == 0 ? 1 : 0));
  if (!without.empty()) {
    if (data != nullptr) driver().release(device_, data);
    const std::string why = status == 0
                                ? without + " cannot make its device memory"
                                : fmt::format("{} bytes of device memory: {}", bytes, driver().error_text(status));
    throw Exception(ErrorCode::kSystem, fmt::format("allocate on rank {}: {}", group_.rank(), why));
  }
  std::lock_guard lock(order_mutex_);
  plain_.insert(data);
  return data;
}

// Kernels under way may work on the memory, so it waits for all calls, up to destroy_timeout_ms.
bool DeviceSide::deallocate(void* data) {
  if (!attached_.load(std::memory_order_acquire)) return false;
  const auto is_ours = [&] {
    if (island_) return island_->locate(data, 1).has_value();
    std::lock_guard lock(order_mutex_);
    return plain_.count(data) != 0;
  };
  if (!is_ours()) return false;
  if (!calls_->wait_for_all(Clock::now() + std::chrono::milliseconds(group_.context().config.destroy_timeout_ms))) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("deallocate on rank {}: calls on streams are under way; synchronize the streams first",
                                group_.rank()));
  }
  if (island_) return island_->deallocate(data);
  {
    std::lock_guard lock(order_mutex_);
    if (plain_.erase(data) == 0) return false;
  }
  driver().check(driver().release(device_, data), "releasing device memory");
  return true;
}

}  // namespace rondo
