#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/limit/limit.h"
#include "bench/loop/group.h"
#include "bench/output/row.h"
#include "bench/output/table.h"

namespace rondo::bench {

// What a session tells while it runs; called on rank 0 only.
struct SessionEvents {
  std::function<void(const std::string&)> on_progress;    // "all_reduce 64 MiB in-place (3 of 26)"
  std::function<void(const Case&, const Line&)> on_line;  // in the order of the cases
};

struct SessionSetup {
  std::string transport;  // for the rows
  Limits limits;          // rank 0's
};

// Measures every case with both placements. Collective; the rows are complete on rank 0 and empty
// elsewhere.
std::vector<Row> run_session(Group& group, const Options& options, const SessionSetup& setup,
                             const SessionEvents& events);

}  // namespace rondo::bench
