// CUDA as torch's own code asks for it, of streams and events, over the functions of the driver in
// RONDO_DEVICE_LIBRARY; so that a build of torch without CUDA, or without a GPU, has tensors on memory of that driver.
// No kernels: tensors are made of addresses, and calls of the backend move what is there. Device 0, one thread at a
// time.
#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

namespace {

template <class... Arguments>
int result_of(const char* name, Arguments... arguments) {
  using Find = int (*)(const char*, void**, int, uint64_t, int*);
  static void* const library = dlopen(std::getenv("RONDO_DEVICE_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  void* function = nullptr;
  int found = 0;
  reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"))(name, &function, 13000, 0, &found);
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}
template <class... Arguments>
void call(const char* name, Arguments... arguments) {
  TORCH_CHECK(result_of(name, arguments...) == 0, name, " failed");
}

const c10::Device kDevice(c10::kCUDA, 0);
std::map<c10::StreamId, void*> streams{{0, nullptr}};  // 0: the legacy one
c10::Stream current(c10::Stream::UNSAFE, kDevice, 0);
std::map<void*, void*> recorded;  // by event: its stream
int64_t kept = 0;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return current; }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    void* made = nullptr;
    call("cuStreamCreate", &made, 1u);
    const auto id = static_cast<c10::StreamId>(streams.size());
    streams[id] = made;
    return c10::Stream(c10::Stream::UNSAFE, kDevice, id);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return std::exchange(current, stream); }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return streams.at(stream.id()); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) call("cuEventCreate", event, 2u);
    call("cuEventRecord", *event, recorded[*event] = streams.at(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    call("cuStreamWaitEvent", streams.at(stream.id()), event, 0u);
  }
  // Once the stream has done all that it has, later than need be.
  bool queryEvent(void* event) const override { return result_of("cuStreamQuery", recorded.at(event)) == 0; }
  void synchronizeStream(const c10::Stream& stream) const override {
    call("cuStreamSynchronize", streams.at(stream.id()));
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);

void move(uint64_t to, uint64_t from, size_t bytes) {
  call("cuMemcpyAsync", to, from, bytes, streams.at(current.id()));
}
uint64_t address(const at::Tensor& tensor) { return reinterpret_cast<uint64_t>(tensor.data_ptr()); }

// They stay until the process ends: copies may be under way.
at::Tensor locked(const at::Tensor& host) {
  static std::vector<at::Tensor> all;
  call("cuMemHostRegister", host.data_ptr(), host.nbytes(), 3u);
  return all.emplace_back(host);
}

void begin() {
  void* context = nullptr;
  call("cuInit", 0u);
  call("cuDevicePrimaryCtxRetain", &context, 0);
  call("cuCtxSetCurrent", context);
  current = Guard().getStreamFromGlobalPool(kDevice, false);
}
at::Tensor to_device(const at::Tensor& values) {
  const at::Tensor host = locked(values.contiguous().clone());
  uint64_t device = 0;
  call("cuMemAlloc", &device, host.nbytes());
  move(device, address(host), host.nbytes());
  return at::for_blob(reinterpret_cast<void*>(device), host.sizes())
      .options(host.options().device(kDevice))
      .target_device(kDevice)
      .make_tensor();
}
// When the current stream has done what is in it.
at::Tensor to_host(const at::Tensor& tensor) {
  const at::Tensor host = locked(at::empty(tensor.sizes(), tensor.options().device(at::kCPU)));
  move(address(host), address(tensor), host.nbytes());
  Guard().synchronizeStream(current);
  return host;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("record_stream", [](at::Tensor&, c10::Stream) { ++kept; });
}
TORCH_LIBRARY(fake_guard, library) {
  library.def("begin", &begin);
  library.def("to_device", &to_device);
  library.def("to_host", &to_host);
  library.def("kept", [] { return kept; });
}
