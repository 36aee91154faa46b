// The table of kernels/device.h over CUDA's runtime.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>

#include "kernels/device.h"
#include "kernels/device/gpu_launch.h"

namespace rondo {
namespace {

constexpr int kWaitVersion = 11070;  // of the driver's stream waits that need no setting of the kernel module

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

// The driver's entry point, without linking against it; nullptr where it is older.
template <class Function>
Function entry_point(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &function, kWaitVersion, cudaEnableDefault, &result);
  return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(function)
                                                                        : nullptr;
}

using WaitValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
WaitValue wait_value() {
  static const WaitValue function = entry_point<WaitValue>("cuStreamWaitValue32");
  return function;
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
  facts->waits_on_words = wait_value() != nullptr ? 1 : 0;
  return cudaSuccess;
}

DeviceStatus current(int* device) { return cudaGetDevice(device); }
DeviceStatus use(int device) { return cudaSetDevice(device); }

DeviceStatus allocate(size_t bytes, void** memory) { return cudaMalloc(memory, bytes); }
DeviceStatus release(void* memory) { return cudaFree(memory); }
DeviceStatus lock_host(void* memory, size_t bytes) {
  return cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
}
DeviceStatus unlock_host(void* memory) { return cudaHostUnregister(memory); }

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
  return gpu_fold(*fold, stream);
}

DeviceStatus call_host(HostFunction function, void* argument, DeviceStream stream) {
  return cudaLaunchHostFunc(of(stream), function, argument);
}

DeviceStatus wait_for_word(const uint32_t* word, uint32_t value, DeviceStream stream) {
  const WaitValue wait = wait_value();
  if (wait == nullptr) return cudaErrorNotSupported;
  void* mapped = nullptr;
  if (const cudaError_t status = cudaHostGetDevicePointer(&mapped, const_cast<uint32_t*>(word), 0)) return status;
  const CUresult result =
      wait(static_cast<CUstream>(of(stream)), reinterpret_cast<CUdeviceptr>(mapped), value, CU_STREAM_WAIT_VALUE_GEQ);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

constexpr DeviceTable kTable = {
    .version = kDeviceTableVersion,
    .bytes = sizeof(DeviceTable),
    .error_text = error_text,
    .count = count,
    .facts = facts,
    .current = current,
    .use = use,
    .allocate = allocate,
    .release = release,
    .lock_host = lock_host,
    .unlock_host = unlock_host,
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
    .call_host = call_host,
    .wait_for_word = wait_for_word,
};

}  // namespace
}  // namespace rondo

extern "C" __attribute__((visibility("default"))) const rondo::DeviceTable* rondo_device_table(uint32_t version) {
  return version == rondo::kDeviceTableVersion ? &rondo::kTable : nullptr;
}
