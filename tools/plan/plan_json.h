#pragma once

#include <nlohmann/json.hpp>

#include "ring/plan/plan.h"

namespace rondo {

// A plan for programs that draw it. Keys keep their order; flags are there where they are set.
nlohmann::ordered_json plan_json(const Plan& plan);

}  // namespace rondo
