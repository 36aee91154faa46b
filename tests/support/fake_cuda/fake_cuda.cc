// A libcuda.so.1 without a GPU: the functions of NVIDIA's driver that driver_api.h has, over threads and memory of this
// host, in the place of the driver by RONDO_DEVICE_LIBRARY. Its devices' name says what it is. Kernels are run by name,
// from the host's build of the same bodies. It refuses what CUDA refuses, and is as difficult as a GPU may be: one
// queue for all streams of the process, of a bounded length; memory that the host cannot touch; copies from and to
// locked memory only, for which from host to host the caller waits; streams, events and kernels of the current context
// only; no use of the driver by functions in a stream; a kernel that is launched before it is loaded waits for all
// streams; blocks run one after the other. What is put into the legacy stream waits for what all blocking streams had
// before, and they wait for it. What CUDA leaves undefined ends the process.
//
// Settings, of the environment:
//   FAKE_CUDA_COUNT        devices, 2 unless set (0: a machine without one)
//   FAKE_CUDA_VERSION      of the driver, 13000
//   FAKE_CUDA_LACKS        names of functions that the driver does not have
//   FAKE_CUDA_MAJOR        of the compute capability, 9
//   FAKE_CUDA_MAX_PITCH    of copies of two dimensions, 2^31 - 1
//   FAKE_CUDA_QUEUES       queues, 1; with more of them streams run beside each other
//   FAKE_CUDA_SHARES       how memory can be shared: 1 by descriptors, 2 by CUDA IPC, 3 by both, 0 not at all
//   FAKE_CUDA_IMPORTS=0    descriptors are refused when they are taken in
//   FAKE_CUDA_PEERS        "01 12": device 0 maps memory of device 1, and 1 that of 2, and no others do; unset: all
//   FAKE_CUDA_COPY_MBPS    megabytes a second that move between host and device, at most: an engine each way moves
//                          them, a copy after the other; unset: as fast as a core copies
//   FAKE_CUDA_PASS_US      what a kernel that writes to another device takes besides
//   FAKE_CUDA_LATE_US      what a kernel of a call takes before it begins
//   FAKE_CUDA_MPS=0        kernels of two processes do not run at once
//   FAKE_CUDA_FUNCTION_US  what a stream takes before it calls a function of the host
//   FAKE_CUDA_SLICES       a file: one process at a time runs what is in its streams; one that waits lets others run
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device/host_lane.h"
#include "ring/base/check.h"
#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/queue.h"

namespace rondo::testing {
namespace {

using namespace cuda;
using By = FakeMemory::By;

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

// Whether a setting that lists words has this one.
bool lists(const char* name, const std::string& word, bool otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : (" " + std::string(text) + " ").find(" " + word + " ") != std::string::npos;
}
bool lists_pair(const char* name, int from, int to, bool otherwise) {
  return lists(name, std::to_string(from) + std::to_string(to), otherwise);
}

constexpr int kSharesByDescriptors = 1, kSharesByHandles = 2;

void sleep_us(int microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

// What moves bytes between host and device one way. `busy` counts those at work, of both ways.
class CopyEngine {
 public:
  CopyEngine(std::atomic<int>& busy, std::atomic<int>& both) : busy_(busy), both_(both) {}
  // Runs `move`, and returns when an engine of the setting's rate has moved the bytes.
  template <class Move>
  void run(size_t bytes, Move move) {
    const int rate = setting("FAKE_CUDA_COPY_MBPS", 0);
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

struct FakeContext;

enum class Capture { kNone, kActive, kInvalid };
struct FakeStream {
  FakeContext* const context;
  const bool blocks;  // waits for the legacy stream, and that for it
  const size_t queue;
  const uint64_t id;
  Capture capture = Capture::kNone;
  CaptureMode mode = kCaptureGlobal;  // of the capture, which a thread has begun
  std::thread::id thread;
  std::vector<std::pair<std::function<void()>, FakeQueue::Entry>> graph = {};  // what has been captured
};

// The primary one of a device.
struct FakeContext {
  int device = 0;
  int holders = 0;
  std::atomic<Result> error{kSuccess};  // it stays
  std::unique_ptr<FakeStream> legacy;
};

struct FakeEvent {
  explicit FakeEvent(FakeContext* of) : context(of) {}
  FakeContext* const context;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, passed = 0;
};

struct FakeFunction {
  FakeContext* context;
  int dtype;
  bool loaded = false;
};
struct FakeModule {
  std::map<std::string, FakeFunction> functions;
};

// All of this process's driver.
struct Fake {
  FakeMemory memory;
  std::mutex mutex;
  bool started = false;
  std::map<int, FakeContext> contexts;
  std::map<void*, std::unique_ptr<FakeStream>> streams;
  std::set<FakeEvent*> events;
  std::vector<std::unique_ptr<FakeEvent>> retired;  // entries may refer to them
  std::vector<std::unique_ptr<FakeModule>> modules;
  std::atomic<uint64_t> made{0};  // streams
  std::atomic<int> placed{0};     // passes that have found their pointers
  std::atomic<int> busy{0}, both_ways{0};
  CopyEngine to_host{busy, both_ways}, to_device{busy, both_ways};
  const std::vector<std::unique_ptr<FakeQueue>> queues = make_queues();

  FakeQueue& queue_of(const FakeStream& stream) { return *queues[stream.queue]; }
  std::unique_ptr<FakeStream> make_stream(FakeContext* context, bool blocks) {
    const uint64_t id = made.fetch_add(1);
    return std::make_unique<FakeStream>(FakeStream{context, blocks, id % queues.size(), id + 1, {}, {}, {}});
  }
  // What a kernel that writes there takes, if it is memory of another device.
  void cross(int from, const void* to) {
    const int home = memory.home_of(to);
    if (home >= 0 && home != from) sleep_us(setting("FAKE_CUDA_PASS_US", 0));
  }

 private:
  static std::vector<std::unique_ptr<FakeQueue>> make_queues() {
    std::vector<std::unique_ptr<FakeQueue>> all;
    for (int i = 0; i < setting("FAKE_CUDA_QUEUES", 1); ++i) all.push_back(std::make_unique<FakeQueue>());
    return all;
  }
};
Fake& fake() {
  static Fake* const one = new Fake;
  return *one;
}

// --- of the calling thread

thread_local std::vector<FakeContext*> current;
thread_local CaptureMode capture_mode = kCaptureGlobal;
thread_local std::map<FakeContext*, FakeStream*> own_streams;  // kStreamPerThread

FakeContext* of(Context context) { return reinterpret_cast<FakeContext*>(context); }
FakeEvent* of(Event event) { return reinterpret_cast<FakeEvent*>(event); }
const void* pointer(Pointer address) { return reinterpret_cast<const void*>(address); }
void* writable(Pointer address) { return reinterpret_cast<void*>(address); }
bool is_device(Device device) { return device >= 0 && device < setting("FAKE_CUDA_COUNT", 2); }

Result find_context(FakeContext*& context) {
  if (current.empty() || current.back() == nullptr) return kInvalidContext;
  context = current.back();
  return context->error.load();
}

// As CUDA has it of calls that may wait: a capture that this thread has begun, or any thread in global mode, ends.
Result end_captures() {
  if (capture_mode == kCaptureRelaxed) return kSuccess;
  const std::lock_guard lock(fake().mutex);
  Result result = kSuccess;
  for (auto& [handle, stream] : fake().streams) {
    if (stream->capture != Capture::kActive || stream->mode == kCaptureRelaxed) continue;
    const bool mine = stream->thread == std::this_thread::get_id();
    if (!mine && (stream->mode != kCaptureGlobal || capture_mode != kCaptureGlobal)) continue;
    stream->capture = Capture::kInvalid;
    result = kCaptureUnsupported;
  }
  return result;
}

// Requires the lock. The driver looks where the handle points: at no stream, its process ends there.
FakeStream* stream_of(Stream handle) {
  const auto found = fake().streams.find(handle);
  RONDO_CHECK(found != fake().streams.end(), "a stream that is none");
  return found->second.get();
}

// A stream of the current context.
Result find_stream(Stream handle, FakeStream*& stream) {
  FakeContext* context = nullptr;
  if (const Result failed = find_context(context)) return failed;
  const auto number = reinterpret_cast<uintptr_t>(handle);
  const std::lock_guard lock(fake().mutex);
  if (number == kStreamPerThread) {
    FakeStream*& own = own_streams[context];
    if (own == nullptr) {
      auto made = fake().make_stream(context, true);
      own = made.get();
      fake().streams[own] = std::move(made);
    }
    return stream = own, kSuccess;
  }
  if (number <= kStreamLegacy) return stream = context->legacy.get(), kSuccess;
  const auto found = stream_of(handle);
  if (found->context != context) return kInvalidHandle;
  return stream = found, kSuccess;
}

// --- what is in streams

// What a stream has got so far.
struct Mark {
  FakeQueue* queue;
  const FakeStream* stream;
  uint64_t count;
  void wait() const {
    while (!queue->has_run(stream, count)) FakeQueue::let_others_run(std::chrono::microseconds(50));
  }
};

// What the next entry of the stream waits for by the rules of the legacy stream.
std::vector<Mark> marks_before(const FakeStream& stream) {
  std::vector<Mark> marks;
  const auto add = [&marks](const FakeStream& other) {
    FakeQueue& queue = fake().queue_of(other);
    marks.push_back({&queue, &other, queue.added(&other)});
  };
  if (fake().queues.size() == 1 || !stream.blocks) return marks;
  if (&stream != stream.context->legacy.get()) {
    add(*stream.context->legacy);
    return marks;
  }
  const std::lock_guard lock(fake().mutex);
  for (const auto& [handle, other] : fake().streams) {
    if (other->blocks && other->context == stream.context) add(*other);
  }
  return marks;
}

// After an error nothing is run any more, functions of the host neither.
Result put(FakeStream& stream, std::function<void()> function, FakeQueue::Entry kind = FakeQueue::Entry::kOther) {
  if (stream.capture != Capture::kNone) return stream.graph.emplace_back(std::move(function), kind), kSuccess;
  fake().queue_of(stream).add(
      &stream,
      [function = std::move(function), context = stream.context, marks = marks_before(stream)] {
        for (const Mark& mark : marks) mark.wait();
        if (context->error.load() == kSuccess) function();
      },
      kind);
  return kSuccess;
}
template <class Function>
Result put_into(Stream handle, Function function) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  return put(*stream, [function, device = stream->context->device] { function(device); });
}

// Between host and device, or inside devices.
template <class Move>
void move_bytes(const void* to, const void* from, size_t bytes, Move move) {
  const bool from_device = fake().memory.home_of(from) >= 0, to_device = fake().memory.home_of(to) >= 0;
  if (from_device == to_device) return move();
  (to_device ? fake().to_device : fake().to_host).run(bytes, move);
}

// A word is written at once, as over PCIe: threads of the host look at it.
void copy_bytes(std::byte* to, std::byte* from, size_t bytes) {
  const bool is_word = bytes == sizeof(uint32_t) && reinterpret_cast<uintptr_t>(to) % bytes == 0 &&
                       reinterpret_cast<uintptr_t>(from) % bytes == 0;
  if (!is_word) return static_cast<void>(std::memcpy(to, from, bytes));
  const auto at = [](std::byte* word) { return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(word)); };
  at(to).store(at(from).load());
}

void copy_rows(int device, const Copy2D& copy) {
  const auto* const from = static_cast<const std::byte*>(pointer(copy.from.device));
  auto* const to = static_cast<std::byte*>(writable(copy.to.device));
  move_bytes(to, from, copy.row_bytes * copy.rows, [&] {
    for (size_t row = 0; row < copy.rows; ++row) {
      copy_bytes(fake().memory.reach(to + row * copy.to.pitch, copy.row_bytes, device, By::kCopy),
                 fake().memory.reach(from + row * copy.from.pitch, copy.row_bytes, device, By::kCopy), copy.row_bytes);
    }
  });
}

// What the lanes of a kernel run on. Addresses are the program's, which only the device reaches.
class KernelRuns {
 public:
  struct Broken {};
  KernelRuns(const FakeContext& context, bool counts) : context_(context), counts_(counts) {}
  void run(DeviceFold fold) {
    const size_t bytes = fold.count * dtype_bytes(DType(fold.dtype));
    const void *const to = fold.targets[0], *const from = fold.sources[0];
    if (counts_) fake().placed.fetch_add(1);
    for (int i = 0; i < fold.target_count; ++i) fake().cross(context_.device, fold.targets[i]);
    for (int i = 0; i < fold.source_count; ++i) fold.sources[i] = reach(fold.sources[i], bytes);
    for (int i = 0; i < fold.target_count; ++i) fold.targets[i] = reach(fold.targets[i], bytes);
    move_bytes(to, from, bytes, [&] { host_fold(fold, 4); });
  }
  void pause() {
    constexpr int kYields = 50;
    if (context_.error.load() != kSuccess) throw Broken{};
    if (++pauses_ < kYields) return std::this_thread::yield();
    FakeQueue::let_others_run(std::chrono::microseconds(50));
  }
  std::byte* reach(const void* at, size_t bytes) const {
    return fake().memory.reach(at, bytes, context_.device, By::kKernel);
  }

 private:
  const FakeContext& context_;
  const bool counts_;
  int pauses_ = 0;
};

void run_call(const FakeContext& context, DeviceCall call, uint32_t lanes) {
  KernelRuns runs(context, call.status != nullptr);
  if (call.status != nullptr) {
    sleep_us(setting("FAKE_CUDA_LATE_US", 0));
    const auto found = [&runs](auto*& at, size_t bytes) {
      if (at != nullptr) at = reinterpret_cast<std::remove_reference_t<decltype(at)>>(runs.reach(at, bytes));
    };
    for (DeviceControl*& control : call.controls) found(control, sizeof(DeviceControl));
    found(call.windows, size_t{call.window_count} * call.world * sizeof(DeviceWindow));
    found(call.status, sizeof(CallStatus));
  }
  try {
    for (uint32_t lane = 0; lane < lanes; ++lane) run_host_lane(call, runs, lane, lanes);
  } catch (const KernelRuns::Broken&) {
  }
}

void run_word(const FakeContext* context, int device, const MemoryOperation& op) {
  std::byte* const at = fake().memory.reach(pointer(op.address), sizeof(uint32_t), device, By::kKernel);
  const std::atomic_ref<uint32_t> word(*reinterpret_cast<uint32_t*>(at));
  const auto value = static_cast<uint32_t>(op.value);
  while (static_cast<int32_t>(word.load(std::memory_order_acquire) - value) < 0 && context->error.load() == kSuccess) {
    FakeQueue::let_others_run(std::chrono::microseconds(50));
  }
}

// --- the driver's functions, by their names
namespace functions {

Result Init(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  fake().started = true;
  return is_device(0) ? kSuccess : kNoDevice;
}
Result DriverGetVersion(int* version) { return *version = setting("FAKE_CUDA_VERSION", 13000), kSuccess; }
Result GetErrorString(Result result, const char** text) {
  static const std::map<Result, const char*> kTexts = {{kSuccess, "no error"},
                                                       {kInvalidValue, "invalid argument"},
                                                       {kOutOfMemory, "out of memory"},
                                                       {kNotInitialized, "initialization error"},
                                                       {kNoDevice, "no CUDA-capable device is detected"},
                                                       {kInvalidDevice, "invalid device ordinal"},
                                                       {kInvalidImage, "device kernel image is invalid"},
                                                       {kInvalidContext, "invalid device context"},
                                                       {kPeerAccessUnsupported, "peer access is not supported"},
                                                       {kInvalidHandle, "invalid resource handle"},
                                                       {kNotFound, "named symbol not found"},
                                                       {kIllegalAddress, "an illegal memory access was encountered"},
                                                       {kNotSupported, "operation not supported"}};
  const auto found = kTexts.find(result);
  *text = found == kTexts.end() ? nullptr : found->second;
  return *text == nullptr ? kInvalidValue : kSuccess;
}

// --- devices and contexts
Result DeviceGetCount(int* count) { return *count = setting("FAKE_CUDA_COUNT", 2), kSuccess; }
Result DeviceGetName(char* name, int bytes, Device device) {
  if (!is_device(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(bytes), "fake device (no GPU)");
  return kSuccess;
}
Result DeviceGetUuid(Uuid* uuid, Device device) {
  if (!is_device(device)) return kInvalidDevice;
  *uuid = {{static_cast<uint8_t>(device + 1)}};
  return kSuccess;
}
Result DeviceTotalMem(size_t* bytes, Device device) {
  return *bytes = size_t{1} << 30, is_device(device) ? kSuccess : kInvalidDevice;
}
Result DeviceGetAttribute(int* value, Attribute attribute, Device device) {
  if (!is_device(device)) return kInvalidDevice;
  const int shares = setting("FAKE_CUDA_SHARES", kSharesByDescriptors | kSharesByHandles);
  const std::map<Attribute, int> kValues = {
      {kMaxPitch, setting("FAKE_CUDA_MAX_PITCH", 0x7fffffff)},
      {kMultiprocessorCount, 8},
      {kMpsEnabled, setting("FAKE_CUDA_MPS", 1)},
      {kUnifiedAddressing, (shares & kSharesByHandles) != 0 ? 1 : 0},
      {kComputeCapabilityMajor, setting("FAKE_CUDA_MAJOR", 9)},
      {kComputeCapabilityMinor, 0},
      {kHandleTypePosixFileDescriptor, (shares & kSharesByDescriptors) != 0 ? 1 : 0}};
  const auto found = kValues.find(attribute);
  if (found == kValues.end()) return kInvalidValue;
  return *value = found->second, kSuccess;
}
Result DevicePrimaryCtxRetain(Context* context, Device device) {
  if (!is_device(device)) return kInvalidDevice;
  const std::lock_guard lock(fake().mutex);
  FakeContext& found = fake().contexts[device];
  found.device = device;
  ++found.holders;
  if (found.legacy == nullptr) found.legacy = fake().make_stream(&found, true);
  *context = reinterpret_cast<Context>(&found);
  return kSuccess;
}
Result CtxPushCurrent(Context context) { return current.push_back(of(context)), kSuccess; }
Result CtxPopCurrent(Context* context) {
  if (current.empty()) return kInvalidContext;
  *context = reinterpret_cast<Context>(current.back());
  current.pop_back();
  return kSuccess;
}
Result CtxSetCurrent(Context context) {
  if (current.empty()) current.push_back(nullptr);
  return current.back() = of(context), kSuccess;
}
Result CtxGetCurrent(Context* context) {
  *context = current.empty() ? nullptr : reinterpret_cast<Context>(current.back());
  return kSuccess;
}
Result CtxGetDevice(Device* device) {
  if (current.empty() || current.back() == nullptr) return kInvalidContext;
  return *device = current.back()->device, kSuccess;
}
Result CtxEnablePeerAccess(Context peer, unsigned flags) {
  FakeContext* const context = current.back();
  if (flags != 0 || of(peer) == context) return kInvalidValue;
  if (!lists_pair("FAKE_CUDA_PEERS", context->device, of(peer)->device, true)) return kPeerAccessUnsupported;
  fake().memory.enable_peer(context->device, of(peer)->device);
  return kSuccess;
}
Result ThreadExchangeStreamCaptureMode(CaptureMode* mode) { return std::swap(*mode, capture_mode), kSuccess; }

// --- kernels
Result ModuleLoadData(Module* module, const void* image) {
  FakeContext* const context = current.back();
  constexpr uint32_t kFatBinary = 0xba55ed50;
  uint32_t first = 0;
  std::memcpy(&first, image, sizeof first);
  // A build without nvcc has none: the names are the same.
  if (first != kFatBinary && std::strcmp(static_cast<const char*>(image), "no nvcc") != 0) return kInvalidImage;
  auto made = std::make_unique<FakeModule>();
  for (int dtype = 0; dtype < kDTypes; ++dtype) {
    const int kernel = kernel_of(dtype);
    made->functions["rondo_call_" + std::to_string(kernel)] = {context, kernel};
  }
  *module = reinterpret_cast<Module>(made.get());
  const std::lock_guard lock(fake().mutex);
  fake().modules.push_back(std::move(made));
  return kSuccess;
}
Result ModuleGetFunction(Function* function, Module module, const char* name) {
  auto& all = reinterpret_cast<FakeModule*>(module)->functions;
  const auto found = all.find(name);
  if (found == all.end()) return kNotFound;
  return *function = reinterpret_cast<Function>(&found->second), kSuccess;
}
Result FuncLoad(Function function) { return reinterpret_cast<FakeFunction*>(function)->loaded = true, kSuccess; }
Result LaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream handle, void** parameters,
                    void** extra) {
  auto* const kernel = reinterpret_cast<FakeFunction*>(function);
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  if (kernel == nullptr || kernel->context != stream->context) return kInvalidHandle;
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != kThreadsABlock || block_y != 1 || block_z != 1) {
    return kInvalidValue;
  }
  if (shared_bytes != 0 || extra != nullptr) return kInvalidValue;
  if (!kernel->loaded) {
    for (const auto& queue : fake().queues) queue->synchronize_all();
  }
  const auto call = std::make_shared<const DeviceCall>(*static_cast<const DeviceCall*>(parameters[0]));
  if (kernel_of(call->dtype) != kernel->dtype) return kInvalidValue;
  return put(
      *stream, [context = stream->context, call, grid_x] { run_call(*context, *call, grid_x); },
      FakeQueue::Entry::kKernel);
}

// --- memory
Result MemAlloc(Pointer* memory, size_t bytes) {
  FakeContext* const context = current.back();
  void* const made = fake().memory.allocate(bytes, context->device);
  *memory = reinterpret_cast<Pointer>(made);
  return made != nullptr ? kSuccess : bytes == 0 ? kInvalidValue : kOutOfMemory;
}
// After everything that has been put into streams.
Result MemFree(Pointer memory) {
  for (const auto& queue : fake().queues) queue->synchronize_all();
  return fake().memory.release(writable(memory)) ? kSuccess : kInvalidValue;
}
Result MemsetD8Async(Pointer memory, unsigned char value, size_t bytes, Stream stream) {
  return put_into(stream, [=](int device) {
    const size_t cleared = value == 0 ? fake().memory.clear(writable(memory), bytes) : 0;
    std::memset(fake().memory.reach(pointer(memory), bytes, device, By::kKernel) + cleared, value, bytes - cleared);
  });
}
Result StreamSynchronize(Stream handle);
Result MemcpyAsync(Pointer to, Pointer from, size_t bytes, Stream stream) {
  const Copy2D rows{{0, 0, kMemoryUnified, nullptr, from, nullptr, bytes},
                    {0, 0, kMemoryUnified, nullptr, to, nullptr, bytes},
                    bytes,
                    1};
  const Result status = put_into(stream, [rows](int device) { copy_rows(device, rows); });
  const bool in_host = fake().memory.home_of(pointer(to)) < 0 && fake().memory.home_of(pointer(from)) < 0;
  return status == kSuccess && in_host ? StreamSynchronize(stream) : status;
}
Result Memcpy2DAsync(const Copy2D* copy, Stream stream) {
  const auto most = static_cast<size_t>(setting("FAKE_CUDA_MAX_PITCH", 0x7fffffff));
  const auto wrong = [&](const Copy2DSide& side) {
    return side.type != kMemoryUnified || side.x != 0 || side.y != 0 || side.pitch < copy->row_bytes ||
           side.pitch > most;
  };
  if (wrong(copy->from) || wrong(copy->to)) return kInvalidValue;
  return put_into(stream, [rows = *copy](int device) { copy_rows(device, rows); });
}
Result PointerGetAttributes(unsigned count, PointerAttribute* attributes, void** data, Pointer address) {
  const int home = fake().memory.home_of(pointer(address));
  const bool locked = fake().memory.is_locked(pointer(address));
  for (unsigned i = 0; i < count; ++i) {
    int value = 0;
    if (attributes[i] == kMemoryType) value = home >= 0 ? kMemoryDevice : locked ? 1 : 0;
    if (attributes[i] == kDeviceOrdinal) value = home >= 0 ? home : -2;
    std::memcpy(data[i], &value, sizeof value);
  }
  return kSuccess;
}
Result MemHostRegister(void* memory, size_t bytes, unsigned flags) {
  if (memory == nullptr || bytes == 0 || flags != (kRegisterPortable | kRegisterDeviceMap)) return kInvalidValue;
  return fake().memory.lock_host(memory, bytes) ? kSuccess : kHostMemoryAlreadyRegistered;
}
Result MemHostUnregister(void* memory) {
  return fake().memory.unlock_host(memory) ? kSuccess : kHostMemoryNotRegistered;
}
Result MemHostGetDevicePointer(Pointer* at_device, void* memory, unsigned flags) {
  if (flags != 0 || !fake().memory.is_locked(memory)) return kInvalidValue;
  return *at_device = reinterpret_cast<Pointer>(memory), kSuccess;
}

// --- memory that other processes map
bool are_right(const AllocationProperties& properties) {
  return properties.type == kAllocationPinned && properties.location.type == kLocationDevice &&
         is_device(properties.location.id) && properties.handle_types == kPosixFileDescriptor;
}
Result MemGetAllocationGranularity(size_t* bytes, const AllocationProperties* properties, int which) {
  if (which != kGranularityRecommended || !are_right(*properties)) return kInvalidValue;
  return *bytes = FakeMemory::kGranularity, kSuccess;
}
Result MemCreate(Allocation* allocation, size_t bytes, const AllocationProperties* properties,
                 unsigned long long flags) {
  const bool shares = (setting("FAKE_CUDA_SHARES", kSharesByDescriptors) & kSharesByDescriptors) != 0;
  if (!shares) return kNotSupported;
  if (flags != 0 || !are_right(*properties) || bytes % FakeMemory::kGranularity != 0) return kInvalidValue;
  *allocation = fake().memory.create(bytes, properties->location.id);
  return *allocation != 0 ? kSuccess : kOutOfMemory;
}
Result MemRelease(Allocation allocation) { return fake().memory.drop(allocation) ? kSuccess : kInvalidValue; }
Result MemExportToShareableHandle(void* handle, Allocation allocation, int type, unsigned long long flags) {
  if (type != kPosixFileDescriptor || flags != 0) return kInvalidValue;
  const int descriptor = fake().memory.hand_out(allocation);
  std::memcpy(handle, &descriptor, sizeof descriptor);
  return descriptor >= 0 ? kSuccess : kInvalidValue;
}
Result MemImportFromShareableHandle(Allocation* allocation, void* handle, int type) {
  if (setting("FAKE_CUDA_IMPORTS", 1) == 0) return kNotSupported;
  if (type != kPosixFileDescriptor) return kInvalidValue;
  *allocation = fake().memory.take_in(static_cast<int>(reinterpret_cast<intptr_t>(handle)));
  return *allocation != 0 ? kSuccess : kInvalidValue;
}
Result MemAddressReserve(Pointer* memory, size_t bytes, size_t alignment, Pointer wanted, unsigned long long flags) {
  if (alignment != 0 || wanted != 0 || flags != 0) return kInvalidValue;
  void* const found = fake().memory.reserve(bytes);
  *memory = reinterpret_cast<Pointer>(found);
  return found != nullptr ? kSuccess : kInvalidValue;
}
Result MemAddressFree(Pointer memory, size_t bytes) {
  return fake().memory.unreserve(writable(memory), bytes) ? kSuccess : kInvalidValue;
}
Result MemMap(Pointer memory, size_t bytes, size_t offset, Allocation allocation, unsigned long long flags) {
  if (offset != 0 || flags != 0) return kInvalidValue;
  return fake().memory.map(writable(memory), bytes, allocation) ? kSuccess : kInvalidValue;
}
// At once: what is still in streams and touches it ends the process.
Result MemUnmap(Pointer memory, size_t bytes) {
  return fake().memory.unmap(writable(memory), bytes) ? kSuccess : kInvalidValue;
}
Result MemSetAccess(Pointer memory, size_t bytes, const Access* access, size_t count) {
  const int home = fake().memory.home_of(pointer(memory));
  if (count != 1 || access->flags != kReadWrite || access->location.type != kLocationDevice) return kInvalidValue;
  const int device = access->location.id;
  if (!is_device(device)) return kInvalidDevice;
  if (device != home && !lists_pair("FAKE_CUDA_PEERS", device, home, true)) return kInvalidDevice;
  return fake().memory.give_access(writable(memory), bytes, device) ? kSuccess : kInvalidValue;
}
bool shares_by_handles() {
  return (setting("FAKE_CUDA_SHARES", kSharesByDescriptors | kSharesByHandles) & kSharesByHandles) != 0;
}
Result IpcGetMemHandle(IpcHandle* handle, Pointer memory) {
  if (!shares_by_handles()) return kNotSupported;
  return fake().memory.get_handle(writable(memory), *handle) ? kSuccess : kInvalidValue;
}
Result IpcOpenMemHandle(Pointer* memory, IpcHandle handle, unsigned flags) {
  FakeContext* const context = current.back();
  if (!shares_by_handles()) return kNotSupported;
  const int home = FakeMemory::home_of(handle);
  if (flags != kLazyEnablePeerAccess) return kInvalidValue;
  if (home != context->device && !lists_pair("FAKE_CUDA_PEERS", context->device, home, true)) {
    return kPeerAccessUnsupported;
  }
  void* const found = fake().memory.open_handle(handle, context->device);
  *memory = reinterpret_cast<Pointer>(found);
  return found != nullptr ? kSuccess : kInvalidContext;
}
Result IpcCloseMemHandle(Pointer memory) {
  return fake().memory.close_handle(writable(memory)) ? kSuccess : kInvalidValue;
}

// --- streams and events
Result StreamCreate(Stream* stream, unsigned flags) {
  FakeContext* const context = current.back();
  if (flags > kStreamNonBlocking) return kInvalidValue;
  const std::lock_guard lock(fake().mutex);
  auto made = fake().make_stream(context, flags == 0);
  *stream = made.get();
  fake().streams[*stream] = std::move(made);
  return kSuccess;
}
Result StreamQuery(Stream handle) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  FakeQueue& queue = fake().queue_of(*stream);
  return queue.has_run(stream, queue.added(stream)) ? kSuccess : kNotReady;
}
Result StreamSynchronize(Stream handle) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  fake().queue_of(*stream).synchronize(stream);
  return stream->context->error.load();
}
Result StreamDestroy(Stream handle) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  fake().queue_of(*stream).synchronize(stream);
  const std::lock_guard lock(fake().mutex);
  return fake().streams.erase(handle) == 1 ? kSuccess : kInvalidHandle;
}
Result StreamGetCtx(Stream handle, Context* context) {
  const std::lock_guard lock(fake().mutex);
  return *context = reinterpret_cast<Context>(stream_of(handle)->context), kSuccess;
}
Result StreamGetId(Stream handle, unsigned long long* id) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  return *id = stream->id, kSuccess;
}
Result StreamIsCapturing(Stream handle, int* status) {
  FakeStream* stream = nullptr;
  *status = 0;
  if (const Result failed = find_stream(handle, stream)) return failed;
  *status = static_cast<int>(stream->capture);
  if (stream != stream->context->legacy.get()) return kSuccess;
  const std::lock_guard lock(fake().mutex);
  for (const auto& [other, known] : fake().streams) {
    if (known->context == stream->context && known->blocks && known->capture == Capture::kActive) {
      return kCaptureImplicit;
    }
  }
  return kSuccess;
}
bool is_event(Event event) {
  const std::lock_guard lock(fake().mutex);
  return fake().events.count(of(event)) == 1;
}
Result EventCreate(Event* event, unsigned flags) {
  FakeContext* const context = current.back();
  if (flags != kEventDisableTiming) return kInvalidValue;
  auto* const made = new FakeEvent(context);
  *event = reinterpret_cast<Event>(made);
  const std::lock_guard lock(fake().mutex);
  fake().events.insert(made);
  return kSuccess;
}
Result EventDestroy(Event event) {
  FakeContext* const context = current.back();
  if (!is_event(event) || of(event)->context != context) return kInvalidHandle;
  const std::lock_guard lock(fake().mutex);
  fake().events.erase(of(event));
  fake().retired.emplace_back(of(event));
  return kSuccess;
}
Result EventRecord(Event event, Stream handle) {
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  if (!is_event(event) || of(event)->context != stream->context) return kInvalidHandle;
  FakeEvent* const at = of(event);
  uint64_t number = 0;
  {
    const std::lock_guard lock(at->mutex);
    number = ++at->recorded;
  }
  return put(*stream, [at, number] {
    const std::lock_guard lock(at->mutex);
    at->passed = number;
    at->changed.notify_all();
  });
}
// Of another context, too.
Result StreamWaitEvent(Stream stream, Event event, unsigned flags) {
  if (flags != 0) return kInvalidValue;
  if (!is_event(event)) return kInvalidHandle;
  FakeEvent* const at = of(event);
  uint64_t number = 0;
  {
    const std::lock_guard lock(at->mutex);
    number = at->recorded;
  }
  return put_into(stream, [at, number](int) {
    std::unique_lock lock(at->mutex);
    const auto over = [&] { return at->passed >= number || at->context->error.load() != kSuccess; };
    while (!at->changed.wait_for(lock, std::chrono::milliseconds(100), over)) continue;
  });
}
Result LaunchHostFunc(Stream stream, HostFunction function, void* argument) {
  return put_into(stream, [function, argument](int) {
    sleep_us(setting("FAKE_CUDA_FUNCTION_US", 0));
    function(argument);
  });
}
Result StreamBatchMemOp(Stream handle, unsigned count, MemoryOperation* operations, unsigned flags) {
  constexpr unsigned kMost = 256;
  if (count == 0 || count > kMost || flags != 0) return kInvalidValue;
  const std::vector<MemoryOperation> all(operations, operations + count);
  for (const MemoryOperation& op : all) {
    if (op.flags != 0 || op.operation != kWaitValue32) return kInvalidValue;
    if (op.address % sizeof(uint32_t) != 0) return kInvalidValue;
  }
  FakeStream* stream = nullptr;
  if (const Result failed = find_stream(handle, stream)) return failed;
  return put(*stream, [all, context = stream->context] {
    for (const MemoryOperation& op : all) run_word(context, context->device, op);
  });
}

}  // namespace functions

// --- how they are found

#define FAKE_CUDA_INDEX(version, name, parameters) k##name,
enum Index : int { RONDO_DRIVER_FUNCTIONS(FAKE_CUDA_INDEX) kFunctions };

// By function: how often it was called, by this process and those that it has forked since it opened this library.
std::atomic<int>* const calls = [] {
  void* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  RONDO_CHECK(memory != MAP_FAILED, "mmap of counters");
  static_assert(kFunctions * sizeof(std::atomic<int>) <= 4096);
  return static_cast<std::atomic<int>*>(memory);
}();

// Those that need no Init(), those that need no current context, and those that may wait.
constexpr Index kAnytime[] = {kInit, kDriverGetVersion, kGetErrorString, kThreadExchangeStreamCaptureMode};
constexpr Index kAnywhere[] = {kDeviceGetCount,     kDeviceGetName,          kDeviceGetUuid,  kDeviceTotalMem,
                               kDeviceGetAttribute, kDevicePrimaryCtxRetain, kCtxPushCurrent, kCtxPopCurrent,
                               kCtxSetCurrent,      kCtxGetCurrent,          kStreamGetCtx};
constexpr Index kWaiting[] = {
    kDevicePrimaryCtxRetain, kModuleLoadData,    kFuncLoad,    kMemAlloc,         kMemFree,
    kMemHostRegister,        kMemHostUnregister, kMemCreate,   kMemUnmap,         kIpcGetMemHandle,
    kIpcOpenMemHandle,       kIpcCloseMemHandle, kStreamQuery, kStreamSynchronize};
constexpr bool is_in(std::span<const Index> list, Index index) {
  return std::find(list.begin(), list.end(), index) != list.end();
}

template <Index kIndex, auto kFunction>
struct Counted;
template <Index kIndex, class... Arguments, Result (*kFunction)(Arguments...)>
struct Counted<kIndex, kFunction> {
  static Result call(Arguments... arguments) {
    RONDO_CHECK(!FakeQueue::in_entry(), "a function in a stream uses the driver");
    calls[kIndex].fetch_add(1);
    constexpr bool kAny = is_in(kAnytime, kIndex);
    if (!kAny && !fake().started) return kNotInitialized;
    FakeContext* context = nullptr;
    const Result found = kAny || is_in(kAnywhere, kIndex) ? static_cast<Result>(kSuccess) : find_context(context);
    if (found != kSuccess) return found;
    const Result captured = is_in(kWaiting, kIndex) ? end_captures() : static_cast<Result>(kSuccess);
    if (captured != kSuccess) return captured;
    return kFunction(arguments...);
  }
};

struct Named {
  const char* name;
  int version;
  void* function;
};
#define FAKE_CUDA_NAMED(version, name, parameters) \
  {"cu" #name, version, reinterpret_cast<void*>(&Counted<k##name, functions::name>::call)},
const Named kAll[] = {RONDO_DRIVER_FUNCTIONS(FAKE_CUDA_NAMED)};

}  // namespace
}  // namespace rondo::testing

#define FAKE_CUDA_EXPORT extern "C" __attribute__((visibility("default")))
using namespace rondo::testing;  // NOLINT

FAKE_CUDA_EXPORT rondo::cuda::Result cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t,
                                                         int* found) {
  constexpr int kFound = 0, kNotThere = 1, kNotInThisVersion = 2;
  *function = nullptr;
  *found = kNotThere;
  for (const Named& one : kAll) {
    if (std::strcmp(one.name, name) != 0 || lists("FAKE_CUDA_LACKS", name, false)) continue;
    if (one.version > setting("FAKE_CUDA_VERSION", 13000)) continue;
    *found = one.version <= version ? kFound : kNotInThisVersion;
    if (*found == kFound) *function = one.function;
  }
  return 0;
}

// For tests: the stream is captured from now on (CaptureMode), or no more (-1). False: the capture has been spoilt.
FAKE_CUDA_EXPORT bool fake_cuda_capture(void* handle, int mode) {
  const std::lock_guard lock(fake().mutex);
  FakeStream& stream = *fake().streams.at(handle);
  const bool well = stream.capture != Capture::kInvalid;
  if (mode >= 0) stream.graph.clear();
  stream.capture = mode < 0 ? Capture::kNone : Capture::kActive;
  stream.mode = static_cast<rondo::cuda::CaptureMode>(mode);
  stream.thread = std::this_thread::get_id();
  return well;
}
// For tests: what has been captured in a stream is put into another one.
FAKE_CUDA_EXPORT void fake_cuda_replay(void* captured, void* into) {
  for (const auto& [function, kind] : fake().streams.at(captured)->graph) put(*fake().streams.at(into), function, kind);
}
// For tests: a stream of device 0 that waits for the legacy stream.
FAKE_CUDA_EXPORT void* fake_cuda_blocking_stream() {
  rondo::cuda::Context context = nullptr;
  rondo::cuda::Stream stream = nullptr;
  functions::DevicePrimaryCtxRetain(&context, 0);
  functions::CtxPushCurrent(context);
  functions::StreamCreate(&stream, 0);
  functions::CtxPopCurrent(&context);
  return stream;
}
// For tests: the device runs nothing more, and says why.
FAKE_CUDA_EXPORT void fake_cuda_break(int device) {
  const std::lock_guard lock(fake().mutex);
  fake().contexts.at(device).error.store(rondo::cuda::kIllegalAddress);
}
// Whether the device's primary context has been made.
FAKE_CUDA_EXPORT int fake_cuda_active(int device) {
  const std::lock_guard lock(fake().mutex);
  return fake().contexts.count(device) != 0 ? 1 : 0;
}
// A function that has not been called; nullptr: all of them have. Of FAKE_CUDA_LACKS too.
FAKE_CUDA_EXPORT const char* fake_cuda_uncalled() {
  for (int i = 0; i < kFunctions; ++i) {
    if (calls[i].load() == 0) return kAll[i].name;
  }
  return nullptr;
}
// What this process has done so far: copies that began while another one went the other way, with FAKE_CUDA_COPY_MBPS;
// passes of calls; and what it holds: pieces of locked host memory, and of device memory; streams and events.
FAKE_CUDA_EXPORT int fake_cuda_both_ways() { return fake().both_ways.load(); }
FAKE_CUDA_EXPORT int fake_cuda_placed() { return fake().placed.load(); }
FAKE_CUDA_EXPORT int fake_cuda_locked() { return fake().memory.locked(); }
FAKE_CUDA_EXPORT int fake_cuda_held() { return fake().memory.held(); }
FAKE_CUDA_EXPORT int fake_cuda_streams() {
  const std::lock_guard lock(fake().mutex);
  return static_cast<int>(fake().streams.size());
}
FAKE_CUDA_EXPORT int fake_cuda_events() {
  const std::lock_guard lock(fake().mutex);
  return static_cast<int>(fake().events.size());
}
