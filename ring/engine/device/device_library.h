#pragma once

#include <memory>
#include <string>

#include "kernels/device.h"

namespace rondo {

// The library that knows GPUs, opened. It stays in the process. Any thread.
class DeviceLibrary {
 public:
  // path: of the library; empty: librondo_cuda.so beside this library, else where the loader finds it. Throws
  // Exception(kUnsupported): it is not there, of another version, or there is no device or driver.
  static std::shared_ptr<const DeviceLibrary> open(const std::string& path);

  const DeviceTable& table() const { return *table_; }
  // Throws Exception(kSystem) that names `what`, unless it succeeded.
  void check(DeviceStatus status, const char* what) const;

 private:
  explicit DeviceLibrary(const DeviceTable* table) : table_(table) {}
  const DeviceTable* table_;
};

}  // namespace rondo
