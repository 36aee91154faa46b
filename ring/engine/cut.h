#pragma once

#include "ring/base/config.h"
#include "ring/engine/call.h"
#include "ring/plan/layout.h"
#include "ring/plan/plan.h"
#include "transport/fabric.h"

namespace rondo {

// The shape of every link of a communicator.
LinkShape link_shape(const Config& config);

// How a call's blocks are cut. A function of what all ranks know, so that both ends of every link agree.
Cut choose_cut(const CheckedCall& call, const Plan& plan, const Config& config);

// Where the call's blocks lie, for a plan of `plan.chunks` blocks.
Blocks lay_out_blocks(const CheckedCall& call, const Plan& plan, const Cut& cut);

}  // namespace rondo
