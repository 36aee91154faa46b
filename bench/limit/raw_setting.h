#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::bench {

// How both directions of the connections are kept busy.
enum class Driving : uint8_t {
  kPoll = 0,        // one thread transfers until nothing moves, then sleeps in poll()
  kTwoThreads = 1,  // one sends, one receives, each sleeping in poll()
  kLockStep = 2,    // one thread spins; no direction is more than one transfer ahead: what is under way stays in cache
};
inline constexpr int kDrivings = 3;
constexpr const char* driving_name(Driving driving) {
  constexpr const char* kNames[kDrivings] = {"poll", "two threads", "lock step"};
  return static_cast<int>(driving) < kDrivings ? kNames[static_cast<int>(driving)] : "driving?";
}

// Where transfers begin and end.
enum class Memory : uint8_t {
  // Both directions walk through the whole buffer, half of it apart.
  kWalk = 0,
  // An all_reduce without its arithmetic: a transfer from the buffer goes out while one comes into a room that stays in
  // cache; then what is in that room goes out while one comes back to where the first was sent from. A reduction does
  // all of that, and reads and adds its own elements besides.
  kRelay = 1,
};
inline constexpr int kMemories = 2;
constexpr const char* memory_name(Memory memory) {
  constexpr const char* kNames[kMemories] = {"walk", "relay"};
  return static_cast<int>(memory) < kMemories ? kNames[static_cast<int>(memory)] : "memory?";
}

// One way to move bytes round a ring of raw TCP connections.
struct RawSetting {
  uint64_t transfer_bytes = 0;  // asked of one send() or recv()
  Driving driving = Driving::kPoll;
  std::string congestion;  // TCP_CONGESTION
  int connections = 1;     // to the next rank; each carries its share of the buffer
  Memory memory = Memory::kWalk;
  bool operator==(const RawSetting&) const = default;
};

// "1 MiB transfers, poll, reno, 2 connections, relay".
std::string setting_text(const RawSetting& setting);

inline constexpr uint64_t kLeastTransferBytes = 256 << 10;
// {256 KiB, 1 MiB} x driving x {1, 4} connections x memory, but for transfers larger than a connection's share of the
// buffer: none for one below kLeastTransferBytes.
std::vector<RawSetting> limit_settings(const std::string& congestion, uint64_t buffer_bytes);

}  // namespace rondo::bench
