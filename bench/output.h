#pragma once

#include <string>
#include <vector>

#include "bench/bars.h"
#include "bench/limit.h"
#include "bench/machine.h"
#include "bench/row.h"

namespace rondo::bench {

// {"machine": {...}, "limits": {...}, "rows": [...]} (docs/bench-schema.json), and "bars": [...] if there are any.
// Throws Exception(kSystem) if the file cannot be written.
void write_json(const std::string& path, const Machine& machine, const Limits& limits, const std::vector<Row>& rows,
                const std::vector<Judged>& bars = {});
void write_csv(const std::string& path, const std::vector<Row>& rows);

// The rows of a file that write_json() or a peer's driver wrote. Throws Exception(kSystem) naming the file.
std::vector<Row> read_rows(const std::string& path);

}  // namespace rondo::bench
