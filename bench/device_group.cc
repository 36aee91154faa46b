#include "bench/device_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rondo::bench {

DeviceGroup::DeviceGroup(Communicator& communicator, const RondoCalls& calls)
    : RondoGroup(communicator, calls),
      communicator_(communicator),
      registered_(calls.buffers == BufferKind::kRegistered),
      fused_(calls.fused),
      driver_(DeviceDriver::open(communicator.config().device_library)) {
  devices_ = driver_->count();
  device_ = communicator.place().local_rank % devices_;
  driver_->check(driver_->use(device_), "choosing the device");
  driver_->check(driver_->make_stream(device_, &stream_), "making a stream");
  rates_.emplace(*driver_, device_, stream_);
  set_stream(stream_);
  communicator.attach_device();
  if (communicator.topology().one_island()) bytes_ = most_bytes_ = communicator.config().device_window_bytes;
}

// The stream must be idle before its events and itself go.
DeviceGroup::~DeviceGroup() {
  driver_->synchronize(stream_);
  rates_.reset();
  driver_->destroy_stream(stream_);
}

// A buffer may begin inside an allocation, as a rank's block does in place. Its image has the same offset.
std::byte* DeviceGroup::image(const std::byte* host) const {
  if (host == nullptr) return nullptr;
  // The memory that begins at or before `host`: every buffer that is timed comes from allocate().
  const auto [start, found] = *std::prev(images_.upper_bound(host));
  return found.device + (host - start);
}

Call DeviceGroup::image(Call call) const {
  call.input = image(call.input);
  call.output = image(call.output);
  return call;
}

// The clock of a batch begins with its first call.
void DeviceGroup::start_clock() {
  if (!std::exchange(clock_runs_, true)) rates_->start();
}

void DeviceGroup::run(const Call& call) {
  start_clock();
  RondoGroup::run(image(call));
}

void DeviceGroup::run_parts(const Call& call, std::span<const uint64_t> counts) {
  if (!fused_) return Group::run_parts(call, counts);
  start_clock();
  run_parts_at(image(call), counts);
}

std::optional<double> DeviceGroup::complete() {
  start_clock();
  clock_runs_ = false;
  return rates_->stop();
}

std::byte* DeviceGroup::allocate(uint64_t bytes) {
  std::byte* const host = Group::allocate(bytes);
  void* device = nullptr;
  // Pinned, so that copies to and from the device run at full rate.
  driver_->check(driver_->lock_host(device_, host, bytes), "locking host memory");
  if (registered_) {
    device = communicator_.allocate(bytes, Memory::kDevice);
  } else {
    driver_->check(driver_->allocate(device_, bytes, &device), "allocating device memory");
  }
  images_[host] = {static_cast<std::byte*>(device), bytes};
  bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
  return host;
}

// A call in the stream may still use the device's memory: the stream is waited for first.
void DeviceGroup::deallocate(std::byte* memory) {
  if (memory == nullptr) return;
  const auto found = images_.find(memory);
  bytes_ -= found->second.bytes;
  driver_->synchronize(stream_);
  if (registered_) {
    communicator_.deallocate(found->second.device);
  } else {
    driver_->release(device_, found->second.device);
  }
  driver_->unlock_host(memory);
  images_.erase(found);
  Group::deallocate(memory);
}

// The library chooses on the device; rows do not tell these choices apart.
std::string DeviceGroup::algorithm(const Call& call) const {
  return benchmark_collective(call.benchmark) ? "device" : "p2p";
}

// Outside the clock: what is timed is the collective on device memory alone.
void DeviceGroup::copy_images(bool to_device) {
  for (const auto& [start, found] : images_) {
    auto* const host = const_cast<std::byte*>(start);
    const auto copy = to_device ? DeviceCopy{found.device, host, found.bytes, found.bytes, found.bytes, 1}
                                : DeviceCopy{host, found.device, found.bytes, found.bytes, found.bytes, 1};
    driver_->check(driver_->copy(copy, stream_), "copying");
  }
  complete();
}

std::string DeviceGroup::device_text() const {
  DeviceFacts facts{};
  driver_->check(driver_->facts(device_, &facts), "asking for the device's properties");
  return fmt::format("{}, {} device{}", facts.name, devices_, devices_ == 1 ? "" : "s");
}

// Collective, as both ends of the range are asked for.
std::string DeviceGroup::memory_text() {
  const auto own = static_cast<double>(most_bytes_) / (1 << 20);
  const double most = max(own), least = -max(-own);
  return least == most ? fmt::format("{:.0f} MiB", most) : fmt::format("{:.0f} to {:.0f} MiB", least, most);
}

}  // namespace rondo::bench
