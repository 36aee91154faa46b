#pragma once

#include <string>
#include <vector>

#include "bench/limit/limit.h"
#include "bench/output/machine.h"
#include "bench/output/row.h"

namespace rondo::bench {

// {"machine": {...}, "limits": {...}, "rows": [...]} (docs/bench-schema.json). Throws Exception(kSystem) if the
// file cannot be written.
void write_json(const std::string& path, const Machine& machine, const Limits& limits, const std::vector<Row>& rows);

// What the subcommands print, each a line.
std::string json_of(const Machine& machine);
std::string json_of(const StreamLimit& limit);
std::string json_of_time(double us);
// What such lines say. Throw std::exception where that is none.
StreamLimit stream_limit_of(const std::string& json);
double time_of(const std::string& json);

}  // namespace rondo::bench
