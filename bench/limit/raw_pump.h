#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/limit/raw_setting.h"

namespace rondo::bench {

// One direction of one connection.
struct RawFlow {
  enum class Direction { kSend, kReceive };
  int fd = -1;  // non-blocking
  Direction direction = Direction::kSend;
  std::byte* share = nullptr;  // of the user's buffer
  uint64_t share_bytes = 0;    // at least one transfer
  std::byte* room = nullptr;   // of one transfer; Memory::kRelay only
  uint64_t moved = 0;
};

// The end of a wait for bytes. The clock is read only after many passes in vain: it would cost time in a loop that
// moves bytes.
class RawDeadline {
 public:
  void moved() { vain_ = 0; }
  // Throws Exception(kSystem) ten seconds after its first look at the clock.
  void passed_in_vain() {
    if (++vain_ % kPassesPerLook == 0) look();
  }

 private:
  static constexpr uint32_t kPassesPerLook = 1000;
  void look();

  uint32_t vain_ = 0;
  double end_ = 0;  // 0: it has not looked
};

// Keeps flows busy from one thread.
class RawPump {
 public:
  enum class Idle { kSpin, kYield };  // what lock step does while nothing moves
  RawPump(std::vector<RawFlow> flows, const RawSetting& setting, Idle idle);

  // Until every flow has moved that many bytes more: whole transfers. Throws Exception(kSystem) if a connection breaks,
  // or after ten seconds.
  void run(uint64_t bytes);

 private:
  std::byte* place(const RawFlow& flow) const;
  bool advance(RawFlow& flow);
  bool pass();
  void rest();
  uint64_t slowest() const;

  std::vector<RawFlow> flows_;
  std::vector<pollfd> waits_;
  RawSetting setting_;
  Idle idle_;
  uint64_t target_ = 0;  // of each flow's `moved`
};

}  // namespace rondo::bench
