#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/limit/limit.h"
#include "bench/options.h"
#include "bench/output/machine.h"
#include "bench/output/row.h"

namespace rondo::bench {

// What people read, at most 100 columns wide. All return text without a final newline.

// One size: the same operation out of place and in place, as far as there are both.
struct Line {
  uint64_t bytes = 0;
  std::optional<Row> out_of_place, in_place;
};

// shares: with the columns that compare with the limit.
std::string table_header(bool shares);
// A share above kHighestShare is shown as "-".
std::string table_line(const Line& line, bool shares);
// p50, p99, min and max of each half, as comments below the line.
std::string verbose_lines(const Line& line);

// "# Wrong values: 0", then latency and bandwidth in words.
std::string table_footer(const std::vector<Row>& rows, const Limits& limits);

// Why figures of this run would mean little: one rank, more ranks than cores, a busy host, too little memory.
std::vector<std::string> warnings(const Machine& machine, const Options& options, int world);

// The same after the run: what a hypervisor took of it, if that was much; else nothing.
std::optional<std::string> steal_warning(double steal_share);

}  // namespace rondo::bench
