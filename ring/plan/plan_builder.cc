#include "ring/plan/plan_builder.h"

#include <algorithm>
#include <utility>

#include "ring/base/check.h"
#include "ring/plan/goal.h"

namespace rondo {
PlanBuilder::PlanBuilder(const PlanRequest& request, uint32_t blocks, uint32_t max_peers)
    : reduces_(collective_reduces(request.collective)),
      scale_at_source_(request.scale_at_source),
      in_place_possible_(in_place_possible(request.collective)) {
  plan_.collective = request.collective;
  plan_.algorithm = request.algorithm;
  plan_.rank = request.rank;
  plan_.world = request.topology.world();
  plan_.root = request.root;
  plan_.blocks = blocks;
  plan_.max_peers = max_peers;
  is_peer_.resize(static_cast<size_t>(plan_.world));
}

// The sender's half of a contribution that travels; from_input() is the receiver's.
Ref PlanBuilder::input(uint32_t c) const {
  const uint8_t flags = reduces_ && scale_at_source_ ? kScale : 0;
  return {Space::kInput, flags, 0, c};
}

// The own contribution is always scaled here: a rank that scales at the source folds its own contribution, too.
Ref PlanBuilder::own(uint32_t c) const {
  const uint8_t flags = reduces_ ? kScale : 0;
  return {Space::kInput, flags, 0, c};
}

Ref PlanBuilder::output(uint32_t c) const { return {Space::kOutput, 0, 0, c}; }

Ref PlanBuilder::scratch(uint32_t slot, uint32_t c) {
  plan_.scratch_slots = std::max(plan_.scratch_slots, slot + 1);
  return {Space::kScratch, 0, 0, slot * plan_.blocks + c};
}

// With scale_at_source, input(c) was scaled when it was stored there.
Ref PlanBuilder::scratch_input(uint32_t slot, uint32_t c) {
  Ref ref = scratch(slot, c);
  if (reduces_ && !scale_at_source_) ref.flags = kScale;
  return ref;
}

Ref PlanBuilder::from(int peer, uint32_t c) const { return {Space::kMailbox, 0, static_cast<uint16_t>(peer), c}; }

Ref PlanBuilder::from_input(int peer, uint32_t c) const {
  const uint8_t flags = reduces_ && !scale_at_source_ ? kScale : 0;
  return {Space::kMailbox, flags, static_cast<uint16_t>(peer), c};
}

Ref PlanBuilder::to(int peer, uint32_t c) const { return {Space::kMailbox, 0, static_cast<uint16_t>(peer), c}; }

// From the next rank on: each rank begins with another peer, so that not all send to one port at once.
std::vector<Ref> PlanBuilder::to_others(uint32_t c) const {
  std::vector<Ref> refs;
  for (int k = 1; k < world(); ++k) refs.push_back(to((rank() + k) % world(), c));
  return refs;
}

Ref PlanBuilder::peer_input(int peer, uint32_t c) const {
  const uint8_t flags = reduces_ && !scale_at_source_ ? kScale : 0;
  return {Space::kWindow, flags, static_cast<uint16_t>(peer), c};
}

Ref PlanBuilder::peer_output(int peer, uint32_t c) const {
  return {Space::kWindow, kPeerOutput, static_cast<uint16_t>(peer), c};
}

Ref PlanBuilder::staging(int owner, uint32_t c) const {
  return {Space::kWindow, kStaging, static_cast<uint16_t>(owner), c};
}

Ref PlanBuilder::staged_input(int owner, uint32_t c) const {
  Ref ref = peer_input(owner, c);
  ref.flags |= kStaging;
  return ref;
}

void PlanBuilder::set_post(int rank, std::vector<uint32_t> blocks) {
  plan_.posts.resize(static_cast<size_t>(plan_.world));
  plan_.posts[static_cast<size_t>(rank)] = std::move(blocks);
}

Ref PlanBuilder::posted(int owner, uint32_t c) const {
  Ref ref = staging(owner, c);
  ref.flags |= kTurns;
  return ref;
}

Ref PlanBuilder::posted_input(int owner, uint32_t c) const {
  Ref ref = staged_input(owner, c);
  ref.flags |= kTurns;
  return ref;
}

// Input and output blocks are one memory where the collective can run in place, so that one plan serves both ways.
uint32_t PlanBuilder::memory_index(const Ref& ref) const {
  switch (ref.space) {
    case Space::kInput:
      return ref.block;
    case Space::kOutput:
      return ref.block + (in_place_possible_ ? 0 : plan_.blocks);
    default:
      return ref.block + 2 * plan_.blocks;
  }
}

void PlanBuilder::step(std::span<const Ref> sources, std::span<const Ref> targets, uint16_t flags) {
  RONDO_CHECK(sources.size() <= kMaxStepSources && targets.size() <= kMaxStepTargets, "a step of too many refs");
  Step step;
  step.first = static_cast<uint32_t>(plan_.refs.size());
  step.sources = static_cast<uint8_t>(sources.size());
  step.targets = static_cast<uint8_t>(targets.size());
  step.flags = flags;
  if ((flags & kEachRound) != 0) step.barrier = barrier_;
  plan_.refs.insert(plan_.refs.end(), sources.begin(), sources.end());
  plan_.refs.insert(plan_.refs.end(), targets.begin(), targets.end());

  step.after = after_of(step);
  note_access(step, static_cast<uint32_t>(plan_.steps.size()));
  plan_.steps.push_back(step);
}

PlanBuilder::Access& PlanBuilder::access(const Ref& ref) {
  const uint32_t memory = memory_index(ref);
  if (memory >= accesses_.size()) accesses_.resize(memory + 1);
  return accesses_[memory];
}

// A slice that is received into memory as it is may land before its step's turn comes, while earlier steps still use
// the memory; any other step writes in its turn, when only a link may still read.
uint32_t PlanBuilder::after_of(const Step& step) {
  const bool lands = step.sources == 1 && plan_.refs[step.first].space == Space::kMailbox;
  uint32_t after = kNoStep;
  for (uint32_t i = 0; i < step.targets; ++i) {
    const Ref& ref = plan_.refs[step.first + step.sources + i];
    if (is_remote(ref)) continue;
    const uint32_t last = lands ? access(ref).last : access(ref).sent_from;
    if (last != kNoStep) after = after == kNoStep ? last : std::max(after, last);
  }
  return after;
}

// Remembers which steps use a block last: what after_of() needs for later steps on the same block.
void PlanBuilder::note_access(const Step& step, uint32_t index) {
  bool sends = false;
  for (uint32_t i = step.first; i < plan_.refs.size(); ++i) {
    const Ref& ref = plan_.refs[i];
    if (ref.space != Space::kMailbox) continue;
    is_peer_[ref.peer] = 1;
    sends |= i >= step.first + step.sources;
  }
  for (uint32_t i = step.first; i < plan_.refs.size(); ++i) {
    const Ref& ref = plan_.refs[i];
    if (is_remote(ref)) continue;
    access(ref).last = index;
    // A fold is sent from where it is stored; a copy from there or from its source.
    if (sends && (i >= step.first + step.sources || step.sources == 1)) access(ref).sent_from = index;
  }
}

void PlanBuilder::step(std::initializer_list<Ref> sources, std::initializer_list<Ref> targets, uint16_t flags) {
  step(std::span<const Ref>(sources.begin(), sources.size()), std::span<const Ref>(targets.begin(), targets.size()),
       flags);
}

void PlanBuilder::wide_step(std::span<const Ref> sources, Ref memory, std::span<const Ref> sends, uint16_t flags) {
  // In place `memory` is this rank's own contribution: read before the first partial fold is written there.
  std::vector<Ref> own_first(sources.begin(), sources.end());
  if (sources.size() > kMaxStepSources) {
    std::stable_partition(own_first.begin(), own_first.end(),
                          [](const Ref& ref) { return ref.space == Space::kInput; });
  }
  sources = own_first;
  std::vector<Ref> operands;
  while (sources.size() + operands.size() > kMaxStepSources) {
    const size_t taken = kMaxStepSources - operands.size();
    operands.insert(operands.end(), sources.begin(), sources.begin() + static_cast<ptrdiff_t>(taken));
    step(operands, std::span<const Ref>(&memory, 1));
    operands.assign(1, memory);
    sources = sources.subspan(taken);
  }
  operands.insert(operands.end(), sources.begin(), sources.end());
  std::vector<Ref> targets(1, memory);
  const size_t first = std::min<size_t>(sends.size(), kMaxStepTargets - 1);
  targets.insert(targets.end(), sends.begin(), sends.begin() + static_cast<ptrdiff_t>(first));
  step(operands, targets, flags);
  send_many(memory, sends.subspan(first));
}

// Uses the fewest steps that the limit of targets allows.
void PlanBuilder::send_many(Ref source, std::span<const Ref> sends) {
  while (!sends.empty()) {
    const size_t count = std::min<size_t>(sends.size(), kMaxStepTargets);
    step(std::span<const Ref>(&source, 1), sends.first(count));
    sends = sends.subspan(count);
  }
}

// All signals leave before the first wait, or every rank would wait for all others.
void PlanBuilder::meet(uint16_t flags) {
  const std::vector<Ref> others = to_others(0);
  step({}, others, flags);
  step(others, {}, flags);
}

void PlanBuilder::recv_reduce_send(Ref arriving, int target) {
  step({arriving, own(arriving.block)}, {to(target, arriving.block)});
}

void PlanBuilder::recv_reduce_copy(Ref arriving) {
  step({arriving, own(arriving.block)}, {output(arriving.block)}, kFinish);
}

void PlanBuilder::recv_reduce_copy_send(Ref arriving, int target) {
  step({arriving, own(arriving.block)}, {output(arriving.block), to(target, arriving.block)}, kFinish);
}

Plan PlanBuilder::take() {
  for (int r = 0; r < plan_.world; ++r) {
    if (is_peer_[static_cast<size_t>(r)]) plan_.peers.push_back(r);
  }
  return std::move(plan_);
}

}  // namespace rondo
