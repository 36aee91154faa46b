#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "tests/faults/ranks.h"

// Calls of which one rank makes another one than the rest, on host memory and on device memory.
namespace rondo::testing {

inline constexpr int kMismatchWorld = 4;
// A second is promised; the machine that runs the tests may have fewer cores than ranks.
inline constexpr int64_t kSoonMs = 2'000;

struct OneCall {
  Collective collective = Collective::kAllReduce;
  uint64_t count = 40;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int root = 0;
  CallOptions options = {};
  std::string text;  // how the message shows it

  uint64_t input_bytes() const;
  uint64_t output_bytes() const;
  // The input of a broadcast is the output.
  Call on(const void* input, void* output) const;
};

struct Mismatch {
  const char* what;
  OneCall usual;
  OneCall odd;
  int odd_rank = 1;
};

std::vector<Mismatch> mismatches();

// Where the buffers of a rank lie, and how its calls find them: host memory, unless derived.
class CallMemory {
 public:
  virtual ~CallMemory() = default;
  virtual std::pmr::memory_resource* resource() { return std::pmr::get_default_resource(); }
  virtual void* place(void* host) { return host; }
  virtual std::optional<void*> stream() { return std::nullopt; }
  virtual void to_calls() {}
  virtual void from_calls() {}
  // A barrier; throws what it, or a call before it, fails with.
  virtual void finish(Communicator& group) { group.barrier(); }
};
struct MismatchRanks {
  Config config = fault_config();
  std::function<std::unique_ptr<CallMemory>(Communicator& group)> memory = [](Communicator&) {
    return std::make_unique<CallMemory>();
  };
  std::string also;  // how messages show it
};

// Every rank's call ends in MISMATCH in time, with both calls, each beside a rank that made it, and so do the next one
// and the communicator's error; memory is intact, and destroy() ends well.
enum class Form { kBlocking, kAsync };
void check_mismatch(const Mismatch& mismatch, Form form = Form::kBlocking, const MismatchRanks& ranks = {});
// An all_to_all_v whose counts rank 0, which sends, and rank 2 alone know.
void check_pair_mismatch(uint64_t sends, uint64_t expects, const MismatchRanks& ranks = {});
// An all_reduce that rank 1 does not make, which sleeps in a message to or from rank 2.
void check_sleeper_mismatch(bool sends, const MismatchRanks& ranks = {});

}  // namespace rondo::testing
