#pragma once

#include <optional>
#include <span>
#include <string>

#include "ring/plan/lower.h"

namespace rondo {

// Whether the programs of all ranks run the steps of their plans in order, come to an end, read each message in its
// place, and order every two accesses to the same memory of which one writes: over three calls in a row on the same
// buffers, in place or not, with what the programs of the ranks do to their buffers before and after. Nothing: all is
// well; else why not, in words. Posts: none is overwritten before it has been taken, as far as its sender has heard.
std::optional<std::string> check_streams(std::span<const Plan> plans, std::span<const StreamProgram> programs);

}  // namespace rondo
