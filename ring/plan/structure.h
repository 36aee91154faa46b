#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ring/plan/plan.h"

namespace rondo {

// The length of a step: which block of which rank it moves. Both ends of a mailbox must name the same one.
inline constexpr uint32_t kSignalLength = 0xffffffffu;
uint32_t length_of(const Plan& plan, const Step& step);
uint32_t lengths_of(const Plan& plan);  // lengths are numbered below this
bool has_windows(std::span<const Plan> plans);
bool has_posts(std::span<const Plan> plans);  // windows of which there are two, used in turn

// What can be said of each plan by itself, or of the peers of all: refs in range, inputs never written, outputs written
// only where promised, one block a step, peers and max_peers as used, windows and data over links never in one
// collective. Nothing: all is well; else why not.
std::optional<std::string> check_structure(std::span<const Plan> plans);

// Whether `after` suffices for the weakest executor that keeps the rules (docs/plans.md, "Overwriting"): a send reads
// its memory as late as that allows, and a slice received into memory lands as early. And whether `after` names a step
// on the same memory, so that a block's length changes nothing in what waits for what.
std::optional<std::string> check_overwriting(const Plan& plan);

}  // namespace rondo
