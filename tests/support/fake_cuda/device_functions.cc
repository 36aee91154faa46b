// Functions of the fake driver: devices and contexts.
#include <cstdio>

#include "tests/support/fake_cuda/functions.h"

namespace rondo::testing::functions {

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
      {kMultiprocessorCount, setting("FAKE_CUDA_MULTIPROCESSORS", 8)},
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
  if (found.legacy == nullptr) found.legacy = fake().make_stream(&found, true);
  *context = reinterpret_cast<Context>(&found);
  return kSuccess;
}
Result CtxPushCurrent(Context context) { return here().current.push_back(of(context)), kSuccess; }
Result CtxPopCurrent(Context* context) {
  auto& current = here().current;
  if (current.empty()) return kInvalidContext;
  *context = reinterpret_cast<Context>(current.back());
  current.pop_back();
  return kSuccess;
}
Result CtxSetCurrent(Context context) {
  auto& current = here().current;
  if (current.empty()) current.push_back(nullptr);
  return current.back() = of(context), kSuccess;
}
Result CtxGetCurrent(Context* context) {
  auto& current = here().current;
  *context = current.empty() ? nullptr : reinterpret_cast<Context>(current.back());
  return kSuccess;
}
Result CtxGetDevice(Device* device) {
  auto& current = here().current;
  if (current.empty() || current.back() == nullptr) return kInvalidContext;
  return *device = current.back()->device, kSuccess;
}
Result CtxEnablePeerAccess(Context peer, unsigned flags) {
  FakeContext* const context = here().current.back();
  if (flags != 0 || of(peer) == context) return kInvalidValue;
  if (!maps(context->device, of(peer)->device)) return kPeerAccessUnsupported;
  fake().memory.enable_peer(context->device, of(peer)->device);
  return kSuccess;
}
Result ThreadExchangeStreamCaptureMode(CaptureMode* mode) { return std::swap(*mode, here().capture_mode), kSuccess; }

}  // namespace rondo::testing::functions
