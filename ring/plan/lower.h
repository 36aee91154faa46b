#pragma once

#include <cstdint>
#include <vector>

#include "ring/plan/plan.h"

namespace rondo {

// A plan as work for a stream of a device. Nothing in it waits but the stream, for words: every rank has a word of each
// number below kStreamWords for each other rank, in which that one's stream writes. The words below kArrivedWord say
// how many calls have come to a point of the plan; in the n-th call all signals write n, and a stream awaits at least
// n, so that a rank that is a call ahead hides nothing. The last two count messages: slices of a ring, for which every
// rank has kStreamSlots slots in its memory, used in turn.
inline constexpr uint32_t kArrivedWord = 4;  // messages that have come from that rank
inline constexpr uint32_t kFreedWord = 5;    // messages to that rank whose slot is free again
inline constexpr uint32_t kStreamWords = 6;
inline constexpr uint32_t kStreamSlots = 2;

// One thing that a stream does: a signal, a wait, or a kernel.
//
// *Posts* are the messages of a plan in which each rank sends at most one to each other, straight from its input
// (Algorithm::kDirect): words that carry the number of their call, so that nothing else orders them. A rank has
// two places for the post of each other one, which calls use in turn. Its word 0 orders nothing but these.
struct StreamEntry {
  enum class Kind : uint8_t {
    kSignal,  // writes word `index` of each of `peers` that is this rank's there
    kAwait,   // awaits the own word `index` of each of `peers`
    kPass,    // runs step `index` of Plan::steps, one kernel; where posts are sent or taken, the rest of it
    kPost,    // sends what step `index` sends
    kTake     // awaits what step `index` takes from `peers`, and stores it: where a step of one source does, or beside
  };
  static constexpr uint32_t kNone = 0xffffffffu;
  Kind kind = Kind::kPass;
  uint32_t index = 0;
  uint32_t messages = 0;  // of words that count them: how many of this call, from its first one on
  // Which message of this call a pass reads, and which it writes; the slot is that modulo kStreamSlots.
  uint32_t received = kNone, sent = kNone;
  std::vector<int> peers = {};
  bool operator==(const StreamEntry&) const = default;
};

struct StreamProgram {
  bool posts = false;
  uint32_t messages = 0;   // that this rank sends or receives, whichever is more
  int from = -1, to = -1;  // ranks that messages come from and go to; -1: none
  std::vector<StreamEntry> entries;
  bool operator==(const StreamProgram&) const = default;
};

// What the stream of plan.rank gets: first all ranks meet (word 0), since no host has heard from the others; then the
// steps, with a word for each barrier of the plan and words of messages where it sends data over links, from one rank
// and to one rank. Pure. Throws Exception(kInternal) for a plan of scratch or staging memory, with links
// to more ranks that are no posts, or with four barriers or more.
StreamProgram lower(const Plan& plan);

// Whether a step that takes posts stores what it takes where it belongs.
bool takes_straight(const Plan& plan, const Step& step);

}  // namespace rondo
