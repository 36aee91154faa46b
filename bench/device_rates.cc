#include "bench/device_rates.h"

#include <algorithm>
#include <vector>

#include "bench/loop/statistics.h"

namespace rondo::bench {
namespace {

constexpr int kBatches = 7;  // the median of
// The pairs of buffers that copies use in turn hold these bytes together: an H100's cache has 50 MiB. Not more pairs
// than are copied in a measurement.
constexpr uint64_t kBeyondCacheBytes = 256u << 20;
constexpr uint64_t kMostTurns = 64;
constexpr uint64_t kAlignment = 256;  // of each buffer, as cudaMalloc's

}  // namespace

DeviceRates::DeviceRates(const DeviceDriver& driver, int device, DeviceStream stream)
    : driver_(driver), device_(device), stream_(stream) {
  for (DeviceEvent* event : {&begin_, &end_}) {
    driver_.check(driver_.make_event(device_, event, DeviceDriver::Timed::kYes), "making an event");
  }
}

DeviceRates::~DeviceRates() {
  for (DeviceEvent event : {begin_, end_}) driver_.destroy_event(device_, event);
}

void DeviceRates::start() { driver_.check(driver_.record(begin_, stream_), "recording an event"); }

// Waits for the stream. The time between the events is the device's own, without the calls' way to it.
double DeviceRates::stop() {
  double seconds = 0;
  driver_.check(driver_.record(end_, stream_), "recording an event");
  driver_.check(driver_.synchronize(stream_), "waiting for the stream");
  driver_.check(driver_.elapsed(device_, begin_, end_, &seconds), "asking for the time between two events");
  return seconds;
}

// The first batch warms up and does not count.
double DeviceRates::gbps(uint64_t bytes, const Put& put) {
  std::vector<double> seconds;
  for (int batch = -1; batch < kBatches; ++batch) {
    driver_.check(driver_.synchronize(stream_), "waiting for the stream");
    start();
    for (int run = 0; run < kRuns; ++run) driver_.check(put((batch + 1) * kRuns + run), "a run of a batch");
    const double took = stop();
    if (batch >= 0) seconds.push_back(took);
  }
  return 1e-9 * kRuns * static_cast<double>(bytes) / median(seconds);
}

// Two ways: by the driver, and by a pass of the library's kernel over one source and one target. Both read and write
// all bytes once.
DeviceRates::Copies DeviceRates::copies(uint64_t bytes) {
  const uint64_t each = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  // At least two pairs, so that a run never reads what the one before it has just written.
  const uint64_t turns = std::min(kBeyondCacheBytes / (2 * each) + 2, kMostTurns);
  void* memory = nullptr;
  driver_.check(driver_.allocate(device_, 2 * turns * each, &memory), "allocating device memory");
  const auto buffer = [&](int run, uint64_t second) {
    return static_cast<std::byte*>(memory) + (2 * (static_cast<uint64_t>(run) % turns) + second) * each;
  };
  Copies found;
  found.by_driver = gbps(2 * bytes, [&](int run) {
    return driver_.copy({buffer(run, 1), buffer(run, 0), bytes, bytes, bytes, 1}, stream_);
  });
  found.by_pass = gbps(2 * bytes, [&](int run) {
    DeviceFold pass = {};
    pass.sources[0] = buffer(run, 0);
    pass.targets[0] = buffer(run, 1);
    pass.count = bytes;
    pass.source_count = pass.target_count = 1;
    pass.dtype = static_cast<uint8_t>(DType::kUint8);
    pass.fold = kCopies;
    return driver_.fold(pass, stream_);
  });
  driver_.release(device_, memory);
  return found;
}

}  // namespace rondo::bench
