// DeviceIsland: which device writes into whose memory, and how fast.
#include <algorithm>
#include <chrono>

#include "ring/base/hash.h"
#include "ring/engine/device/device_island.h"
#include "ring/engine/device/passes.h"

namespace rondo {
namespace {

// What is copied to measure a pair of devices: 40 microseconds at 400 GB/s, beyond what a launch takes.
constexpr uint64_t kMeasuredBytes = 16u << 20;
constexpr int kMeasuredTimes = 3;
constexpr uint64_t kTrialNonce = 0x726f6e646f000000;  // "rondo", and the rank

// A stream for as long as it lives; get() nullptr: it could not be made.
class OwnStream {
 public:
  OwnStream(const DeviceDriver& driver, int device) : driver_(driver) {
    if (driver_.make_stream(device, &stream_) != 0) stream_ = nullptr;
  }
  ~OwnStream() {
    if (stream_ != nullptr) driver_.destroy_stream(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  DeviceStream get() const { return stream_; }

 private:
  const DeviceDriver& driver_;
  DeviceStream stream_ = nullptr;
};

}  // namespace

// Each rank's stream writes a number into the device memory of every other that it maps, and then a word into its
// inbox. False: something failed, or a word did not come.
bool DeviceIsland::try_transfers(const AllSay& all_say) {
  const OwnStream made(*driver_, device_);
  const DeviceStream stream = made.get();
  bool ok = stream != nullptr;
  Inbox& inbox = own();
  std::vector<WordOp> ops;
  const auto me = static_cast<uint64_t>(rank_);
  inbox.trial[me] = kTrialNonce + me;
  const auto number_at = [](void* window, uint64_t rank) { return static_cast<std::byte*>(window) + 8 * rank; };
  for (int rank = 0; rank < world_ && ok; ++rank) {
    if (rank == rank_) continue;
    ops.push_back({&of(rank).words[0][me], 1, WordAction::kWrite});
    void* const window = windows_.front().mapped[static_cast<size_t>(rank)];
    const DeviceCopy copy{number_at(window, me), &inbox.trial[me], 8, 8, 8, 1};
    ok = window == nullptr || driver_->copy(copy, stream) == 0;
  }
  if (ok && !ops.empty()) ok = driver_->words(ops.data(), static_cast<int>(ops.size()), stream) == 0;
  if (ok) ok = driver_->synchronize(stream) == 0;
  all_say(ok ? 1 : 0);
  if (ok) {
    std::byte* const here = bounce();
    const uint64_t before = 8 * me, after = 8 * static_cast<uint64_t>(world_) - before - 8;
    const DeviceCopy first{inbox.trial, here, before, before, before, 1};
    const DeviceCopy last{inbox.trial + me + 1, here + before + 8, after, after, after, 1};
    ok = (before == 0 || driver_->copy(first, stream) == 0) && (after == 0 || driver_->copy(last, stream) == 0) &&
         driver_->synchronize(stream) == 0;
  }
  uint64_t heard = uint64_t{1} << rank_;
  for (int rank = 0; rank < world_ && ok; ++rank) {
    const auto peer = static_cast<uint64_t>(rank);
    if (inbox.trial[peer] == kTrialNonce + peer) heard |= uint64_t{1} << peer;
    ok = rank == rank_ || load_word(inbox.words[0][peer]) == 1;
  }
  return set_reach(all_say(ok ? heard : 0));
}

// heard: by rank, a bit for each rank whose number has come; 0: it failed.
bool DeviceIsland::set_reach(const std::vector<uint64_t>& heard) {
  if (!first_without(heard).empty()) return false;
  rates_.world = world_;
  for (int from = 0; from < world_; ++from) {
    for (int to = 0; to < world_; ++to) rates_.mib_per_s.push_back(heard[static_cast<size_t>(to)] >> from & 1);
  }
  copies_faster_.assign(static_cast<size_t>(world_), false);
  return true;
}

bool DeviceIsland::on_one_device(const AllSay& all_say) const {
  DeviceFacts facts{};
  driver_->facts(device_, &facts);
  Hash64 hash;
  for (const uint8_t byte : facts.uuid.bytes) hash.add(byte);
  const std::vector<uint64_t> devices = all_say(hash.value());
  return std::all_of(devices.begin(), devices.end(), [&](uint64_t device) { return device == devices.front(); });
}

// All ranks write at once, each to the rank so far behind it: what they get then is what they get in a call.
void DeviceIsland::measure(const AllSay& all_say) {
  const OwnStream stream(*driver_, device_);
  for (int distance = 1; distance < world_; ++distance) {
    const std::vector<uint64_t> measured = all_say(measure_to((rank_ + distance) % world_, stream.get()));
    for (int from = 0; from < world_; ++from) {
      const auto pair = static_cast<size_t>(from * world_ + (from + distance) % world_);
      if (rates_.mib_per_s[pair] != 0)
        rates_.mib_per_s[pair] = std::max<uint64_t>(1, measured[static_cast<size_t>(from)]);
    }
  }
  order_ = ring_order(rates_);
}

// In MiB a second, by the faster of copy() and passes. stream nullptr: there is none.
uint64_t DeviceIsland::measure_to(int rank, DeviceStream stream) {
  if (stream == nullptr || rates_.of(rank_, rank) == 0) return 0;
  const uint64_t bytes = std::min(kMeasuredBytes, place_bytes());
  const DeviceCopy copy{places(rank), bounce(), bytes, bytes, bytes, 1};
  const BoundPass pass = copy_pass(places(rank), bounce(), bytes);
  const auto rate_of = [&](const auto& put) {
    bool ok = put() == 0 && driver_->synchronize(stream) == 0;
    const auto begin = Clock::now();
    for (int i = 0; i < kMeasuredTimes && ok; ++i) ok = put() == 0;
    ok = ok && driver_->synchronize(stream) == 0;
    const std::chrono::duration<double> took = Clock::now() - begin;
    return ok ? static_cast<double>(bytes) * kMeasuredTimes / (1 << 20) / took.count() : 0.0;
  };
  const double by_copy = rate_of([&] { return driver_->copy(copy, stream); });
  const double by_pass = rate_of([&] { return driver_->fold(pass.fold, stream); });
  copies_faster_[static_cast<size_t>(rank)] = by_copy > by_pass;
  return static_cast<uint64_t>(std::max(by_copy, by_pass));
}

}  // namespace rondo
