#include "kernels/device/device_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "kernels/device/gpu_code.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// The oldest version of CUDA that has FuncLoad.
constexpr int kOldestCuda = 12040;
constexpr int kLongestName = 256;
// Blocks of a kernel that reads host memory: more than PCIe keeps busy.
constexpr uint32_t kCopyBlocks = 32;
// Unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise.
constexpr int kQueues = 8;

[[noreturn]] void refuse(const std::string& why) {
  throw Exception(ErrorCode::kUnsupported, "no GPU can be used: " + why);
}

std::string release_of(int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); }

// What the driver itself takes from the environment.
int driver_setting(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::atoi(text);
}

cuda::Pointer at(const void* memory) { return reinterpret_cast<cuda::Pointer>(memory); }

// Whether this is the default stream of the calling thread, or of its current context.
bool is_default(DeviceStream stream) { return reinterpret_cast<uintptr_t>(stream) <= cuda::kStreamPerThread; }

thread_local DeviceDriver::Entered* entered = nullptr;  // the innermost of this thread

}  // namespace

std::shared_ptr<const DeviceDriver> DeviceDriver::open(const std::string& file) {
  static auto* const mutex = new std::mutex;  // never freed: other threads may run at exit
  static auto* const all = new std::map<std::string, std::shared_ptr<const DeviceDriver>>;
  const std::string name = file.empty() ? "libcuda.so.1" : file;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::shared_ptr<const DeviceDriver>& opened = (*all)[name];
  if (opened) return opened;
  // NODELETE: functions of it may be under way in streams as long as the process lives.
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    refuse(fmt::format("{}; install NVIDIA's driver, or give its libcuda.so.1 in RONDO_DEVICE_LIBRARY", dlerror()));
  }
  return opened = std::shared_ptr<const DeviceDriver>(new DeviceDriver(library, name));
}

// Finds all functions before any is called, so that an old driver is refused as a whole, by name.
DeviceDriver::DeviceDriver(void* library, const std::string& file) {
  const auto find = reinterpret_cast<cuda::GetProcAddress>(dlsym(library, cuda::kGetProcAddress));
  if (find == nullptr)
    refuse(fmt::format("{} has no {}: it is no driver, or older than CUDA 12", file, cuda::kGetProcAddress));
  std::string missing;
  const auto get = [&](const char* name, int version) {
    void* function = nullptr;
    int found = 0;
    if (find(name, &function, version, 0, &found) != 0 || found != 0) function = nullptr;
    if (function == nullptr && missing.empty()) missing = name;
    return function;
  };
#define RONDO_FIND(version, name, parameters) \
  api_.name = reinterpret_cast<decltype(api_.name)>(get("cu" #name, version));
  RONDO_DRIVER_FUNCTIONS(RONDO_FIND)
#undef RONDO_FIND
  if (api_.DriverGetVersion == nullptr || api_.DriverGetVersion(&version_) != 0) refuse(file + " is no driver");
  const int needed = std::max(kOldestCuda, gpu_code().cuda);
  if (version_ < needed) {
    refuse(fmt::format("{} is a driver of {}; {} or newer is needed{}", file, release_of(version_), release_of(needed),
                       needed >= 13000 ? " (driver 580)" : ""));
  }
  if (!missing.empty()) refuse(fmt::format("{} has no {}", file, missing));
  DeviceStatus status = api_.Init(0);
  if (status == 0) status = api_.DeviceGetCount(&devices_);
  if (status != 0 && status != cuda::kNoDevice)
    refuse(fmt::format("{}: {} (error {})", file, error_text(status), status));
  if (devices_ == 0) refuse("this process sees no device");
}

std::string DeviceDriver::error_text(DeviceStatus status) const {
  const char* text = nullptr;
  return api_.GetErrorString(status, &text) == 0 && text != nullptr ? text : "unknown error";
}

void DeviceDriver::check(DeviceStatus status, const char* what) const {
  if (status == 0) return;
  throw Exception(ErrorCode::kSystem, fmt::format("{} failed: {} (error {})", what, error_text(status), status));
}

// --- contexts

int DeviceDriver::attribute(int device, cuda::Attribute which) const {
  int value = 0;
  return api_.DeviceGetAttribute(&value, which, device) == 0 ? value : 0;
}

// The context is retained once and never released: memory in it may be the program's. gpus_ is a map, so that a Gpu
// stays where it is.
DeviceStatus DeviceDriver::find_gpu(int device, Gpu** gpu) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Gpu& found = gpus_[device];
  *gpu = &found;
  if (found.context != nullptr) return 0;
  found.device = device;
  found.multiprocessors = attribute(device, cuda::kMultiprocessorCount);
  found.max_pitch = attribute(device, cuda::kMaxPitch);
  return relaxed([&] { return api_.DevicePrimaryCtxRetain(&found.context, device); });
}

DeviceDriver::Entered::Entered(const DeviceDriver& driver, DeviceStream stream)
    : driver_(driver), stream_(stream), outer_(entered) {
  if (outer_ != nullptr && &outer_->driver_ == &driver && outer_->stream_ == stream) return;
  Gpu* gpu = nullptr;
  if (driver_.find_gpu(stream, &gpu) != 0) return;
  // Most programs have the context current already.
  cuda::Context context = nullptr;
  driver_.api_.CtxGetCurrent(&context);
  pushed_ = context != gpu->context;
  if (pushed_ && driver_.api_.CtxPushCurrent(gpu->context) != 0) return;
  gpu_ = gpu;
  entered = this;
}

DeviceDriver::Entered::~Entered() {
  if (gpu_ == nullptr) return;
  entered = outer_;
  cuda::Context context = nullptr;
  if (pushed_) driver_.api_.CtxPopCurrent(&context);
}

bool DeviceDriver::has_entered(cuda::Context context) const {
  return entered != nullptr && &entered->driver_ == this && entered->gpu_->context == context;
}

// The device of a stream, by its context. A default stream is that of the thread's current context.
DeviceStatus DeviceDriver::find_gpu(DeviceStream stream, Gpu** gpu) const {
  if (entered != nullptr && &entered->driver_ == this && entered->stream_ == stream) return *gpu = entered->gpu_, 0;
  cuda::Context context = nullptr;
  const DeviceStatus status = is_default(stream) ? api_.CtxGetCurrent(&context) : api_.StreamGetCtx(stream, &context);
  if (status != 0) return status;
  if (context == nullptr) return find_gpu(0, gpu);  // as CUDA's runtime has it
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [device, known] : gpus_) {
      if (known.context == context) return *gpu = &known, 0;
    }
  }
  int device = 0;
  if (const DeviceStatus failed = within(context, [&] { return api_.CtxGetDevice(&device); })) return failed;
  if (const DeviceStatus failed = find_gpu(device, gpu)) return failed;
  return (*gpu)->context == context ? 0 : cuda::kInvalidContext;
}

// --- devices

DeviceStatus DeviceDriver::facts(int device, DeviceFacts* facts) const {
  char name[kLongestName] = {};
  *facts = {};
  if (const DeviceStatus status = api_.DeviceGetName(name, kLongestName - 1, device)) return status;
  if (const DeviceStatus status = api_.DeviceGetUuid(&facts->uuid, device)) return status;
  size_t bytes = 0;
  if (const DeviceStatus status = api_.DeviceTotalMem(&bytes, device)) return status;
  facts->name = name;
  facts->memory_bytes = bytes;
  facts->major = attribute(device, cuda::kComputeCapabilityMajor);
  facts->minor = attribute(device, cuda::kComputeCapabilityMinor);
  facts->driver = version_;
  facts->launches_wait = driver_setting("CUDA_LAUNCH_BLOCKING", 0) != 0;
  facts->queues = driver_setting("CUDA_DEVICE_MAX_CONNECTIONS", kQueues);
  facts->serves_processes = attribute(device, cuda::kMpsEnabled) != 0;
  facts->shares_memory = attribute(device, cuda::kHandleTypePosixFileDescriptor) != 0;
  return 0;
}

DeviceStatus DeviceDriver::current(int* device) const {
  *device = 0;
  const DeviceStatus status = api_.CtxGetDevice(device);
  return status == cuda::kInvalidContext ? 0 : status;
}

DeviceStatus DeviceDriver::use(int device) const {
  Gpu* gpu = nullptr;
  const DeviceStatus status = find_gpu(device, &gpu);
  return status != 0 ? status : api_.CtxSetCurrent(gpu->context);
}

// FuncLoad at once: with lazy loading the driver would load a kernel at its first launch, and may wait for streams
// then.
DeviceStatus DeviceDriver::load(Gpu& gpu) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gpu.loaded) return 0;
  const DeviceStatus status = relaxed([&] {
    // The image of a build without nvcc is one that drivers refuse.
    cuda::Module module = nullptr;
    DeviceStatus failed = api_.ModuleLoadData(&module, gpu_code().image);
    const auto find = [&](const std::string& name, cuda::Function& function) {
      if (failed == 0) failed = api_.ModuleGetFunction(&function, module, name.c_str());
      if (failed == 0) failed = api_.FuncLoad(function);
    };
    for (int dtype = 0; dtype < kDTypes; ++dtype) {
      find(fmt::format("rondo_call_{}", kernel_of(dtype)), gpu.calls[dtype]);
    }
    return failed;
  });
  gpu.loaded = status == 0;
  return status;
}

void DeviceDriver::load_kernels(int device) const {
  const DeviceStatus status = on(device, [&](Gpu& gpu) { return load(gpu); });
  if (status != 0 && gpu_code().bytes == 0) {
    refuse("this build has no code for GPUs: it was made where there was no nvcc 12.8 or newer");
  }
  check(status, "loading kernels");
}

// --- memory; device_memory.cc has what other processes map

DeviceStatus DeviceDriver::allocate(int device, size_t bytes, void** memory) const {
  return on(device, [&](Gpu&) {
    cuda::Pointer address = 0;
    const DeviceStatus status = api_.MemAlloc(&address, bytes);
    *memory = reinterpret_cast<void*>(address);
    return status;
  });
}

DeviceStatus DeviceDriver::release(int device, void* memory) const {
  return on(device, [&](Gpu&) { return api_.MemFree(at(memory)); });
}

// Ranks that are threads of one process lock the same memory, and the driver counts no locks.
DeviceStatus DeviceDriver::lock_host(int device, void* memory, size_t bytes) const {
  return on(device, [&](Gpu&) {
    const std::lock_guard<std::mutex> lock(locked_mutex_);
    const auto found = locked_.find(memory);
    if (found != locked_.end()) return ++found->second.times, 0;
    const DeviceStatus status = api_.MemHostRegister(memory, bytes, cuda::kRegisterPortable | cuda::kRegisterDeviceMap);
    if (status == 0) locked_[memory] = {device, 1};
    return status;
  });
}

DeviceStatus DeviceDriver::unlock_host(void* memory) const {
  int device = 0;
  {
    const std::lock_guard<std::mutex> lock(locked_mutex_);
    const auto found = locked_.find(memory);
    if (found == locked_.end()) return cuda::kHostMemoryNotRegistered;
    if (--found->second.times > 0) return 0;
    device = found->second.device;
    locked_.erase(found);
  }
  return on(device, [&](Gpu&) { return api_.MemHostUnregister(memory); });
}

DeviceStatus DeviceDriver::kernel_address(int device, void* memory, void** address) const {
  return on(device, [&](Gpu&) {
    cuda::Pointer found = 0;
    const DeviceStatus status = api_.MemHostGetDevicePointer(&found, memory, 0);
    *address = reinterpret_cast<void*>(found);
    return status;
  });
}

DeviceStatus DeviceDriver::pointer_facts(int device, const void* pointer, PointerFacts* facts) const {
  Gpu* gpu = nullptr;
  if (const DeviceStatus status = find_gpu(device, &gpu)) return status;
  return within(gpu->context, [&] {
    int type = 0, managed = 0, home = -1;
    cuda::PointerAttribute asked[] = {cuda::kMemoryType, cuda::kIsManaged, cuda::kDeviceOrdinal};
    void* found[] = {&type, &managed, &home};
    const DeviceStatus status = api_.PointerGetAttributes(3, asked, found, at(pointer));
    const bool is_device = type == cuda::kMemoryDevice;
    facts->kind = managed != 0 ? MemoryKind::kManaged : is_device ? MemoryKind::kDevice : MemoryKind::kHost;
    facts->device = facts->kind == MemoryKind::kHost ? -1 : home;
    return status;
  });
}

// --- streams and events

DeviceStatus DeviceDriver::make_stream(int device, DeviceStream* stream) const {
  return on(device, [&](Gpu&) { return api_.StreamCreate(stream, cuda::kStreamNonBlocking); });
}

DeviceStatus DeviceDriver::destroy_stream(DeviceStream stream) const {
  return in(stream, [&](Gpu&) { return api_.StreamDestroy(stream); });
}

DeviceStatus DeviceDriver::synchronize(DeviceStream stream) const {
  return in(stream, [&](Gpu&) { return api_.StreamSynchronize(stream); });
}

DeviceStatus DeviceDriver::broken(DeviceStream stream) const {
  return in(stream, [&](Gpu&) {
    const DeviceStatus status = api_.StreamQuery(stream);
    return status == cuda::kNotReady ? 0 : status;
  });
}

DeviceStatus DeviceDriver::stream_facts(DeviceStream stream, StreamFacts* facts) const {
  return put(stream, [&](Gpu& gpu) {
    int capturing = 0;
    uint64_t capture = 0;
    unsigned long long id = 0;
    cuda::Graph graph = nullptr;
    DeviceStatus status = api_.StreamGetCaptureInfo(stream, &capturing, &capture, &graph, nullptr, nullptr, nullptr);
    // The legacy stream may not be asked while another stream of the thread is captured.
    const bool captured = capturing != 0 || status == cuda::kCaptureImplicit;
    if (!captured && status == 0) status = api_.StreamGetId(stream, &id);
    // While a stream is captured, the capture stands for it: what is recorded runs when the graph does, in whatever
    // stream.
    *facts = {gpu.device, captured, captured ? capture : id, captured ? graph : nullptr};
    return captured ? 0 : status;
  });
}

DeviceStatus DeviceDriver::make_event(int device, DeviceEvent* event, Timed timed) const {
  return on(device,
            [&](Gpu&) { return api_.EventCreate(event, timed == Timed::kYes ? 0 : cuda::kEventDisableTiming); });
}

DeviceStatus DeviceDriver::elapsed(int device, DeviceEvent first, DeviceEvent second, double* seconds) const {
  return on(device, [&](Gpu&) {
    float milliseconds = 0;
    const DeviceStatus status = api_.EventElapsedTime(&milliseconds, first, second);
    *seconds = double{milliseconds} / 1e3;
    return status;
  });
}

DeviceStatus DeviceDriver::destroy_event(int device, DeviceEvent event) const {
  return on(device, [&](Gpu&) { return api_.EventDestroy(event); });
}

DeviceStatus DeviceDriver::record(DeviceEvent event, DeviceStream stream) const {
  return put(stream, [&](Gpu&) { return api_.EventRecord(event, stream); });
}

DeviceStatus DeviceDriver::wait(DeviceStream stream, DeviceEvent event) const {
  return put(stream, [&](Gpu&) { return api_.StreamWaitEvent(stream, event, 0); });
}

// --- in the stream

// Copies of two dimensions have a largest pitch, of 2 GiB: blocks beyond it go one by one.
DeviceStatus DeviceDriver::copy(const DeviceCopy& copy, DeviceStream stream) const {
  return put(stream, [&](Gpu& gpu) {
    if (copy.rows == 1 || (copy.to_pitch == copy.row_bytes && copy.from_pitch == copy.row_bytes)) {
      return api_.MemcpyAsync(at(copy.to), at(copy.from), copy.row_bytes * copy.rows, stream);
    }
    if (std::max(copy.to_pitch, copy.from_pitch) > static_cast<uint64_t>(gpu.max_pitch)) {
      DeviceStatus status = 0;
      for (uint64_t row = 0; row < copy.rows && status == 0; ++row) {
        status = api_.MemcpyAsync(at(copy.to) + row * copy.to_pitch, at(copy.from) + row * copy.from_pitch,
                                  copy.row_bytes, stream);
      }
      return status;
    }
    const auto side = [](const void* memory, uint64_t pitch) {
      return cuda::Copy2DSide{0, 0, cuda::kMemoryUnified, nullptr, at(memory), nullptr, pitch};
    };
    const cuda::Copy2D rows{side(copy.from, copy.from_pitch), side(copy.to, copy.to_pitch), copy.row_bytes, copy.rows};
    return api_.Memcpy2DAsync(&rows, stream);
  });
}

// A call of one pass without other ranks: the same kernels serve.
DeviceStatus DeviceDriver::put_fold(const DeviceFold& fold, const uint64_t* length, uint32_t most_blocks,
                                    DeviceStream stream) const {
  const uint32_t refs = uint32_t{fold.source_count} + fold.target_count;
  if (fold.count == 0) return 0;
  if (refs > kMaxCallRefs) return cuda::kInvalidValue;
  DeviceCall call = {};
  call.length = length;
  call.arguments = fold.arguments;
  call.dtype = fold.dtype;
  call.step_count = 1;
  call.steps[0].kind = CallStep::kPass;
  call.passes[0] = {fold.count, fold.scaled, 0, fold.source_count, fold.target_count, fold.fold};
  for (uint32_t i = 0; i < refs; ++i) {
    const void* const at = i < fold.source_count ? fold.sources[i] : fold.targets[i - fold.source_count];
    call.refs[i].offset = reinterpret_cast<uintptr_t>(at);
  }
  return put(stream, [&](Gpu& gpu) {
    // The blocks wanted if all pointers are aligned.
    const uint64_t wanted =
        (fold.count * dtype_bytes(DType(fold.dtype)) / kPacketBytes + kThreadsABlock) / kThreadsABlock;
    return launch(gpu, call, static_cast<uint32_t>(std::min<uint64_t>({wanted, gpu.blocks(), most_blocks})), stream);
  });
}

DeviceStatus DeviceDriver::fold(const DeviceFold& fold, DeviceStream stream) const {
  return put_fold(fold, nullptr, UINT32_MAX, stream);
}

DeviceStatus DeviceDriver::copy_in(void* to, const void* from, uint64_t bytes, const uint64_t* length,
                                   DeviceStream stream) const {
  DeviceFold copy = {};
  copy.sources[0] = from;
  copy.targets[0] = to;
  copy.count = bytes;
  copy.source_count = copy.target_count = 1;
  copy.dtype = static_cast<uint8_t>(DType::kUint8);
  copy.fold = kCopies;
  return put_fold(copy, length, kCopyBlocks, stream);
}

DeviceStatus DeviceDriver::call(const DeviceCall& call, uint32_t lanes, DeviceStream stream) const {
  return put(stream, [&](Gpu& gpu) { return launch(gpu, call, lanes, stream); });
}

// The driver copies the parameters, so `call` may end when this returns.
DeviceStatus DeviceDriver::launch(Gpu& gpu, DeviceCall call, uint32_t lanes, DeviceStream stream) const {
  if (const DeviceStatus status = load(gpu)) return status;
  void* parameters[] = {&call};
  return api_.LaunchKernel(gpu.calls[call.dtype], std::max(lanes, 1u), 1, 1, kThreadsABlock, 1, 1, 0, stream,
                           parameters, nullptr);
}

// Half of what is left, so that a communicator that comes later finds some, too.
uint32_t DeviceDriver::take_blocks(int device, uint32_t most, uint32_t ranks) const {
  Gpu* gpu = nullptr;
  if (find_gpu(device, &gpu) != 0) return 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t fair = std::max(1u, gpu->blocks() / 2 / ranks);
  const uint32_t taken = std::min({most, fair, (gpu->blocks() - gpu->taken) / 2});
  gpu->taken += taken;
  return taken;
}

void DeviceDriver::give_blocks(int device, uint32_t blocks) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  gpus_.at(device).taken -= blocks;
}

int DeviceDriver::rank_in_stream(uint64_t communicator, uint64_t stream, int rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto used = last_streams_.lower_bound({communicator, INT_MIN});
       used != last_streams_.end() && used->first.first == communicator; ++used) {
    if (used->second == stream && used->first.second != rank) return used->first.second;
  }
  last_streams_[{communicator, rank}] = stream;
  return rank;
}

void DeviceDriver::leave_streams(uint64_t communicator, int rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_streams_.erase({communicator, rank});
}

DeviceStatus DeviceDriver::call_host(cuda::HostFunction function, void* argument, DeviceStream stream) const {
  return put(stream, [&](Gpu&) { return api_.LaunchHostFunc(stream, function, argument); });
}

// The device's front end waits, and no kernel: a waiting stream takes no multiprocessor.
DeviceStatus DeviceDriver::await(uint32_t* word, uint32_t value, DeviceStream stream) const {
  return put(stream, [&](Gpu&) {
    cuda::MemoryOperation entry = {};
    entry.operation = cuda::kWaitValue32;
    entry.value = value;
    entry.flags = cuda::kWaitGreaterOrEqual;
    const DeviceStatus status = api_.MemHostGetDevicePointer(&entry.address, word, 0);
    return status != 0 ? status : api_.StreamBatchMemOp(stream, 1, &entry, 0);
  });
}

// --- graphs

struct DeviceDriver::InGraph {
  const DeviceDriver& driver;  // which stays in the process
  std::shared_ptr<const void> kept;
};

DeviceStatus DeviceDriver::keep_in_graph(cuda::Graph graph, std::shared_ptr<const void> kept) const {
  free_ended();
  auto in_graph = std::make_unique<InGraph>(InGraph{*this, std::move(kept)});
  cuda::UserObject object = nullptr;
  const auto ended = [](void* of) {
    const std::unique_ptr<InGraph> gone(static_cast<InGraph*>(of));
    const std::lock_guard<std::mutex> lock(gone->driver.ended_mutex_);
    gone->driver.ended_.push_back(std::move(gone->kept));
  };
  if (const DeviceStatus status = api_.UserObjectCreate(&object, in_graph.get(), ended, 1, cuda::kNoDestructorSync)) {
    return status;
  }
  static_cast<void>(in_graph.release());
  const DeviceStatus status = api_.GraphRetainUserObject(graph, object, 1, cuda::kGraphMove);
  if (status != 0) api_.UserObjectRelease(object, 1);
  return status;
}

// What ends here may call the driver, which must not happen under the lock: CUDA's own thread takes it. `ended` was
// made before the lock, so it ends after it.
void DeviceDriver::free_ended() const {
  std::vector<std::shared_ptr<const void>> ended;
  const std::lock_guard<std::mutex> lock(ended_mutex_);
  ended.swap(ended_);
}

}  // namespace rondo
