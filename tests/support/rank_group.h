#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "rondo/communicator.h"

namespace rondo::testing {

// What one rank does; it reports a failure by throwing (see expect()).
using RankBody = std::function<void(Communicator&)>;

// Small enough that a hung test ends, large enough for a machine that does ten other things.
struct RankGroup {
  int world = 2;
  Config config = quiet_config();
  std::chrono::seconds deadline{120};                 // for the whole run; processes still there are killed then
  std::function<void(int rank)> before = [](int) {};  // in the process of the rank, before it joins

  static Config quiet_config();
};

RankGroup ranks_over(const std::string& transport, int world = 2);

// Runs `body` on `group.world` processes that join over loopback TCP. They are forked, so the calling process must have
// no other thread. "" if every rank ended well, else one line a rank that did not. A rank that fails aborts the group.
std::string run_processes(const RankGroup& group, const RankBody& body);

// The same on processes that do everything themselves, joining included. body(rank)
std::string run_bare_processes(int world, std::chrono::seconds deadline, const std::function<void(int)>& body);

// The same on threads of this process, over memory.
std::string run_threads(const RankGroup& group, const RankBody& body);

// On processes over shared memory, then on processes over TCP.
std::string run_over_both(RankGroup group, const RankBody& body);

// On processes over shared memory, on processes over TCP and on threads, one after the other.
std::string run_everywhere(int world, const RankBody& body);

// Calls body(0), body(1), ... on so many threads of a rank; throws what the first of them throws.
void run_in_threads(int threads, const std::function<void(int)>& body);

// Throws unless `bytes` are the same on every rank. Made by all ranks.
void expect_same_everywhere(Communicator& group, std::span<const std::byte> bytes, const std::string& what);

// Throws what a rank reports.
void expect(bool condition, const std::string& otherwise);
// For loops over many elements: otherwise() makes the text, only where it is needed.
template <std::invocable Text>
void expect(bool condition, const Text& otherwise) {
  if (!condition) expect(false, otherwise());
}

}  // namespace rondo::testing
