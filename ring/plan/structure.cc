#include "ring/plan/structure.h"

#include <algorithm>
#include <vector>

#include "ring/plan/describe.h"
#include "ring/plan/goal.h"

namespace rondo {
namespace {

using Failure = std::optional<std::string>;

template <typename Matches>
bool any_ref(std::span<const Plan> plans, Matches matches) {
  return std::any_of(plans.begin(), plans.end(),
                     [&](const Plan& plan) { return std::any_of(plan.refs.begin(), plan.refs.end(), matches); });
}

// The call without the program.
Plan plan_of_call(const Plan& plan) {
  Plan call;
  call.collective = plan.collective;
  call.rank = plan.rank;
  call.world = plan.world;
  call.root = plan.root;
  call.blocks = plan.blocks;
  return call;
}

// Which block of the call a ref means, in the numbers of this rank's own buffers. In all_to_all ranks number the same
// block differently: what rank p sends to rank d is p's input d and d's output p.
uint32_t own_block(const Plan& plan, const Ref& ref) {
  const uint32_t block = ref.block % plan.blocks;
  const auto me = static_cast<uint32_t>(plan.rank);
  if (plan.collective != Collective::kAllToAll || ref.space != Space::kWindow || ref.peer == me) return block;
  return block == me ? ref.peer : kNoStep;
}

// Every rank computes from the same lists where in a post a block is.
Failure check_posted(const Plan& plan, const Ref& ref, bool target) {
  const std::string name = describe(plan, ref);
  if (plan.posts.size() != static_cast<size_t>(plan.world)) return "uses " + name + ", where there are no posts";
  if (place_in_post(plan, ref) == plan.posts[ref.peer].size()) return "uses " + name + ", which is not in that post";
  if (target && ref.peer != plan.rank) return "writes " + name + ", which is another rank's";
  return std::nullopt;
}

// A rank reaches what the peer has, and writes what the peer may write itself.
Failure check_window(const Plan& plan, const Ref& ref, bool target) {
  const std::string name = describe(plan, ref);
  if (ref.peer >= plan.world) return "uses " + name + ", which is no rank's";
  if (ref.block >= plan.blocks) return "uses " + name + ", past the last block";
  if ((ref.flags & kStaging) != 0 && (ref.flags & kTurns) != 0) return check_posted(plan, ref, target);
  if ((ref.flags & kStaging) != 0) return std::nullopt;
  if ((ref.flags & kTurns) != 0) return "takes turns in the caller's " + name;
  if (ref.peer == plan.rank) return "uses " + name + ", which is its own buffer";
  Plan theirs = plan_of_call(plan);
  theirs.rank = ref.peer;
  if ((ref.flags & kPeerOutput) != 0) {
    if (!output_promised(theirs, ref.block)) return "touches " + name + ", which is not that rank's";
    return std::nullopt;
  }
  if (target) return "writes the caller's " + name;
  if (!holds_input(theirs, ref.block)) return "reads " + name + ", which that rank does not have";
  return std::nullopt;
}

// What may be read and written there. The caller's input is never written, also where input and output are one memory.
Failure check_ref(const Plan& plan, const Ref& ref, bool target) {
  const auto name = [&] { return describe(plan, ref); };
  switch (ref.space) {
    case Space::kInput:
      if (target) return "writes the caller's " + name();
      if (!holds_input(plan, ref.block)) return "reads " + name() + ", which this rank does not have";
      break;
    case Space::kOutput:
      if (!output_promised(plan, ref.block)) return "touches " + name() + ", which is not this rank's";
      break;
    case Space::kScratch:
      if (ref.block >= plan.scratch_slots * plan.blocks) return "uses " + name() + " past the scratch memory";
      break;
    case Space::kMailbox:
      if (ref.peer >= plan.world || ref.peer == plan.rank) return "uses " + name() + ", which is no peer";
      if (!std::binary_search(plan.peers.begin(), plan.peers.end(), int{ref.peer})) {
        return "uses " + name() + ", which is not among its peers";
      }
      break;
    case Space::kWindow:
      if (Failure failure = check_window(plan, ref, target)) return failure;
      break;
  }
  if (target && (ref.flags & kScale) != 0) return "flags a target, " + name();
  if (ref.space != Space::kWindow && (ref.flags & (kPeerOutput | kStaging | kTurns)) != 0)
    return "flags no window, " + name();
  return std::nullopt;
}

// One link carries one slice a step and direction, and all memory of a step is of one block.
Failure check_refs_together(const Plan& plan, const Step& step) {
  std::vector<uint16_t> from, to;
  for (const Ref& ref : sources_of(plan, step)) {
    if (ref.space == Space::kMailbox) from.push_back(ref.peer);
  }
  for (const Ref& ref : targets_of(plan, step)) {
    if (ref.space == Space::kMailbox) to.push_back(ref.peer);
  }
  for (std::vector<uint16_t>* peers : {&from, &to}) {
    std::sort(peers->begin(), peers->end());
    if (std::adjacent_find(peers->begin(), peers->end()) != peers->end()) return "uses one mailbox twice";
  }
  std::optional<uint32_t> block;
  bool memory = false;
  for (const Ref& ref : refs_of(plan, step)) {
    memory |= !is_remote(ref);
    const uint32_t its = own_block(plan, ref);
    if (block.value_or(its) != its) return "mixes blocks " + std::to_string(*block) + " and " + std::to_string(its);
    block = its;
  }
  const std::span<const Ref> refs = refs_of(plan, step);
  const bool windows =
      std::any_of(refs.begin(), refs.end(), [](const Ref& ref) { return ref.space == Space::kWindow; });
  if (windows && !(from.empty() && to.empty())) return "uses windows and mailboxes at once";
  if (memory && step.sources == 0) return "writes memory from nothing";
  if (memory && step.targets == 0) return "has no target";
  if (!memory && step.sources > 0 && step.targets > 0) return "has no memory that says how long it is";
  return std::nullopt;
}

// One step by itself. Indices are checked before they are used: a broken plan must be refused, not read past its end.
Failure check_step(const Plan& plan, uint32_t index) {
  const Step& step = plan.steps[index];
  if (size_t{step.first} + step.sources + step.targets > plan.refs.size()) {
    return "rank " + std::to_string(plan.rank) + ", step " + std::to_string(index) + ": refs past the end of the plan";
  }
  Failure failure;
  if (step.sources + step.targets == 0) failure = "does nothing";
  if (step.sources > kMaxStepSources || step.targets > kMaxStepTargets) failure = "has too many sources or targets";
  if (step.after != kNoStep && step.after >= index) failure = "waits for itself or a later step";
  for (const Ref& ref : sources_of(plan, step)) {
    if (!failure) failure = check_ref(plan, ref, false);
  }
  for (const Ref& ref : targets_of(plan, step)) {
    if (!failure) failure = check_ref(plan, ref, true);
  }
  if (!failure) failure = check_refs_together(plan, step);
  if (failure) return place_of(plan, index) + ": " + *failure;
  return std::nullopt;
}

// The number of barriers of a plan: they are numbered from 1.
uint16_t last_barrier(const Plan& plan) {
  uint16_t last = 0;
  for (const Step& step : plan.steps) last = std::max(last, step.barrier);
  return last;
}

// Whether all signals are parts of barriers: in plans over windows, which have no links. Posts are their own signals.
bool needs_barriers(std::span<const Plan> plans) {
  return any_ref(plans, [](const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kTurns) == 0; });
}

// Barriers come one after the other, and every rank has as many. A rank arrives at each by one number for all who wait,
// so it arrives once.
Failure check_barriers(const Plan& plan, std::span<const Plan> plans, bool needed) {
  uint16_t now = 0, arrived = 0;
  for (uint32_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    const bool signal = length_of(plan, step) == kSignalLength;
    if (signal && needed && step.barrier == 0) return place_of(plan, s) + ": a signal outside of a barrier";
    if (step.barrier == 0) continue;
    if (!needed) return place_of(plan, s) + ": a barrier in a collective without windows";
    if (!signal) return place_of(plan, s) + ": a barrier that moves data";
    if ((step.flags & kEachRound) == 0) return place_of(plan, s) + ": a barrier in the first round only";
    if (step.barrier < now) return place_of(plan, s) + ": a barrier after a later one";
    now = step.barrier;
    if (step.targets == 0) continue;
    if (arrived == now) return place_of(plan, s) + ": arrives at one barrier twice";
    arrived = now;
  }
  if (now == last_barrier(plans[0])) return std::nullopt;
  return "rank " + std::to_string(plan.rank) + ": another number of barriers than rank 0";
}

// A post is as long as its list: its writer fills all of it, each block once and before its signal.
Failure check_post(const Plan& plan) {
  if (plan.posts.empty()) return std::nullopt;
  const std::string who = "rank " + std::to_string(plan.rank);
  const std::vector<uint32_t>& blocks = plan.posts[static_cast<size_t>(plan.rank)];
  std::vector<uint32_t> written;
  for (const Step& step : plan.steps) {
    if (length_of(plan, step) == kSignalLength && step.targets > 0) break;
    for (const Ref& ref : targets_of(plan, step)) {
      if ((ref.flags & kTurns) != 0) written.push_back(ref.block);
    }
  }
  if (written != blocks) return who + " posts other blocks than its post has, or in another order";
  std::sort(written.begin(), written.end());
  if (std::adjacent_find(written.begin(), written.end()) != written.end()) return who + " posts a block twice";
  return std::nullopt;
}

// Each plan by itself, and the peers that it and others name. Runs before anything indexes by what a plan says.
Failure check_plan(const Plan& plan, std::span<const Plan> plans, bool barriers) {
  const std::string who = "rank " + std::to_string(plan.rank);
  if (plan.blocks == 0) return who + ": no blocks";
  if (!std::is_sorted(plan.peers.begin(), plan.peers.end())) return who + ": peers are not in order";
  for (int peer : plan.peers) {
    if (peer < 0 || peer >= plan.world || peer == plan.rank) return who + ": peer " + std::to_string(peer) + " is none";
    const std::vector<int>& theirs = plans[static_cast<size_t>(peer)].peers;
    if (!std::binary_search(theirs.begin(), theirs.end(), plan.rank)) {
      return who + " has peer " + std::to_string(peer) + ", which does not have it";
    }
  }
  std::vector<bool> used(plans.size());
  for (uint32_t s = 0; s < plan.steps.size(); ++s) {
    if (Failure failure = check_step(plan, s)) return failure;
    for (const Ref& ref : refs_of(plan, plan.steps[s])) {
      if (ref.space == Space::kMailbox) used[ref.peer] = true;
    }
  }
  for (int peer : plan.peers) {
    if (!used[static_cast<size_t>(peer)]) return who + ": a peer without a mailbox";
  }
  if (Failure failure = check_post(plan)) return failure;
  return check_barriers(plan, plans, barriers);
}

// What all ranks must have alike, since each sizes its memory and its links by it alone.
Failure check_same(const Plan& plan, const Plan& first, size_t index, size_t count) {
  const std::string who = "plan " + std::to_string(index);
  if (plan.rank != static_cast<int>(index) || plan.world != static_cast<int>(count)) {
    return who + " is of rank " + std::to_string(plan.rank) + " in a world of " + std::to_string(plan.world);
  }
  if (plan.collective != first.collective || plan.root != first.root) return who + " is of another call";
  if (plan.blocks != first.blocks) return who + " has another number of blocks";
  if (plan.chunks_in_flight != first.chunks_in_flight || plan.chunks_in_flight == 0)
    return who + " has another number of chunks in flight";
  if (plan.max_peers != first.max_peers) return who + " has another max_peers";
  if (plan.posts != first.posts) return who + " has other posts";
  return std::nullopt;
}

// Signals say how far a rank's steps are. A link may read the memory of a step later than that, and may write it
// earlier, so that data over links and windows in one collective would need another proof than check_values has.
Failure check_unmixed(std::span<const Plan> plans) {
  if (!has_windows(plans)) return std::nullopt;
  if (has_posts(plans) && needs_barriers(plans)) return "posts beside other windows";
  for (const Plan& plan : plans) {
    for (uint32_t s = 0; s < plan.steps.size(); ++s) {
      const Step& step = plan.steps[s];
      if (length_of(plan, step) == kSignalLength) continue;
      for (const Ref& ref : refs_of(plan, step)) {
        if (ref.space != Space::kMailbox) continue;
        return place_of(plan, s) + ": moves data over a link in a collective that uses windows";
      }
    }
  }
  return std::nullopt;
}

// Blocks of this rank's memory, numbered. Input and output are one where the collective can run in place.
uint32_t memory_index(const Plan& plan, const Ref& ref) {
  if (ref.space == Space::kInput) return ref.block;
  if (ref.space == Space::kScratch) return 2 * plan.blocks + ref.block;
  return ref.block + (in_place_possible(plan.collective) ? 0 : plan.blocks);
}

// Whether `earlier` uses memory that `step` writes. Then both are of one block, and have as many slices in each round.
bool uses_targets_of(const Plan& plan, const Step& step, const Step& earlier) {
  for (const Ref& target : targets_of(plan, step)) {
    if (is_remote(target)) continue;
    for (const Ref& ref : refs_of(plan, earlier)) {
      if (!is_remote(ref) && memory_index(plan, ref) == memory_index(plan, target)) return true;
    }
  }
  return false;
}

// What is known of one block of memory while check_overwriting walks a plan.
struct Access {
  uint32_t step = kNoStep;       // last step that reads or writes it
  uint32_t sent_from = kNoStep;  // last step that sends from it
};

}  // namespace

// In all_to_all a length belongs to a pair: sender * world + receiver, the same number on both ends.
uint32_t length_of(const Plan& plan, const Step& step) {
  for (const Ref& ref : refs_of(plan, step)) {
    if (is_remote(ref)) continue;
    const uint32_t me = static_cast<uint32_t>(plan.rank), world = static_cast<uint32_t>(plan.world);
    if (plan.collective != Collective::kAllToAll) return ref.block % plan.blocks;
    return ref.space == Space::kInput ? me * world + ref.block : ref.block * world + me;
  }
  return kSignalLength;
}

uint32_t lengths_of(const Plan& plan) {
  const uint32_t world = static_cast<uint32_t>(plan.world);
  return plan.collective == Collective::kAllToAll ? world * world : plan.blocks;
}

bool has_windows(std::span<const Plan> plans) {
  return any_ref(plans, [](const Ref& ref) { return ref.space == Space::kWindow; });
}

bool has_posts(std::span<const Plan> plans) {
  return any_ref(plans, [](const Ref& ref) { return (ref.flags & kTurns) != 0; });
}

std::optional<std::string> check_structure(std::span<const Plan> plans) {
  if (plans.empty()) return "no plans";
  size_t max_peers = 0;
  for (size_t r = 0; r < plans.size(); ++r) {
    if (Failure failure = check_same(plans[r], plans[0], r, plans.size())) return failure;
    max_peers = std::max(max_peers, plans[r].peers.size());
  }
  const bool barriers = needs_barriers(plans);
  for (const Plan& plan : plans) {
    if (Failure failure = check_plan(plan, plans, barriers)) return failure;
  }
  if (max_peers != plans[0].max_peers) {
    return "max_peers is " + std::to_string(plans[0].max_peers) + ", but a rank has " + std::to_string(max_peers) +
           " peers";
  }
  return check_unmixed(plans);
}

std::optional<std::string> check_overwriting(const Plan& plan) {
  std::vector<Access> accesses(size_t{2 + plan.scratch_slots} * plan.blocks);
  const auto access = [&](const Ref& ref) -> Access& { return accesses[memory_index(plan, ref)]; };
  for (uint32_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    const bool lands = step.sources == 1 && plan.refs[step.first].space == Space::kMailbox;
    bool sends = false;
    for (const Ref& ref : targets_of(plan, step)) sends |= ref.space == Space::kMailbox;
    for (const Ref& ref : targets_of(plan, step)) {
      if (is_remote(ref)) continue;
      const uint32_t needed = lands ? access(ref).step : access(ref).sent_from;
      if (needed == kNoStep || (step.after != kNoStep && step.after >= needed)) continue;
      return place_of(plan, s) + ": overwrites " + describe(plan, ref) + ", which step " + std::to_string(needed) +
             (access(ref).sent_from == needed ? " may still be sending" : " may yet have to use") + "; it waits for " +
             (step.after == kNoStep ? std::string("nothing") : "step " + std::to_string(step.after) + " only");
    }
    if (step.after != kNoStep && !uses_targets_of(plan, step, plan.steps[step.after])) {
      return place_of(plan, s) + ": waits for step " + std::to_string(step.after) +
             ", which does not use the memory that this step writes";
    }
    for (uint32_t i = 0; i < uint32_t{step.sources} + step.targets; ++i) {
      const Ref& ref = plan.refs[step.first + i];
      if (is_remote(ref)) continue;
      access(ref).step = s;
      // A fold goes to a slot or to its target in memory, and is sent from there.
      const bool target = i >= step.sources;
      if (sends && (target || step.sources == 1)) access(ref).sent_from = s;
    }
  }
  return std::nullopt;
}

}  // namespace rondo
