#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "bench/rondo_group.h"
#include "kernels/device/device_driver.h"

namespace rondo::bench {

// Rondo on device memory: every buffer is host memory with an image on this rank's device, which calls on a stream of
// its own work on. Between batches the images are copied there and back, outside the clock. One thread.
class DeviceGroup final : public RondoGroup {
 public:
  // The rank's device is its number on the host, modulo their count; it is this thread's from now on. Collective.
  // Throws Exception.
  DeviceGroup(Communicator& communicator, const RondoCalls& calls);
  ~DeviceGroup() override;

  void run(const Call& call) override;
  void run_parts(const Call& call, std::span<const uint64_t> counts) override;
  std::byte* allocate(uint64_t bytes) override;
  void deallocate(std::byte* memory) override;
  std::string algorithm(const Call& call) const override;
  void begin_batch() override { copy_images(true); }
  void complete() override;
  void end_batch() override { copy_images(false); }

  // "NVIDIA H100, 1 device"
  std::string device_text() const;
  // Device memory that the library and the buffers take on a rank, at most so far: "192 MiB", or where ranks differ the
  // least and the most. Collective.
  std::string memory_text();
  // Bytes read and written a second by copies of `bytes` from device memory to device memory: by the runtime, or by a
  // pass of one source, whichever is faster; the fastest of several runs.
  double copy_gbps(uint64_t bytes) const;
  // What a call of `bytes` takes that is staged through host memory; its two copies alone, to the host and back at the
  // same time; and the same call on host memory. A staged call is no faster than the slower of these two. Medians of
  // the slowest rank. Collective.
  struct Staging {
    double staged_seconds = 0, copies_seconds = 0, host_seconds = 0;
    double of_slower() const { return std::max(copies_seconds, host_seconds) / staged_seconds; }
  };
  Staging measure_staging(Benchmark benchmark, uint64_t bytes);

 private:
  struct Image {
    std::byte* device = nullptr;
    uint64_t bytes = 0;
  };
  std::byte* image(const std::byte* host) const;
  Call image(Call call) const;
  void copy_images(bool to_device);
  double median_seconds(const std::function<void()>& run);
  // put: one copy of `bytes`, into the stream; its turn.
  double gbps_of(uint64_t bytes, const std::function<DeviceStatus(int turn)>& put) const;

  Communicator& communicator_;
  const bool registered_, fused_;
  std::shared_ptr<const DeviceDriver> driver_;
  DeviceStream stream_ = nullptr;
  int device_ = 0, devices_ = 0;
  std::map<const std::byte*, Image> images_;  // by host memory
  uint64_t bytes_ = 0, most_bytes_ = 0;
};

}  // namespace rondo::bench
