// librondo_cuda.so's twin without a GPU: the table of kernels/device.h over threads and memory of this host. It is as
// difficult as a GPU may be: one queue for all streams of the process, of a bounded length; memory that the host cannot
// touch; copies from and to locked memory only; no use of the device by functions in a stream; a pass before
// load_kernels() that waits for all streams; no new memory while a stream is captured. What is put into the legacy
// stream (nullptr) waits for what all blocking streams had before, and they wait for it.
//
// Settings, of the environment:
//   HOST_DEVICE_COUNT        devices, 2 unless set (0: a machine without one)
//   HOST_DEVICE_QUEUES       queues, 1; with more of them streams run beside each other
//   HOST_DEVICE_BUILD        another build than this one, if set
//   HOST_DEVICE_WAITS=0      streams cannot wait for words
//   HOST_DEVICE_SHARES       how memory can be shared, kSharesBy... (0: not at all)
//   HOST_DEVICE_IMPORTS=0    descriptors are refused when they are mapped
//   HOST_DEVICE_PEERS        "01 12": device 0 maps memory of device 1, and 1 that of 2, and no others do; unset: all
//   HOST_DEVICE_SLOW         "01 12": what 0 writes into memory of 1, and 1 into that of 2, takes 200 ns a byte
//   HOST_DEVICE_COPY_MBPS    megabytes a second that move between host and device, at most: an engine each way moves
//                            them, a copy after the other; unset: as fast as a core copies
//   HOST_DEVICE_PASS_US      what a pass that writes to another device takes besides
//   HOST_DEVICE_LATE_US      what a stream takes to write a word
//   HOST_DEVICE_FUNCTION_US  what a stream takes before it calls a function of the host
//   HOST_DEVICE_SLICES       a file: one process at a time runs what is in its streams; one that waits lets others run
//   HOST_DEVICE_MAJOR        of the compute capability, 9
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/device.h"
#include "kernels/device/host_fold.h"
#include "ring/base/check.h"
#include "tests/support/host_device/memory.h"
#include "tests/support/host_device/queue.h"

namespace rondo::testing {
namespace {

enum Status : DeviceStatus { kSuccess = 0, kInvalidValue = 1, kNoMemory = 2, kInvalidStream = 3, kNotSupported = 4 };

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

// Whether a setting that lists pairs of devices has this one.
bool lists_pair(const char* name, int from, int to, bool otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  return std::strstr(text, (std::to_string(from) + std::to_string(to)).c_str()) != nullptr;
}

constexpr auto kSlowByte = std::chrono::nanoseconds(200);

// What moves bytes between host and device one way. `busy` counts those at work, of both ways.
class CopyEngine {
 public:
  CopyEngine(std::atomic<int>& busy, std::atomic<int>& both) : busy_(busy), both_(both) {}
  // Runs `move`, and returns when an engine of the setting's rate has moved the bytes.
  template <class Move>
  void run(size_t bytes, Move move) {
    const int rate = setting("HOST_DEVICE_COPY_MBPS", 0);
    if (rate == 0) return move();
    const std::lock_guard lock(mutex_);
    if (busy_.fetch_add(1) > 0) both_.fetch_add(1);
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(bytes * 1000 / static_cast<size_t>(rate));
    move();
    std::this_thread::sleep_until(end);
    busy_.fetch_sub(1);
  }

 private:
  std::atomic<int>&busy_, &both_;
  std::mutex mutex_;
};

struct Stream {
  int device = 0;
  bool capturing = false;
  bool blocks = false;  // waits for the legacy stream, and that for it
  size_t queue = 0;
};

struct Event {
  explicit Event(int number) : device(number) {}
  const int device;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, passed = 0;
  void wait(uint64_t until) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return passed >= until; });
  }
};

struct Device {
  HostDeviceMemory memory;
  std::mutex mutex;
  std::map<void*, std::unique_ptr<Stream>> streams;
  std::atomic<uint32_t> loaded{0};  // a bit for each device whose kernels are loaded
  std::atomic<int> placed{0};       // passes that have found their pointers
  std::atomic<int> copied{0};       // copies to memory of another device
  std::atomic<int> slow{0};         // writes between devices of HOST_DEVICE_SLOW
  std::atomic<int> captures{0};     // streams that are captured
  // What writing to memory of another device takes.
  void cross(int from, const void* to, size_t bytes, bool by_pass) {
    const int home = memory.home_of(to);
    if (home < 0 || home == from) return;
    if (by_pass) std::this_thread::sleep_for(std::chrono::microseconds(setting("HOST_DEVICE_PASS_US", 0)));
    if (!by_pass) copied.fetch_add(1);
    if (!lists_pair("HOST_DEVICE_SLOW", from, home, false)) return;
    slow.fetch_add(1);
    std::this_thread::sleep_for(kSlowByte * bytes);
  }
  std::atomic<int> busy{0}, both_ways{0};  // copy engines at work; times that one began beside the other
  CopyEngine to_host{busy, both_ways}, to_device{busy, both_ways};
  HostDeviceQueue& queue_of(const Stream& stream) { return *queues[stream.queue]; }
  const std::vector<std::unique_ptr<HostDeviceQueue>> queues = make_queues();
  std::atomic<size_t> made{0};  // streams

 private:
  static std::vector<std::unique_ptr<HostDeviceQueue>> make_queues() {
    std::vector<std::unique_ptr<HostDeviceQueue>> all;
    for (int i = 0; i < setting("HOST_DEVICE_QUEUES", 1); ++i) all.push_back(std::make_unique<HostDeviceQueue>());
    return all;
  }
};

// One of this library, which stays in the process.
Device& device() {
  RONDO_CHECK(!HostDeviceQueue::in_entry(), "a function in a stream uses the device");
  static Device* const one = new Device;
  return *one;
}

thread_local int current_device = 0;
int devices() { return setting("HOST_DEVICE_COUNT", 2); }

int shares() { return setting("HOST_DEVICE_SHARES", kSharesByDescriptor | kSharesByIpc); }
bool can_share(MemorySharing sharing) {
  return (shares() & (sharing == MemorySharing::kIpc ? kSharesByIpc : kSharesByDescriptor)) != 0;
}

// nullptr: the legacy stream, of the current device.
bool find_stream(DeviceStream stream, Stream& found) {
  found = {current_device, false, true, 0};
  if (stream == nullptr) return true;
  std::lock_guard lock(device().mutex);
  const auto at = device().streams.find(stream);
  if (at == device().streams.end()) return false;
  found = *at->second;
  return true;
}

// What a stream has got so far.
struct Mark {
  HostDeviceQueue* queue;
  const void* stream;
  uint64_t count;
  void wait() const {
    while (!queue->has_run(stream, count)) HostDeviceQueue::let_others_run(std::chrono::microseconds(50));
  }
};

// What the next entry of the stream waits for by the rules of the legacy stream.
std::vector<Mark> marks_before(DeviceStream stream, const Stream& found) {
  std::vector<Mark> marks;
  const auto add = [&marks](const void* other, const Stream& of) {
    HostDeviceQueue& queue = device().queue_of(of);
    marks.push_back({&queue, other, queue.added(other)});
  };
  if (device().queues.size() == 1 || !found.blocks) return marks;
  if (stream != nullptr) {
    add(nullptr, Stream{});
    return marks;
  }
  std::lock_guard lock(device().mutex);
  for (const auto& [other, known] : device().streams) {
    if (known->blocks && known->device == found.device) add(other, *known);
  }
  return marks;
}

// function: takes nothing, or the device of the stream.
template <class Function>
DeviceStatus put(DeviceStream stream, Function function) {
  Stream found;
  if (!find_stream(stream, found)) return kInvalidStream;
  RONDO_CHECK(!found.capturing, "work is put into a stream that is captured");
  const auto entry = [function, number = found.device, marks = marks_before(stream, found)]() mutable {
    for (const Mark& mark : marks) mark.wait();
    if constexpr (std::is_invocable_v<Function, int>) {
      function(number);
    } else {
      static_cast<void>(number);
      function();
    }
  };
  device().queue_of(found).add(stream, entry);
  return kSuccess;
}

const char* error_text(DeviceStatus status) {
  constexpr const char* kTexts[] = {"no error", "invalid value", "out of memory", "invalid stream", "not supported"};
  return status >= 0 && status <= kNotSupported ? kTexts[status] : "unknown error";
}

DeviceStatus count(int* number) {
  *number = devices();
  return kSuccess;
}

DeviceStatus facts(int number, DeviceFacts* facts) {
  if (number < 0 || number >= devices()) return kInvalidValue;
  *facts = {};
  std::strcpy(facts->name, "host device");
  facts->uuid[0] = static_cast<uint8_t>(number + 1);
  facts->major = setting("HOST_DEVICE_MAJOR", 9);
  facts->driver = 13000;
  facts->waits_on_words = setting("HOST_DEVICE_WAITS", 1);
  facts->shares_memory = shares();
  return kSuccess;
}

DeviceStatus current(int* number) {
  *number = current_device;
  return kSuccess;
}
DeviceStatus use(int number) {
  if (number < 0 || number >= devices()) return kInvalidValue;
  current_device = number;
  return kSuccess;
}

// What CUDA forbids to all threads in a capture of its usual kind.
void expect_no_capture() { RONDO_CHECK(device().captures.load() == 0, "a call that ends the capture of a stream"); }

DeviceStatus load_kernels(int number) {
  expect_no_capture();
  if (number < 0 || number >= devices()) return kInvalidValue;
  device().loaded.fetch_or(1u << number);
  return kSuccess;
}

// As a kernel's first launch may: after everything that has been put into streams.
void load_at_launch(DeviceStream stream) {
  Stream found;
  if (!find_stream(stream, found) || (device().loaded.load() >> found.device & 1) != 0) return;
  for (const auto& queue : device().queues) queue->synchronize_all();
}

DeviceStatus allocate(size_t bytes, void** memory) {
  expect_no_capture();
  *memory = device().memory.allocate(bytes, current_device);
  return *memory != nullptr ? kSuccess : kNoMemory;
}
// As cudaFree: after everything that has been put into streams.
DeviceStatus release(void* memory) {
  for (const auto& queue : device().queues) queue->synchronize_all();
  return device().memory.release(memory) ? kSuccess : kInvalidValue;
}
DeviceStatus allocate_shared(size_t bytes, MemorySharing sharing, void** memory, int* descriptor) {
  expect_no_capture();
  if (!can_share(sharing)) return kNotSupported;
  *memory = device().memory.allocate_shared(bytes, current_device, sharing, descriptor);
  return *memory != nullptr ? kSuccess : kNoMemory;
}
DeviceStatus map_shared(int descriptor, MemorySharing sharing, size_t bytes, void** memory) {
  const bool refused = sharing == MemorySharing::kDescriptor && setting("HOST_DEVICE_IMPORTS", 1) == 0;
  if (refused || !can_share(sharing)) return kNotSupported;
  const int home = HostDeviceMemory::home_of(descriptor);
  if (home != current_device && !lists_pair("HOST_DEVICE_PEERS", current_device, home, true)) return kNotSupported;
  *memory = device().memory.map_shared(descriptor, bytes, current_device, sharing);
  return *memory != nullptr ? kSuccess : kInvalidValue;
}
// At once: what is still in streams and touches it ends the process.
DeviceStatus release_shared(void* memory) { return device().memory.release(memory) ? kSuccess : kInvalidValue; }
DeviceStatus lock_host(void* memory, size_t bytes) {
  device().memory.lock_host(memory, bytes);
  return kSuccess;
}
DeviceStatus unlock_host(void* memory) { return device().memory.unlock_host(memory) ? kSuccess : kInvalidValue; }

DeviceStatus kernel_address(void* memory, void** address) {
  *address = memory;
  return kSuccess;
}

DeviceStatus pointer_facts(const void* pointer, PointerFacts* facts) {
  facts->device = device().memory.device_of(pointer);
  facts->kind = facts->device >= 0 ? MemoryKind::kDevice : MemoryKind::kHost;
  return kSuccess;
}

void add_stream(bool blocks, DeviceStream* stream) {
  const size_t queue = device().made.fetch_add(1) % device().queues.size();
  auto made = std::make_unique<Stream>(Stream{current_device, false, blocks, queue});
  *stream = made.get();
  std::lock_guard lock(device().mutex);
  device().streams[*stream] = std::move(made);
}
DeviceStatus make_stream(DeviceStream* stream) {
  add_stream(false, stream);
  return kSuccess;
}
DeviceStatus synchronize(DeviceStream stream) {
  Stream found;
  if (!find_stream(stream, found)) return kInvalidStream;
  device().queue_of(found).synchronize(stream);
  return kSuccess;
}
DeviceStatus destroy_stream(DeviceStream stream) {
  if (const DeviceStatus status = synchronize(stream)) return status;
  std::lock_guard lock(device().mutex);
  device().streams.erase(stream);
  return kSuccess;
}
DeviceStatus stream_facts(DeviceStream stream, StreamFacts* facts) {
  Stream found;
  if (!find_stream(stream, found)) return kInvalidStream;
  facts->device = found.device;
  facts->capturing = found.capturing ? 1 : 0;
  return kSuccess;
}

DeviceStatus make_event(int number, DeviceEvent* event) {
  device();
  *event = new Event(number);
  return kSuccess;
}
DeviceStatus destroy_event(DeviceEvent event) {
  device();
  delete static_cast<Event*>(event);
  return kSuccess;
}
DeviceStatus record(DeviceEvent event, DeviceStream stream) {
  auto* const at = static_cast<Event*>(event);
  Stream found;
  if (!find_stream(stream, found) || found.device != at->device) return kInvalidStream;
  uint64_t number = 0;
  {
    std::lock_guard lock(at->mutex);
    number = ++at->recorded;
  }
  return put(stream, [at, number] {
    std::lock_guard lock(at->mutex);
    at->passed = number;
    at->changed.notify_all();
  });
}
DeviceStatus wait(DeviceStream stream, DeviceEvent event) {
  auto* const at = static_cast<Event*>(event);
  uint64_t number = 0;
  {
    std::lock_guard lock(at->mutex);
    number = at->recorded;
  }
  return put(stream, [at, number] { at->wait(number); });
}
DeviceStatus synchronize_event(DeviceEvent event) {
  device();
  auto* const at = static_cast<Event*>(event);
  uint64_t number = 0;
  {
    std::lock_guard lock(at->mutex);
    number = at->recorded;
  }
  at->wait(number);
  return kSuccess;
}

// Between host and device, or inside devices.
template <class Move>
void move_bytes(Device& device, const void* to, const void* from, size_t bytes, Move move) {
  const bool from_device = device.memory.device_of(from) >= 0, to_device = device.memory.device_of(to) >= 0;
  if (from_device == to_device) return move();
  (to_device ? device.to_device : device.to_host).run(bytes, move);
}

DeviceStatus copy(const DeviceCopy* given, DeviceStream stream) {
  return put(stream, [&device = device(), copy = *given](int number) {
    const HostDeviceMemory& memory = device.memory;
    device.cross(number, copy.to, copy.row_bytes * copy.rows, false);
    move_bytes(device, copy.to, copy.from, copy.row_bytes * copy.rows, [&] {
      for (uint64_t row = 0; row < copy.rows; ++row) {
        const void* from = static_cast<const std::byte*>(copy.from) + row * copy.from_pitch;
        void* to = static_cast<std::byte*>(copy.to) + row * copy.to_pitch;
        std::memcpy(memory.reach(to, copy.row_bytes), memory.reach(from, copy.row_bytes), copy.row_bytes);
      }
    });
  });
}

void run_fold(Device& device, int number, DeviceFold fold) {
  const size_t bytes = fold.count * dtype_bytes(DType(fold.dtype));
  const void *const to = fold.targets[0], *const from = fold.sources[0];
  for (int i = 0; i < fold.target_count; ++i) device.cross(number, fold.targets[i], bytes, true);
  for (int i = 0; i < fold.source_count; ++i) fold.sources[i] = device.memory.reach(fold.sources[i], bytes);
  for (int i = 0; i < fold.target_count; ++i) fold.targets[i] = device.memory.reach(fold.targets[i], bytes);
  move_bytes(device, to, from, bytes, [&] { host_fold(fold, 4); });
}

DeviceStatus fold(const DeviceFold* given, DeviceStream stream) {
  load_at_launch(stream);
  return put(stream, [&device = device(), fold = *given](int number) { run_fold(device, number, fold); });
}

DeviceStatus fold_at(const DeviceFold* given, const PeerPlaces* places, DeviceStream stream) {
  load_at_launch(stream);
  const auto kept = std::make_shared<const PeerPlaces>(*places);
  return put(stream, [&device = device(), fold = *given, kept](int number) mutable {
    if (!host_find_places(*kept, fold)) return;
    device.placed.fetch_add(1);
    run_fold(device, number, fold);
  });
}

DeviceStatus call_host(HostFunction function, void* argument, DeviceStream stream) {
  return put(stream, [function, argument] {
    std::this_thread::sleep_for(std::chrono::microseconds(setting("HOST_DEVICE_FUNCTION_US", 0)));
    function(argument);
  });
}

void run_word(uint32_t* word, const WordOp& op) {
  const std::atomic_ref<uint32_t> shared(*word);
  if (op.action == WordAction::kWrite) {
    std::this_thread::sleep_for(std::chrono::microseconds(setting("HOST_DEVICE_LATE_US", 0)));
    return shared.store(op.value, std::memory_order_release);
  }
  while (static_cast<int32_t>(shared.load(std::memory_order_acquire) - op.value) < 0) {
    HostDeviceQueue::let_others_run(std::chrono::microseconds(50));
  }
}

DeviceStatus words(const WordOp* ops, int number, DeviceStream stream) {
  if (setting("HOST_DEVICE_WAITS", 1) == 0) return kNotSupported;
  if (number < 1 || number > kMaxWordOps) return kInvalidValue;
  const HostDeviceMemory& memory = device().memory;
  return put(stream, [&memory, list = std::vector<WordOp>(ops, ops + number)] {
    for (const WordOp& op : list) {
      run_word(reinterpret_cast<uint32_t*>(memory.reach(op.word, sizeof(uint32_t))), op);
    }
  });
}

constexpr DeviceTable kTable = {
    .version = kDeviceTableVersion,
    .bytes = sizeof(DeviceTable),
    .build = device_build(),
    .error_text = error_text,
    .count = count,
    .facts = facts,
    .current = current,
    .use = use,
    .load_kernels = load_kernels,
    .allocate = allocate,
    .release = release,
    .allocate_shared = allocate_shared,
    .map_shared = map_shared,
    .release_shared = release_shared,
    .lock_host = lock_host,
    .unlock_host = unlock_host,
    .kernel_address = kernel_address,
    .pointer_facts = pointer_facts,
    .make_stream = make_stream,
    .destroy_stream = destroy_stream,
    .synchronize = synchronize,
    .stream_facts = stream_facts,
    .make_event = make_event,
    .destroy_event = destroy_event,
    .record = record,
    .wait = wait,
    .synchronize_event = synchronize_event,
    .copy = copy,
    .fold = fold,
    .fold_at = fold_at,
    .call_host = call_host,
    .words = words,
};

}  // namespace
}  // namespace rondo::testing

extern "C" {

__attribute__((visibility("default"))) const rondo::DeviceTable* rondo_device_table(uint32_t version) {
  if (version != rondo::kDeviceTableVersion) return nullptr;
  static const rondo::DeviceTable table = [] {
    rondo::DeviceTable made = rondo::testing::kTable;
    if (std::getenv("HOST_DEVICE_BUILD") != nullptr) ++made.build;
    return made;
  }();
  return &table;
}

// For tests: a stream that waits for the legacy stream.
__attribute__((visibility("default"))) void* host_device_blocking_stream() {
  rondo::DeviceStream stream = nullptr;
  rondo::testing::add_stream(true, &stream);
  return stream;
}

// For tests: the stream is captured from now on, or not.
__attribute__((visibility("default"))) void host_device_capture(void* stream, int captures) {
  rondo::testing::Device& device = rondo::testing::device();
  std::lock_guard lock(device.mutex);
  device.streams.at(stream)->capturing = captures != 0;
  device.captures.fetch_add(captures != 0 ? 1 : -1);
}

// Writes between devices of HOST_DEVICE_SLOW that this process has done.
__attribute__((visibility("default"))) int host_device_slow() { return rondo::testing::device().slow.load(); }

// Copies to memory of another device that this process has done.
__attribute__((visibility("default"))) int host_device_copied() { return rondo::testing::device().copied.load(); }

// Copies that began while another one went the other way, with HOST_DEVICE_COPY_MBPS.
__attribute__((visibility("default"))) int host_device_both_ways() { return rondo::testing::device().both_ways.load(); }

// Pieces of host memory that are locked.
__attribute__((visibility("default"))) int host_device_locked() { return rondo::testing::device().memory.locked(); }

// Pieces of device memory that this process has made or mapped.
__attribute__((visibility("default"))) int host_device_held() { return rondo::testing::device().memory.held(); }

// Passes of calls that this process has begun.
__attribute__((visibility("default"))) int host_device_placed() { return rondo::testing::device().placed.load(); }

}  // extern "C"
