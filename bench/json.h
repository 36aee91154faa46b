#pragma once

#include <nlohmann/json.hpp>

#include "bench/bars.h"
#include "bench/limit.h"
#include "bench/machine.h"
#include "bench/row.h"

namespace rondo::bench {

// The pieces of what --json writes and the limit cache holds (docs/bench-schema.json). Keys keep their order.
using Json = nlohmann::ordered_json;

Json to_json(const Machine& machine);
Json to_json(const Limits& limits);
Json to_json(const Row& row);
Json to_json(const Judged& judged);

// Throws std::exception where something is missing, of another type or out of range.
Limits limits_from_json(const Json& json);
Row row_from_json(const Json& json);

}  // namespace rondo::bench
