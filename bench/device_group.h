#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bench/device_rates.h"
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
  std::optional<double> complete() override;
  uint32_t fewest_in_batch() const override { return DeviceRates::kRuns; }
  void end_batch() override { copy_images(false); }

  // "NVIDIA H100, 1 device"
  std::string device_text() const;
  // Device memory that the library and the buffers take on a rank, at most so far: "192 MiB", or where ranks differ the
  // least and the most. Collective.
  std::string memory_text();
  // Bytes read and written a second by copies of `bytes` from device memory to device memory, the faster way.
  double copy_gbps(uint64_t bytes) { return rates_->copies(bytes).faster(); }

 private:
  struct Image {
    std::byte* device = nullptr;
    uint64_t bytes = 0;
  };
  // Where the image of this host memory lies on the device.
  std::byte* image(const std::byte* host) const;
  Call image(Call call) const;
  // All images, in the stream; waits until they are copied.
  void copy_images(bool to_device);
  void start_clock();

  Communicator& communicator_;
  const bool registered_, fused_;
  std::shared_ptr<const DeviceDriver> driver_;
  DeviceStream stream_ = nullptr;
  std::optional<DeviceRates> rates_;
  // Whether rates_->start() has been called for the batch under way.
  bool clock_runs_ = false;
  int device_ = 0, devices_ = 0;
  std::map<const std::byte*, Image> images_;  // by host memory
  // Device memory of the library's windows and of the images, at present and at most.
  uint64_t bytes_ = 0, most_bytes_ = 0;
};

}  // namespace rondo::bench
