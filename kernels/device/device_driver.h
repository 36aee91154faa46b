#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/device_call.h"
#include "kernels/device/driver_api.h"

namespace rondo {

using DeviceStatus = cuda::Result;  // 0, or an error of the driver
using DeviceStream = cuda::Stream;  // of the caller, or from make_stream()
using DeviceEvent = cuda::Event;

struct DeviceFacts {
  std::string name;
  cuda::Uuid uuid;
  int major, minor;       // compute capability
  int driver;             // 13000: of CUDA 13.0
  bool serves_processes;  // kernels of several processes run on it at once (MPS)
  bool shares_memory;     // by descriptors: allocate_shared() and map_shared() may work
  uint64_t memory_bytes;
  bool launches_wait;  // until their kernels have ended: CUDA_LAUNCH_BLOCKING
  int queues;          // that the streams of this process share: CUDA_DEVICE_MAX_CONNECTIONS
};

enum class MemoryKind : int32_t {
  kHost = 0,    // host memory, page-locked or not
  kDevice = 1,  // memory of one device
  kManaged = 2  // moves between host and devices
};
struct PointerFacts {
  MemoryKind kind;
  int device;  // -1: none
};
struct StreamFacts {
  int device;
  bool capturing;     // what is put into it is recorded for a graph, and not run
  uint64_t id;        // of the stream, or of the capture: never used again in the process, as handles are
  cuda::Graph graph;  // that is being captured; nullptr: there is none, or not in this stream
};

// What copies of blocks move: `rows` rows of `row_bytes`, whose starts lie `to_pitch` and `from_pitch` bytes apart.
struct DeviceCopy {
  void* to;
  const void* from;
  uint64_t to_pitch, from_pitch;
  uint64_t row_bytes, rows;
};

// NVIDIA's driver, opened; it stays in the process. Calls go to the primary context of a device, which is made at its
// first use and shared with CUDA's runtime, so that torch's memory and streams are the same; a stream of another
// context is refused. The calling thread's current context and what it captures for graphs are left as they are. Any
// thread. "In the stream": returns at once, or when the driver has room for it; done when what was put into the stream
// before is done.
class DeviceDriver {
  struct Gpu;

 public:
  // file: the driver; empty: libcuda.so.1, where the loader finds it. The same object each time. Throws
  // Exception(kUnsupported): there is no driver, it is too old, or there is no device.
  static std::shared_ptr<const DeviceDriver> open(const std::string& file);
  DeviceDriver(const DeviceDriver&) = delete;

  std::string error_text(DeviceStatus status) const;
  // Throws Exception(kSystem) that names `what`, unless it succeeded.
  void check(DeviceStatus status, const char* what) const;

  // While it lives, what this thread does in the stream, and for its device, finds the context current: what is put
  // into the stream costs one function of the driver instead of three or four. On its thread's stack; the innermost
  // counts. It does nothing where the thread has entered the stream before, or where it is none.
  class Entered {
   public:
    Entered(const DeviceDriver& driver, DeviceStream stream);
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    friend class DeviceDriver;
    const DeviceDriver& driver_;
    const DeviceStream stream_;
    Gpu* gpu_ = nullptr;   // nullptr: not entered
    bool pushed_ = false;  // false: the context was current before
    Entered* const outer_;
  };

  // --- devices
  int count() const { return devices_; }
  DeviceStatus facts(int device, DeviceFacts* facts) const;
  DeviceStatus current(int* device) const;  // of this thread; 0 unless it has chosen one
  DeviceStatus use(int device) const;       // from now on it is this thread's current one
  // Before passes are put into streams beside which others wait: a kernel that is loaded at its first launch may wait
  // for all streams of the device. Cheap the second time. Throws Exception.
  void load_kernels(int device) const;

  // --- memory
  DeviceStatus allocate(int device, size_t bytes, void** memory) const;
  DeviceStatus release(int device, void* memory) const;
  DeviceStatus zero(int device, void* memory, size_t bytes) const;
  // Memory of the device that other processes can map, zeroed; `descriptor` stands for it, and is closed by the caller.
  // map_shared() maps it for the device, which may be another one, also in the process that made it. The memory lives
  // until all that have it have released it. release_shared() does not wait for streams.
  DeviceStatus allocate_shared(int device, size_t bytes, void** memory, int* descriptor) const;
  DeviceStatus map_shared(int device, int descriptor, size_t bytes, void** memory) const;
  DeviceStatus release_shared(void* memory) const;
  // Page-locks host memory, so that copies from and to it run in the stream, and kernels reach it, of all devices. It
  // may be locked several times, and is unlocked as often.
  DeviceStatus lock_host(int device, void* memory, size_t bytes) const;
  DeviceStatus unlock_host(void* memory) const;
  // Where kernels reach locked host memory.
  DeviceStatus kernel_address(int device, void* memory, void** address) const;
  // device: any one that is in use.
  DeviceStatus pointer_facts(int device, const void* pointer, PointerFacts* facts) const;

  // --- streams and events
  DeviceStatus make_stream(int device, DeviceStream* stream) const;  // does not wait for the legacy stream
  DeviceStatus destroy_stream(DeviceStream stream) const;
  DeviceStatus synchronize(DeviceStream stream) const;
  // An error after which its device runs nothing more for this process, functions of the host included; or 0.
  DeviceStatus broken(DeviceStream stream) const;
  DeviceStatus stream_facts(DeviceStream stream, StreamFacts* facts) const;
  enum class Timed : bool { kNo, kYes };
  // For streams of this device.
  DeviceStatus make_event(int device, DeviceEvent* event, Timed timed = Timed::kNo) const;
  // Between two events with a time, which streams have passed.
  DeviceStatus elapsed(int device, DeviceEvent first, DeviceEvent second, double* seconds) const;
  DeviceStatus destroy_event(int device, DeviceEvent event) const;
  DeviceStatus record(DeviceEvent event, DeviceStream stream) const;
  DeviceStatus wait(DeviceStream stream, DeviceEvent event) const;  // in the stream: for the event's last record()

  // --- in the stream
  DeviceStatus copy(const DeviceCopy& copy, DeviceStream stream) const;
  DeviceStatus fold(const DeviceFold& fold, DeviceStream stream) const;
  // `bytes` of locked host memory (kernel_address) to memory of the device, or as many as *length says when the stream
  // comes there.
  DeviceStatus copy_in(void* to, const void* from, uint64_t bytes, const uint64_t* length, DeviceStream stream) const;
  // A kernel of so many blocks, of those that were taken.
  DeviceStatus call(const DeviceCall& call, uint32_t lanes, DeviceStream stream) const;
  // The function must not call the driver.
  DeviceStatus call_host(cuda::HostFunction function, void* argument, DeviceStream stream) const;
  // Until the word, of locked host memory, is at least `value`, as numbers that wrap around.
  DeviceStatus await(uint32_t* word, uint32_t value, DeviceStream stream) const;

  // --- graphs
  // Shares `kept` with a graph that is being captured, its copies and what is made of them. When the last of these is
  // gone, `kept` goes at the next free_ended(), since it may need the driver, which CUDA's own thread must not call.
  DeviceStatus keep_in_graph(cuda::Graph graph, std::shared_ptr<const void> kept) const;
  // By a thread that may wait for the device. allocate_shared() and keep_in_graph() begin with it.
  void free_ended() const;

  // Kernels that wait for those of other ranks run only if the device runs all of their blocks at once. Each rank of a
  // communicator takes some as long as it lives: at most half of what is left, `most`, and its share of half the device
  // among `ranks`. 0: there are none.
  uint32_t take_blocks(int device, uint32_t most, uint32_t ranks) const;
  void give_blocks(int device, uint32_t blocks) const;
  // Kernels of two ranks of this process would wait for each other in one stream (StreamFacts::id). Another rank of the
  // communicator whose last call was in it; or this one, whose last stream it is from then on, until it leaves. What
  // others have had in it before waits for no later call.
  int rank_in_stream(uint64_t communicator, uint64_t stream, int rank) const;
  void leave_streams(uint64_t communicator, int rank) const;

 private:
  // A device that is in use.
  struct Gpu {
    int device = 0;
    cuda::Context context = nullptr;
    int multiprocessors = 0, max_pitch = 0;
    bool loaded = false;
    cuda::Function calls[kDTypes] = {};
    uint32_t taken = 0;  // take_blocks()
    uint32_t blocks() const { return static_cast<uint32_t>(multiprocessors) * kBlocksAMultiprocessor; }
  };
  struct Mapped {
    size_t bytes;
    int device;
  };
  struct Locked {
    int device;
    int times;
  };

  struct InGraph;  // what a user object of a graph holds

  explicit DeviceDriver(void* library, const std::string& file);
  DeviceStatus find_gpu(int device, Gpu** gpu) const;
  DeviceStatus find_gpu(DeviceStream stream, Gpu** gpu) const;
  DeviceStatus load(Gpu& gpu) const;
  DeviceStatus launch(Gpu& gpu, DeviceCall call, uint32_t lanes, DeviceStream stream) const;
  DeviceStatus put_fold(const DeviceFold& fold, const uint64_t* length, uint32_t most_blocks,
                        DeviceStream stream) const;
  // function(Gpu&), with the context of the device, or of the stream, as the current one. The function may wait.
  template <class Function>
  DeviceStatus on(int device, Function function) const {
    Gpu* gpu = nullptr;
    if (const DeviceStatus status = find_gpu(device, &gpu)) return status;
    return relaxed([&] { return within(gpu->context, [&] { return function(*gpu); }); });
  }
  template <class Function>
  DeviceStatus in(DeviceStream stream, Function function) const {
    return relaxed([&] { return put(stream, function); });
  }
  // in() of what only puts something into the stream, or asks for something that the driver knows: it waits for
  // nothing.
  template <class Function>
  DeviceStatus put(DeviceStream stream, Function function) const {
    Gpu* gpu = nullptr;
    if (const DeviceStatus status = find_gpu(stream, &gpu)) return status;
    return within(gpu->context, [&] { return function(*gpu); });
  }
  // Else a function of the driver that may wait would end the capture of another thread.
  template <class Function>
  DeviceStatus relaxed(Function function) const {
    cuda::CaptureMode mode = cuda::kCaptureRelaxed;
    api_.ThreadExchangeStreamCaptureMode(&mode);
    const DeviceStatus status = function();
    api_.ThreadExchangeStreamCaptureMode(&mode);
    return status;
  }
  bool has_entered(cuda::Context context) const;
  template <class Function>
  DeviceStatus within(cuda::Context context, Function function) const {
    if (has_entered(context)) return function();
    DeviceStatus status = api_.CtxPushCurrent(context);
    if (status != 0) return status;
    status = function();
    api_.CtxPopCurrent(&context);
    return status;
  }
  int attribute(int device, cuda::Attribute which) const;

  DeviceStatus round_up(int device, size_t& bytes) const;
  DeviceStatus map_allocation(cuda::Allocation allocation, size_t bytes, int device, void** memory) const;
  DeviceStatus make_exported(int device, size_t bytes, void** memory, int* descriptor) const;

  cuda::DriverApi api_ = {};
  int version_ = 0, devices_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<int, Gpu> gpus_;
  mutable std::map<void*, Mapped> mapped_;                             // by address, for release_shared()
  mutable std::map<std::pair<uint64_t, int>, uint64_t> last_streams_;  // by communicator and rank of this process
  // Guards locked_: to lock memory may wait for the device, whose kernels wait for those that another thread launches.
  mutable std::mutex locked_mutex_;
  mutable std::map<void*, Locked> locked_;
  mutable std::mutex ended_mutex_;  // no thread that has it calls the driver: CUDA's own thread takes it
  mutable std::vector<std::shared_ptr<const void>> ended_;  // of graphs that are gone
};

}  // namespace rondo
