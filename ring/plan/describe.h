#pragma once

#include <string>

#include "ring/plan/plan.h"

namespace rondo {

// Plans in words.
std::string describe(const Plan& plan, const Ref& ref);    // "input 3", "mailbox 2", "scratch 1/0" (slot/block)
std::string describe(const Plan& plan, const Step& step);  // "mailbox 0 + input 3* -> output 3, mailbox 2 [finish]"
std::string describe(const Plan& plan);                    // a line a step; * marks a source that is scaled
std::string place_of(const Plan& plan, uint32_t step);     // "rank 1, step 4 (...)"

}  // namespace rondo
