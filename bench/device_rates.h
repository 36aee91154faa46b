#pragma once

#include <cstdint>
#include <functional>

#include "kernels/device/device_driver.h"

namespace rondo::bench {

// What a stream takes for what is put into it, by the clock of its device (events), in batches of ten; and what moves
// bytes of a device in such batches. One thread.
class DeviceRates {
 public:
  static constexpr int kRuns = 10;  // of a batch

  DeviceRates(const DeviceDriver& driver, int device, DeviceStream stream);
  ~DeviceRates();
  DeviceRates(const DeviceRates&) = delete;

  void start();
  // Waits for the stream. Seconds since start(), in which the stream came to both.
  double stop();

  // Puts one run, by its number from 0 on, into the stream.
  using Put = std::function<DeviceStatus(int run)>;
  // Bytes that a run reads and writes, a second: in the median batch of several.
  double gbps(uint64_t bytes, const Put& put);
  // Copies of `bytes` from device memory to device memory, in turn by so many buffers that no cache holds them: by the
  // driver, and by a pass of one source.
  struct Copies {
    double by_driver = 0, by_pass = 0;
    double faster() const { return by_driver > by_pass ? by_driver : by_pass; }
  };
  Copies copies(uint64_t bytes);

 private:
  const DeviceDriver& driver_;
  const int device_;
  DeviceStream const stream_;
  DeviceEvent begin_ = nullptr, end_ = nullptr;
};

}  // namespace rondo::bench
