// Functions of the fake driver: devices and contexts.
#include <cstdio>

#include "tests/support/fake_cuda/functions.h"

namespace rondo::testing::functions {

void Init(unsigned flags) {
  require(flags == 0);
  fake().started = true;
  require(is_device(0), kNoDevice);
}
void DriverGetVersion(int* version) { *version = setting("FAKE_CUDA_VERSION", 13000); }
void GetErrorString(Result result, const char** text) {
  static const std::map<Result, const char*> kTexts = {{kInvalidValue, "invalid argument"},
                                                       {kOutOfMemory, "out of memory"},
                                                       {kIllegalAddress, "an illegal memory access was encountered"}};
  const auto found = kTexts.find(result);
  *text = found == kTexts.end() ? nullptr : found->second;
  require(*text != nullptr);
}

// --- devices and contexts
void DeviceGetCount(int* count) { *count = setting("FAKE_CUDA_COUNT", 2); }
void DeviceGetName(char* name, int bytes, Device device) {
  require(is_device(device), kInvalidDevice);
  std::snprintf(name, static_cast<size_t>(bytes), "fake device (no GPU)");
}
void DeviceGetUuid(Uuid* uuid, Device device) {
  require(is_device(device), kInvalidDevice);
  *uuid = {{static_cast<uint8_t>(device + 1)}};
}
void DeviceTotalMem(size_t* bytes, Device device) {
  require(is_device(device), kInvalidDevice);
  *bytes = size_t{1} << 30;
}
void DeviceGetAttribute(int* value, Attribute attribute, Device device) {
  require(is_device(device), kInvalidDevice);
  const std::map<Attribute, int> kValues = {{kMaxPitch, setting("FAKE_CUDA_MAX_PITCH", 0x7fffffff)},
                                            {kMultiprocessorCount, setting("FAKE_CUDA_MULTIPROCESSORS", 8)},
                                            {kMpsEnabled, setting("FAKE_CUDA_MPS", 1)},
                                            {kComputeCapabilityMajor, setting("FAKE_CUDA_MAJOR", 9)},
                                            {kComputeCapabilityMinor, 0},
                                            {kHandleTypePosixFileDescriptor, setting("FAKE_CUDA_SHARES", 1)}};
  const auto found = kValues.find(attribute);
  require(found != kValues.end());
  *value = found->second;
}
void DevicePrimaryCtxRetain(Context* context, Device device) {
  require(is_device(device), kInvalidDevice);
  const std::lock_guard lock(fake().mutex);
  FakeContext& found = fake().contexts[device];
  found.device = device;
  if (found.legacy == nullptr) found.legacy = fake().make_stream(&found, true);
  *context = reinterpret_cast<Context>(&found);
}
void CtxPushCurrent(Context context) { here().current.push_back(of(context)); }
void CtxPopCurrent(Context* context) {
  auto& current = here().current;
  require(!current.empty(), kInvalidContext);
  *context = reinterpret_cast<Context>(current.back());
  current.pop_back();
}
void CtxSetCurrent(Context context) {
  auto& current = here().current;
  if (current.empty()) current.push_back(nullptr);
  current.back() = of(context);
}
void CtxGetCurrent(Context* context) {
  auto& current = here().current;
  *context = current.empty() ? nullptr : reinterpret_cast<Context>(current.back());
}
void CtxGetDevice(Device* device) { *device = current_context().device; }
void ThreadExchangeStreamCaptureMode(CaptureMode* mode) { std::swap(*mode, here().capture_mode); }

}  // namespace rondo::testing::functions
