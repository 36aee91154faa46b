// DeviceIsland: which device writes into whose memory.
#include <algorithm>

#include "ring/engine/device/device_island.h"
#include "ring/engine/device/host_wait.h"
#include "ring/engine/device/stream_plans.h"

namespace rondo {
namespace {

constexpr uint64_t kTrialNonce = 0x726f6e646f000000;  // "rondo", and the rank

// How long the trial's kernels wait for a rank that shares its GPU, or comes late.
constexpr std::chrono::milliseconds kShortestTrial{100}, kLongestTrial{10'000};

}  // namespace

// Runs `use` on a new stream and waits for it: the caller's streams may wait for something else. False:
// something failed.
bool DeviceIsland::in_own_stream(const std::function<bool(DeviceStream)>& use) const {
  DeviceStream stream = nullptr;
  if (driver_->make_stream(device_, &stream) != 0) return false;
  const bool used = use(stream) && driver_->synchronize(stream) == 0;
  driver_->destroy_stream(stream);
  return used;
}

// Each rank writes a number into the device memory of every other rank that it maps, and reads what has come.
// That a map succeeded does not say that writes arrive. False: something failed.
bool DeviceIsland::try_transfers(const AllSay& all_say) {
  RankBoard& board = own();
  const auto me = static_cast<uint64_t>(rank_);
  board.trial[me] = kTrialNonce + me;
  const auto copy_8 = [&](void* to, const void* from, DeviceStream stream) {
    return driver_->copy({to, from, 8, 8, 8, 1}, stream) == 0;
  };
  bool ok = in_own_stream([&](DeviceStream stream) {
    bool copied = true;
    for (void* const window : windows_.front().mapped) {
      if (window == nullptr) continue;
      copied &= copy_8(static_cast<std::byte*>(window) + header_bytes_ + 8 * me, &board.trial[me], stream);
    }
    return copied;
  });
  all_say(ok ? 1 : 0);
  ok = ok && in_own_stream([&](DeviceStream stream) {
         bool copied = true;
         for (uint64_t rank = 0; rank < static_cast<uint64_t>(world_); ++rank) {
           if (rank != me) copied &= copy_8(&board.trial[rank], bounce() + 8 * rank, stream);
         }
         return copied;
       });
  uint64_t heard = uint64_t{1} << rank_;
  for (uint64_t rank = 0; rank < static_cast<uint64_t>(world_); ++rank) {
    if (board.trial[rank] == kTrialNonce + rank) heard |= uint64_t{1} << rank;
  }
  return set_reach(all_say(ok ? heard : 0));
}

// Kernels of all ranks, of as many blocks as all of them can have, wait for each other. Beside other kernels of
// a GPU they may not fit at once. Half of the time that is left is kept for the ranks to tell each other the
// outcome.
std::string DeviceIsland::try_kernel(const AllSay& all_say, Clock::time_point deadline) {
  const std::vector<uint64_t> offered = all_say(lanes_);
  const auto lanes = static_cast<uint32_t>(*std::min_element(offered.begin(), offered.end()));
  driver_->give_blocks(device_, lanes_ - lanes);
  lanes_ = lanes;
  if (lanes_ == 0) return "other communicators have all blocks of the GPU of " + first_without(offered);
  DeviceCall call = {};
  describe(call, last_number_.load(), -1);
  std::ranges::fill(call.prints, kTrialNonce);
  const auto left = std::clamp<std::chrono::nanoseconds>((deadline - Clock::now()) / 2, kShortestTrial, kLongestTrial);
  call.limit_ns = static_cast<uint64_t>(left.count());
  call.step_count = 2;
  for (int rank = 0; rank < world_; ++rank) {
    const bool met = reach_.complete() ? rank != rank_ : std::ranges::count(neighbors(order_, rank_), rank) > 0;
    if (met) call.steps[0].peers = static_cast<uint16_t>(call.steps[0].peers | 1 << rank);
  }
  call.steps[1] = call.steps[0];
  call.steps[1].kind = CallStep::kAwait;
  CallStatus& status = own().status;
  bool broken = false;  // the device has failed, and writes no word any more
  const bool ok = in_own_stream([&](DeviceStream stream) {
    if (driver_->call(call, lanes_, stream) != 0) return false;
    wait_on_host([&] { return broken || at_least(load_word(status.passed), call.number); },
                 [&] {
                   if (context_.failure.get() != nullptr) store_word(status.stop, 1);
                   broken = driver_->broken(stream) != 0;
                 });
    return !broken && load_word(status.failure) == 0;
  });
  return first_without(all_say(ok ? 1 : 0)).empty() ? "" : kDoNotMeet;
}

// heard: for each rank, a bit for each rank whose number has come; 0: that rank has failed.
bool DeviceIsland::set_reach(const std::vector<uint64_t>& heard) {
  if (!first_without(heard).empty()) return false;
  reach_.world = world_;
  for (int from = 0; from < world_; ++from) {
    for (int to = 0; to < world_; ++to) {
      // Both ways: who writes to a rank hears from it by what that one writes.
      const bool there = (heard[static_cast<size_t>(to)] >> from & 1) != 0;
      reach_.reaches.push_back(there && (heard[static_cast<size_t>(from)] >> to & 1) != 0);
    }
  }
  return true;
}

}  // namespace rondo
