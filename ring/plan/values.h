#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ring/plan/plan.h"

namespace rondo {

enum class Buffers : uint8_t { kOutOfPlace, kInPlace };
enum class Scaling : uint8_t { kAtFold, kAtSource };  // PlanRequest::scale_at_source

// Runs one lane of all ranks on symbolic values, a chunk at a time over links without limit, and compares what the
// outputs hold with what the collective promises (goal.h). Each rank's steps run in order and links are first in, first
// out, so the values do not depend on timing: one run stands for all.
std::optional<std::string> check_values(std::span<const Plan> plans, uint32_t lane, Buffers buffers, Scaling scaling);

// The same for signals: after a barrier every rank has heard from every rank.
std::optional<std::string> check_barrier(std::span<const Plan> plans);

}  // namespace rondo
