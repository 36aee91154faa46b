#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ring/engine/run/bound_run.h"
#include "ring/engine/run/gather.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Compares results that must be equal on all ranks (RONDO_CHECK=digest). It gathers CRC-32C checksums of 64
// parts of the result. Where they differ it gathers those of 64 parts of the first such part, and so on down to
// one element. All ranks see the same checksums, so all decide alike. Under the lease.
class DigestExchange {
 public:
  // plan: an all_gather over links. What is referred to must outlive it.
  DigestExchange(const CommunicatorContext& context, std::shared_ptr<const Plan> plan, LinkTable& links);

  // result: what is compared; it must stay unchanged until look() says kEqual or kDiffers.
  void begin(const std::byte* result, uint64_t count, size_t element_bytes);
  // Starts the next exchange, once run() is ready. call: the operation whose result it is.
  void start(const RunStart& call);
  Run& run() { return digests_.run(); }
  enum class Verdict { kEqual, kMore, kDiffers };
  Verdict look();  // once it is done

  // --- after kDiffers
  uint64_t index() const { return begin_; }  // of the first element that differs
  // The ranks whose value is not the most frequent one; all ranks, where two values are equally frequent.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  // 64 checksums are 256 bytes a rank, and five exchanges find one element of a billion.
  static constexpr uint64_t kParts = 64;
  using Digests = std::array<uint32_t, kParts>;

  // Parts are as equal as whole elements allow; short ranges leave some of them empty.
  uint64_t part_begin(uint64_t part) const { return begin_ + (end_ - begin_) * part / kParts; }
  void find_ranks(uint64_t part);

  Gather<Digests> digests_;
  const std::byte* result_ = nullptr;
  size_t element_bytes_ = 1;
  uint64_t begin_ = 0, end_ = 0;  // elements that are compared now
  // Exchanges of this result so far.
  uint64_t round_ = 0;
  std::vector<int> ranks_;
};

}  // namespace rondo
