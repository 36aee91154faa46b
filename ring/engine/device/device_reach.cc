// DeviceIsland: which device writes into whose memory.
#include "ring/engine/device/device_island.h"

namespace rondo {
namespace {

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
  reach_.world = world_;
  for (int from = 0; from < world_; ++from) {
    for (int to = 0; to < world_; ++to) reach_.reaches.push_back((heard[static_cast<size_t>(to)] >> from & 1) != 0);
  }
  return true;
}

}  // namespace rondo
