#pragma once

#include "ring/engine/device/device_library.h"

namespace rondo {

// This thread's current device is the given one for as long as it lives. Throws Exception.
class OnDevice {
 public:
  OnDevice(const DeviceLibrary& library, int device) : table_(library.table()) {
    library.check(table_.current(&before_), "asking for the current device");
    library.check(table_.use(device), "changing the current device");
  }
  ~OnDevice() { table_.use(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const DeviceTable& table_;
  int before_ = 0;
};

}  // namespace rondo
