#include "ring/plan/describe.h"

#include <span>

namespace rondo {
namespace {

const char* space_name(Space space) {
  switch (space) {
    case Space::kInput:
      return "input";
    case Space::kOutput:
      return "output";
    case Space::kScratch:
      return "scratch";
    case Space::kMailbox:
      return "mailbox";
    case Space::kWindow:
      return "window";
  }
  return "space?";
}

// Which memory of its peer.
const char* window_name(const Ref& ref) {
  return (ref.flags & kTurns) != 0        ? "post"
         : (ref.flags & kStaging) != 0    ? "staging"
         : (ref.flags & kPeerOutput) != 0 ? "output"
                                          : "input";
}

std::string joined(const Plan& plan, std::span<const Ref> refs, const char* separator) {
  std::string text;
  for (const Ref& ref : refs) {
    if (!text.empty()) text += separator;
    text += describe(plan, ref);
  }
  return text;
}

}  // namespace

std::string describe(const Plan& plan, const Ref& ref) {
  std::string text = std::string(space_name(ref.space)) + " ";
  if (ref.space == Space::kMailbox) {
    text += std::to_string(ref.peer);
  } else if (ref.space == Space::kWindow) {
    text += std::to_string(ref.peer) + " " + window_name(ref) + " " + std::to_string(ref.block);
  } else if (ref.space == Space::kScratch && plan.blocks > 0) {
    text += std::to_string(ref.block / plan.blocks) + "/" + std::to_string(ref.block % plan.blocks);
  } else {
    text += std::to_string(ref.block);
  }
  return (ref.flags & kScale) != 0 ? text + "*" : text;
}

std::string describe(const Plan& plan, const Step& step) {
  const std::span<const Ref> refs = refs_of(plan, step);
  std::string text;
  if (step.sources == 0) {
    text = "signal " + joined(plan, refs, ", ");
  } else if (step.targets == 0) {
    text = "wait for " + joined(plan, refs, ", ");
  } else {
    text = joined(plan, sources_of(plan, step), " + ") + " -> " + joined(plan, targets_of(plan, step), ", ");
  }
  if ((step.flags & kFinish) != 0) text += " [finish]";
  if ((step.flags & kEachRound) != 0) text += " [each round]";
  if (step.barrier != 0) text += " [barrier " + std::to_string(step.barrier) + "]";
  return text;
}

// Never reads past the plan: it also describes plans that check_structure() refuses.
std::string place_of(const Plan& plan, uint32_t step) {
  std::string text = "rank " + std::to_string(plan.rank);
  if (step >= plan.steps.size()) return text + ", past its last step";
  return text + ", step " + std::to_string(step) + " (" + describe(plan, plan.steps[step]) + ")";
}

std::string describe(const Plan& plan) {
  std::string text = std::string(collective_name(plan.collective)) + " by " + algorithm_name(plan.algorithm) +
                     ", rank " + std::to_string(plan.rank) + " of " + std::to_string(plan.world);
  if (plan.root >= 0) text += ", root " + std::to_string(plan.root);
  text +=
      ": " + std::to_string(plan.blocks) + " blocks, " + std::to_string(plan.scratch_slots) + " scratch slots, peers";
  for (int peer : plan.peers) text += " " + std::to_string(peer);
  text += "\n";
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const std::string number = std::to_string(s);
    text += std::string(number.size() < 6 ? 6 - number.size() : 1, ' ') + number + "  " + describe(plan, plan.steps[s]);
    if (plan.steps[s].after != kNoStep) text += "  after " + std::to_string(plan.steps[s].after);
    text += "\n";
  }
  return text;
}

}  // namespace rondo
