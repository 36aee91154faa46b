#include "ring/engine/device/device_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "rondo/error.h"

namespace rondo {
namespace {

constexpr const char* kName = "librondo_cuda.so";

[[noreturn]] void refuse(const std::string& why) {
  throw Exception(ErrorCode::kUnsupported, "no GPU can be used: " + why);
}

// Beside the library (or the program) that this code is in.
std::string default_path() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&default_path), &here) == 0 || here.dli_fname == nullptr) return kName;
  const std::string own = here.dli_fname;
  const size_t slash = own.rfind('/');
  const std::string beside = slash == std::string::npos ? kName : own.substr(0, slash + 1) + kName;
  return access(beside.c_str(), R_OK) == 0 ? beside : kName;
}

}  // namespace

std::shared_ptr<const DeviceLibrary> DeviceLibrary::open(const std::string& path) {
  const std::string file = path.empty() ? default_path() : path;
  // NODELETE: functions of it may be under way in streams as long as the process lives.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    refuse(
        fmt::format("{}; put librondo_cuda.so beside librondo.so, or its path into RONDO_DEVICE_LIBRARY", dlerror()));
  }
  const auto function = reinterpret_cast<DeviceTableFunction>(dlsym(library, kDeviceTableSymbol));
  if (function == nullptr) refuse(fmt::format("{} has no function {}", file, kDeviceTableSymbol));
  const DeviceTable* table = function(kDeviceTableVersion);
  if (table == nullptr || table->version != kDeviceTableVersion || table->bytes != sizeof(DeviceTable)) {
    refuse(fmt::format("{} is of another version than this library; install both from one build", file));
  }
  if (table->build != device_build()) {
    refuse(fmt::format("{} is of another build ({:016x}) than this library ({:016x}); install both from one build",
                       file, table->build, device_build()));
  }
  int devices = 0;
  if (const DeviceStatus status = table->count(&devices)) {
    refuse(fmt::format("{} (error {}); the driver must be 580 or newer", table->error_text(status), status));
  }
  if (devices == 0) refuse("this process sees no device");
  return std::shared_ptr<const DeviceLibrary>(new DeviceLibrary(table));
}

void DeviceLibrary::check(DeviceStatus status, const char* what) const {
  if (status == 0) return;
  throw Exception(ErrorCode::kSystem,
                  fmt::format("{} failed: {} (error {})", what, table_->error_text(status), status));
}

}  // namespace rondo
