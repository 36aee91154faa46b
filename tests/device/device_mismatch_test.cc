// Ranks that make different calls on device memory: every rank hears of it at once, with both calls, nothing is written
// where the caller did not allow it, and the device goes on. Passes over the memory of all ranks, of a ring, and staged
// calls.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/faults/mismatch_cases.h"
#include "tests/support/fake_cuda/mirror.h"

namespace rondo::testing {
namespace {

class DeviceMemory final : public CallMemory {
 public:
  std::pmr::memory_resource* resource() override { return &mirror_; }
  void* place(void* host) override { return mirror_.image(host); }
  std::optional<void*> stream() override { return mirror_.stream(); }
  void to_calls() override {
    mirror_.to_device();
    mirror_.synchronize();
  }
  void from_calls() override { mirror_.to_host(); }  // the device goes on
  void finish(Communicator& group) override { group.barrier_async({.stream = mirror_.stream()}).wait(); }

 private:
  Mirror mirror_;
};

MismatchRanks device_ranks() {
  MismatchRanks ranks;
  ranks.config.device_library = device_library();
  ranks.memory = [](Communicator& group) {
    group.attach_device();
    return std::make_unique<DeviceMemory>();
  };
  ranks.also = "on device memory";
  return ranks;
}

}  // namespace

TEST_CASE("passes over shared memory: different calls end in the same mismatch on every rank, within a second") {
  const std::vector<Mismatch> all = mismatches();
  for (const Mismatch& mismatch : all) check_mismatch(mismatch, Form::kBlocking, device_ranks());
  for (const size_t i : {0, 2, 9}) check_mismatch(all[i], Form::kAsync, device_ranks());
}

TEST_CASE("passes of a ring end in it, too") {
  MismatchRanks ranks = device_ranks();
  ranks.config.algorithm = Algorithm::kRing;
  const std::vector<Mismatch> all = mismatches();
  for (const size_t i : {0, 1, 2, 4, 7, 9, 13, 16}) check_mismatch(all[i], Form::kBlocking, ranks);
}

TEST_CASE("staged calls end in it, too") {
  MismatchRanks ranks = device_ranks();
  ranks.config.device_window_bytes = 0;
  for (const Mismatch& mismatch : mismatches()) {
    // Large calls are staged in pieces, whose counts the message shows.
    if (std::max(mismatch.usual.count, mismatch.odd.count) < 100) check_mismatch(mismatch, Form::kBlocking, ranks);
  }
}

TEST_CASE("uneven counts that only a pair knows are compared by the pair") {
  check_pair_mismatch(10, 12, device_ranks());
  check_pair_mismatch(300'000, 100'000, device_ranks());
  check_pair_mismatch(5, 0, device_ranks());
}

TEST_CASE("a rank that sleeps in recv on a stream where the others are in a collective") {
  check_sleeper_mismatch(false, device_ranks());
}

}  // namespace rondo::testing
