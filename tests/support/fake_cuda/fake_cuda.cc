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
//   FAKE_CUDA_MULTIPROCESSORS  of each device, 8
//   FAKE_CUDA_QUEUES       queues, 1; with more of them streams run beside each other
//   FAKE_CUDA_SHARES=0     memory cannot be shared: the driver gives no descriptors
//   FAKE_CUDA_IMPORTS=0    descriptors are refused when they are taken in
//   FAKE_CUDA_LOCKABLE     pieces of host memory that can be locked at once, 2^30
//   FAKE_CUDA_RECORDS=0    streams take no event
//   FAKE_CUDA_MEMORY_OPERATIONS=0  streams cannot wait for memory
//   FAKE_CUDA_PEERS        "01 12": device 0 maps memory of device 1, and 1 that of 2, and no others do; unset: all
//   FAKE_CUDA_COPY_MBPS    megabytes a second that move between host and device, at most: an engine each way moves
//                          them, a copy after the other; unset: as fast as a core copies
//   FAKE_CUDA_PASS_US      what a kernel that writes to another device takes besides
//   FAKE_CUDA_LATE_US      what a kernel of a call takes before it begins
//   FAKE_CUDA_KERNELS      that a queue runs at once, at most
//   FAKE_CUDA_MPS=0        kernels of two processes do not run at once
//   CUDA_LAUNCH_BLOCKING   not 0: who launches a kernel waits until it has ended
//   FAKE_CUDA_SLICES       a file: one process at a time runs what is in its streams; one that waits lets others run
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "ring/base/check.h"
#include "tests/support/fake_cuda/functions.h"

namespace rondo::testing {
namespace {

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
                               kCtxSetCurrent,      kCtxGetCurrent,          kStreamGetCtx,   kUserObjectCreate,
                               kUserObjectRelease,  kGraphRetainUserObject};
constexpr Index kWaiting[] = {kDevicePrimaryCtxRetain, kModuleLoadData,    kFuncLoad,  kMemAlloc, kMemFree,
                              kMemHostRegister,        kMemHostUnregister, kMemCreate, kMemUnmap, kStreamQuery,
                              kStreamSynchronize};
constexpr bool is_in(std::span<const Index> list, Index index) {
  return std::find(list.begin(), list.end(), index) != list.end();
}

template <Index kIndex, auto kFunction>
struct Counted;
template <Index kIndex, class... Arguments, void (*kFunction)(Arguments...)>
struct Counted<kIndex, kFunction> {
  static Result call(Arguments... arguments) {
    RONDO_CHECK(!FakeQueue::in_entry(), "a function in a stream uses the driver");
    calls[kIndex].fetch_add(1);
    constexpr bool kAny = is_in(kAnytime, kIndex);
    try {
      require(kAny || fake().started, kNotInitialized);
      if (!kAny && !is_in(kAnywhere, kIndex)) current_context();
      if (is_in(kWaiting, kIndex)) end_captures();
      kFunction(arguments...);
    } catch (const Refused& refused) {
      return refused.why;
    }
    return kSuccess;
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

namespace {

FakeStream& captured_in(void* handle) {
  const std::lock_guard lock(fake().mutex);
  return *fake().streams.at(handle);
}

}  // namespace

// For tests: the graph that has been captured in the stream is destroyed.
FAKE_CUDA_EXPORT void fake_cuda_destroy_graph(void* captured) { destroy_graph(captured_in(captured)); }
// For tests: the stream is captured from now on (CaptureMode), or no more (-1). False: the capture has been spoilt.
FAKE_CUDA_EXPORT bool fake_cuda_capture(void* handle, int mode) {
  if (mode >= 0) fake_cuda_destroy_graph(handle);
  const std::lock_guard lock(fake().mutex);
  FakeStream& stream = *fake().streams.at(handle);
  const bool well = stream.capture != Capture::kInvalid;
  if (mode >= 0) ++stream.captures;
  stream.capture = mode < 0 ? Capture::kNone : Capture::kActive;
  stream.mode = static_cast<rondo::cuda::CaptureMode>(mode);
  stream.thread = std::this_thread::get_id();
  return well;
}
// For tests: what has been captured in a stream is put into another one.
FAKE_CUDA_EXPORT void fake_cuda_replay(void* captured, void* into) {
  for (const auto& [function, kind] : captured_in(captured).graph) put(captured_in(into), function, kind);
}
// For tests: a stream of the device that waits for its legacy stream.
FAKE_CUDA_EXPORT void* fake_cuda_blocking_stream(int device) {
  rondo::cuda::Context context = nullptr;
  rondo::cuda::Stream stream = nullptr;
  functions::DevicePrimaryCtxRetain(&context, device);
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
// How often the driver's function has been called, by this process and its children; nullptr: all of them together.
FAKE_CUDA_EXPORT int fake_cuda_called(const char* name) {
  int sum = 0;
  for (int i = 0; i < kFunctions; ++i) {
    if (name == nullptr || std::strcmp(name, kAll[i].name) == 0) sum += calls[i].load();
  }
  return sum;
}
// What this process has done so far: passes of calls; and what it holds: pieces of locked host memory, and of device
// memory; and events.
FAKE_CUDA_EXPORT int fake_cuda_placed() { return fake().placed.load(); }
FAKE_CUDA_EXPORT int fake_cuda_locked() { return fake().memory.count(true); }
FAKE_CUDA_EXPORT int fake_cuda_held() { return fake().memory.count(false); }
FAKE_CUDA_EXPORT int fake_cuda_events() {
  const std::lock_guard lock(fake().mutex);
  return static_cast<int>(fake().events.size());
}
