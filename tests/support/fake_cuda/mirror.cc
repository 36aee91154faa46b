#include "tests/support/fake_cuda/mirror.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace rondo::testing {
namespace {

constexpr size_t kAlignment = 256;  // of images in memory that is given

}  // namespace

const char* device_library() {
  const char* const chosen = std::getenv("RONDO_TEST_DEVICE");
  return chosen != nullptr ? chosen : "tests/support/fake_cuda/libcuda.so.1";
}

bool on_a_gpu() { return std::getenv("RONDO_TEST_DEVICE") != nullptr; }

void* find_function(const char* name) {
  void* const library = dlopen(device_library(), RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name);
}

DeviceFold pass_of(DType dtype, Fold fold, std::span<const void* const> sources, std::span<void* const> targets,
                   uint64_t count) {
  DeviceFold pass = {};
  std::ranges::copy(sources, pass.sources);
  std::ranges::copy(targets, pass.targets);
  pass.count = count;
  pass.source_count = static_cast<uint8_t>(sources.size());
  pass.target_count = static_cast<uint8_t>(targets.size());
  pass.arguments = {1, 1};
  pass.dtype = static_cast<uint8_t>(dtype);
  pass.fold = sources.size() == 1 ? kCopies : static_cast<uint8_t>(fold);
  return pass;
}

Mirror::Mirror(void* device, size_t bytes)
    : driver_(DeviceDriver::open(device_library())), pool_(static_cast<std::byte*>(device)), pool_left_(bytes) {
  driver_->check(driver_->current(&device_), "current");
  driver_->check(driver_->make_stream(device_, &stream_), "make_stream");
}

Mirror::~Mirror() {
  driver_->destroy_stream(stream_);
  while (!runs_.empty()) do_deallocate(runs_.begin()->first, runs_.begin()->second.bytes, 1);
}

void* Mirror::do_allocate(size_t bytes, size_t) {
  Run run{nullptr, nullptr, bytes + 1};
  void* host = ::mmap(nullptr, run.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* device = nullptr;
  driver_->check(driver_->lock_host(device_, host, run.bytes), "lock_host");
  if (pool_ != nullptr) {
    const size_t rounded = (run.bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded > pool_left_) throw std::logic_error("the device memory given is too small");
    pool_left_ -= rounded;
    device = pool_ + pool_left_;
  } else {
    driver_->check(driver_->allocate(device_, run.bytes, &device), "allocate");
  }
  run.host = static_cast<std::byte*>(host);
  run.device = static_cast<std::byte*>(device);
  runs_[run.host] = run;
  return host;
}

void Mirror::do_deallocate(void* data, size_t, size_t) {
  const auto found = runs_.find(static_cast<std::byte*>(data));
  const Run run = found->second;
  driver_->unlock_host(run.host);
  if (pool_ == nullptr) driver_->release(device_, run.device);
  ::munmap(run.host, run.bytes);
  runs_.erase(found);
}

void* Mirror::image(const void* address) const {
  if (address == nullptr) return nullptr;
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  auto found = runs_.upper_bound(at);
  if (found == runs_.begin()) throw std::logic_error("no image of this memory");
  const Run& run = (--found)->second;
  if (at > run.host + run.bytes) throw std::logic_error("no image of this memory");
  return run.device + (at - run.host);
}

void Mirror::copy_all(bool to_device) {
  for (const auto& [start, run] : runs_) {
    const DeviceCopy copy = to_device ? whole(run.device, run.host, run.bytes) : whole(run.host, run.device, run.bytes);
    driver_->check(driver_->copy(copy, stream_), "copy");
  }
}

}  // namespace rondo::testing
