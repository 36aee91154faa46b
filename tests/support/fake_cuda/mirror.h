#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>

#include "kernels/device/device_driver.h"

namespace rondo::testing {

// The driver that tests of devices use: RONDO_TEST_DEVICE, for those that run on a GPU (tests/device/gpu.sh), else the
// fake one.
const char* device_library();
// A GPU has no settings, and counts nothing.
bool on_a_gpu();

// A function of it for tests, once it has been opened; nullptr: a GPU has none.
void* find_function(const char* name);
template <class Signature>
Signature* fake_function(const char* name) {
  return reinterpret_cast<Signature*>(find_function(name));
}
// What the device has counted in this process; -1: a GPU does not tell.
inline int counted(const char* what) {
  const auto count = fake_function<int()>(what);
  return count == nullptr ? -1 : count();
}
// Bytes that lie one behind the other.
constexpr DeviceCopy whole(void* to, const void* from, uint64_t bytes) { return {to, from, bytes, bytes, bytes, 1}; }
// A pass; of one source: a copy.
DeviceFold pass_of(DType dtype, Fold fold, std::span<const void* const> sources, std::span<void* const> targets,
                   uint64_t count);

// Host memory with an image of the same size on the current device: a test fills the host's, has a call work on the
// image, and looks at the host's again. One thread.
class Mirror final : public std::pmr::memory_resource {
 public:
  Mirror() : Mirror(nullptr, 0) {}
  // Images lie in this device memory, which outlives it; nullptr: in memory of their own.
  Mirror(void* device, size_t bytes);
  ~Mirror() override;

  const DeviceDriver& driver() const { return *driver_; }
  int device() const { return device_; }
  DeviceStream stream() const { return stream_; }

  // The image of an address; nullptr's is nullptr.
  void* image(const void* address) const;
  template <class T>
  T* image_of(T* address) const {
    return static_cast<T*>(image(address));
  }
  // All of it, in the order of the stream.
  void to_device() { copy_all(true); }
  void to_host() {
    copy_all(false);
    synchronize();
  }
  void synchronize() const { driver_->check(driver_->synchronize(stream_), "synchronize"); }

 private:
  struct Run {
    std::byte* host;
    std::byte* device;
    size_t bytes;
  };
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* data, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
  void copy_all(bool to_device);

  std::shared_ptr<const DeviceDriver> driver_;
  int device_ = 0;
  DeviceStream stream_ = nullptr;
  std::byte* const pool_;
  size_t pool_left_;
  std::map<std::byte*, Run> runs_;
};

}  // namespace rondo::testing
