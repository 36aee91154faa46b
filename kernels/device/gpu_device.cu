// The table of kernels/device.h over CUDA's runtime.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <mutex>

#include "kernels/device.h"
#include "kernels/device/gpu_driver.h"
#include "kernels/device/gpu_launch.h"
#include "kernels/device/gpu_shared.h"

namespace rondo {
namespace {

// Puts the thread's current device back.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    if (cudaGetDevice(&before_) == cudaSuccess && before_ != device) changed_ = cudaSetDevice(device) == cudaSuccess;
  }
  ~OnDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Calls that a capture of this thread would refuse or break.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

cudaStream_t of(DeviceStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t of_event(DeviceEvent event) { return static_cast<cudaEvent_t>(event); }

const char* error_text(DeviceStatus status) { return cudaGetErrorString(static_cast<cudaError_t>(status)); }

DeviceStatus count(int* devices) {
  *devices = 0;
  const cudaError_t status = cudaGetDeviceCount(devices);
  return status == cudaErrorNoDevice ? cudaSuccess : status;
}

DeviceStatus facts(int device, DeviceFacts* facts) {
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, device)) return status;
  *facts = {};
  std::memcpy(facts->name, properties.name, sizeof(facts->name) - 1);  // 256 bytes, cut
  std::memcpy(facts->uuid, &properties.uuid, sizeof(facts->uuid));
  facts->major = properties.major;
  facts->minor = properties.minor;
  facts->memory_bytes = properties.totalGlobalMem;
  cudaDriverGetVersion(&facts->driver);
  facts->waits_on_words = gpu_driver().batch_memory != nullptr ? 1 : 0;
  facts->shares_memory = gpu_shares_memory(device);
  return cudaSuccess;
}

DeviceStatus current(int* device) { return cudaGetDevice(device); }
DeviceStatus use(int device) { return cudaSetDevice(device); }
DeviceStatus load_kernels(int device) {
  const OnDevice on(device);
  if (const cudaError_t status = cudaFree(nullptr)) return status;  // makes the context, if there is none
  return gpu_load_folds();
}

DeviceStatus allocate(size_t bytes, void** memory) { return cudaMalloc(memory, bytes); }
DeviceStatus release(void* memory) { return cudaFree(memory); }

// --- host memory

std::mutex locked_mutex;
// How often it is locked, by address.
std::map<void*, int>& locked() {
  static auto* const all = new std::map<void*, int>;
  return *all;
}

DeviceStatus lock_host(void* memory, size_t bytes) {
  const std::lock_guard<std::mutex> lock(locked_mutex);
  if (const auto found = locked().find(memory); found != locked().end()) {
    ++found->second;
    return cudaSuccess;
  }
  const cudaError_t status = cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (status == cudaSuccess) locked()[memory] = 1;
  return status;
}
DeviceStatus unlock_host(void* memory) {
  const std::lock_guard<std::mutex> lock(locked_mutex);
  const auto found = locked().find(memory);
  if (found == locked().end()) return cudaErrorHostMemoryNotRegistered;
  if (--found->second > 0) return cudaSuccess;
  locked().erase(found);
  return cudaHostUnregister(memory);
}
DeviceStatus kernel_address(void* memory, void** address) { return cudaHostGetDevicePointer(address, memory, 0); }

DeviceStatus pointer_facts(const void* pointer, PointerFacts* facts) {
  const RelaxedCapture relaxed;
  cudaPointerAttributes attributes;
  if (const cudaError_t status = cudaPointerGetAttributes(&attributes, pointer)) return status;
  const bool device = attributes.type == cudaMemoryTypeDevice, managed = attributes.type == cudaMemoryTypeManaged;
  facts->kind = device ? MemoryKind::kDevice : managed ? MemoryKind::kManaged : MemoryKind::kHost;
  facts->device = device || managed ? attributes.device : -1;
  return cudaSuccess;
}

DeviceStatus make_stream(DeviceStream* stream) {
  return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), cudaStreamNonBlocking);
}
DeviceStatus destroy_stream(DeviceStream stream) { return cudaStreamDestroy(of(stream)); }
DeviceStatus synchronize(DeviceStream stream) { return cudaStreamSynchronize(of(stream)); }

DeviceStatus stream_facts(DeviceStream stream, StreamFacts* facts) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t status = cudaStreamIsCapturing(of(stream), &capture);
  // The legacy stream may not be asked while another stream of the thread is captured.
  facts->capturing = capture != cudaStreamCaptureStatusNone || status == cudaErrorStreamCaptureImplicit ? 1 : 0;
  facts->device = -1;
  if (facts->capturing == 1) return cudaSuccess;
  if (status != cudaSuccess) return status;
  return cudaStreamGetDevice(of(stream), &facts->device);
}

DeviceStatus make_event(int device, DeviceEvent* event) {
  const OnDevice on(device);
  return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming);
}
DeviceStatus destroy_event(DeviceEvent event) { return cudaEventDestroy(of_event(event)); }
DeviceStatus record(DeviceEvent event, DeviceStream stream) { return cudaEventRecord(of_event(event), of(stream)); }
DeviceStatus wait(DeviceStream stream, DeviceEvent event) {
  return cudaStreamWaitEvent(of(stream), of_event(event), 0);
}
DeviceStatus synchronize_event(DeviceEvent event) {
  const RelaxedCapture relaxed;
  return cudaEventSynchronize(of_event(event));
}

DeviceStatus copy(const DeviceCopy* copy, DeviceStream stream) {
  if (copy->rows == 1 || (copy->to_pitch == copy->row_bytes && copy->from_pitch == copy->row_bytes)) {
    return cudaMemcpyAsync(copy->to, copy->from, copy->row_bytes * copy->rows, cudaMemcpyDefault, of(stream));
  }
  return cudaMemcpy2DAsync(copy->to, copy->to_pitch, copy->from, copy->from_pitch, copy->row_bytes, copy->rows,
                           cudaMemcpyDefault, of(stream));
}

DeviceStatus fold(const DeviceFold* fold, DeviceStream stream) {
  StreamFacts where;
  if (const DeviceStatus status = stream_facts(stream, &where)) return status;
  const OnDevice on(where.device);
  return gpu_fold(*fold, PeerPlaces{}, stream);
}
DeviceStatus fold_at(const DeviceFold* fold, const PeerPlaces* places, DeviceStream stream) {
  StreamFacts where;
  if (const DeviceStatus status = stream_facts(stream, &where)) return status;
  const OnDevice on(where.device);
  return gpu_fold(*fold, *places, stream);
}

DeviceStatus call_host(HostFunction function, void* argument, DeviceStream stream) {
  return cudaLaunchHostFunc(of(stream), function, argument);
}

DeviceStatus words(const WordOp* ops, int count, DeviceStream stream) {
  if (gpu_driver().batch_memory == nullptr) return cudaErrorNotSupported;
  if (count < 1 || count > kMaxWordOps) return cudaErrorInvalidValue;
  CUstreamBatchMemOpParams entries[kMaxWordOps] = {};
  for (int i = 0; i < count; ++i) {
    void* address = nullptr;
    if (const cudaError_t status = cudaHostGetDevicePointer(&address, ops[i].word, 0)) return status;
    if (ops[i].action == WordAction::kWrite) {
      entries[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      entries[i].writeValue.address = reinterpret_cast<CUdeviceptr>(address);
      entries[i].writeValue.value = ops[i].value;
    } else {
      entries[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      entries[i].waitValue.address = reinterpret_cast<CUdeviceptr>(address);
      entries[i].waitValue.value = ops[i].value;
      entries[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    }
  }
  return of_driver(
      gpu_driver().batch_memory(static_cast<CUstream>(of(stream)), static_cast<unsigned>(count), entries, 0));
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
    .allocate_shared = gpu_allocate_shared,
    .map_shared = gpu_map_shared,
    .release_shared = gpu_release_shared,
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
}  // namespace rondo

extern "C" __attribute__((visibility("default"))) const rondo::DeviceTable* rondo_device_table(uint32_t version) {
  return version == rondo::kDeviceTableVersion ? &rondo::kTable : nullptr;
}
