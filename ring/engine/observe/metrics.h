#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "ring/base/types.h"
#include "rondo/error.h"

namespace rondo {

// Counters of one rank, over all of its communicators. They only grow. Any thread adds to them, relaxed: a
// reader may see one counter before another that was added to earlier. No lock, and no allocation after the
// constructor.
class Metrics {
 public:
  using Counter = std::atomic<uint64_t>;
  // Upper bounds of a histogram's buckets: 1 us times powers of 4, up to 16.8 s; one more for what is longer.
  static constexpr size_t kBounds = 13;

  // By collective.
  struct Operations {
    // Operations that have succeeded.
    std::array<Counter, kAlgorithms> by_algorithm{};
    Counter bytes{};
    // Sum of their times, each from its begin on this rank to its end.
    Counter nanoseconds{};
    std::array<Counter, kBounds + 1> durations{};
  };
  // By rank of the world.
  struct Peer {
    Counter wait_nanoseconds{};
    std::array<Counter, 2> bytes{};          // received, sent
    std::array<Counter, 2> messages{};       // likewise
    std::array<Counter, 2> message_bytes{};  // likewise
  };

  explicit Metrics(int world) : world_(world), peers_(std::make_unique<Peer[]>(static_cast<size_t>(world))) {}

  int world() const { return world_; }
  Peer& peer(int world_rank) const { return peers_[static_cast<size_t>(world_rank)]; }

  std::array<Operations, kCollectives> operations{};
  std::array<Counter, kErrorCodes> errors{};  // communicators that failed, by ErrorCode
  // Time in which this rank made no progress though an operation was under way.
  Counter stopped_nanoseconds{};

  static double bound_seconds(size_t bucket) { return 1e-6 * static_cast<double>(uint64_t{1} << (2 * bucket)); }
  // The first bucket whose bound is not below; kBounds: the one without a bound.
  static size_t bucket_of(uint64_t nanoseconds) {
    size_t bucket = 0;
    while (bucket < kBounds && nanoseconds > (uint64_t{1000} << (2 * bucket))) ++bucket;
    return bucket;
  }

 private:
  int world_;
  std::unique_ptr<Peer[]> peers_;
};

inline void count(Metrics::Counter& counter, uint64_t by = 1) { counter.fetch_add(by, std::memory_order_relaxed); }

}  // namespace rondo
