#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::bench {

// How one thread (or two) keeps both directions of its connections busy.
enum class Driving : uint8_t {
  kPoll = 0,        // transfers until nothing moves, then sleeps in poll()
  kSpin = 1,        // never sleeps; yields where ranks share cores
  kTwoThreads = 2,  // one sends, one receives, each sleeping in poll()
  kLockStep = 3,    // spins; no direction is more than one transfer ahead, so that what is under way stays in cache
  kPipeline = 4,    // the same with four transfers, as many as the engine has slices in a chunk
};
inline constexpr int kDrivings = 5;
constexpr const char* driving_name(Driving driving) {
  constexpr const char* kNames[kDrivings] = {"poll", "spin", "two threads", "lock step", "pipeline"};
  return static_cast<int>(driving) < kDrivings ? kNames[static_cast<int>(driving)] : "driving?";
}
// Transfers that a direction may be ahead of the slowest one; 0: any number.
constexpr uint64_t driving_lead(Driving driving) {
  return driving == Driving::kLockStep ? 1 : driving == Driving::kPipeline ? 4 : 0;
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

// {64 KiB, 256 KiB, 1 MiB, 4 MiB} x driving x congestion controls x {1, 2, 4} x memory. Left out: transfers larger than
// a connection's share of the buffer, and pipelines that do not fit into it.
std::vector<RawSetting> all_settings(const std::vector<std::string>& congestion_controls, uint64_t buffer_bytes);

}  // namespace rondo::bench
