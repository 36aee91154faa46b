#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "bench/options.h"
#include "bench/row.h"

namespace rondo::bench {

// What people read: nccl-tests' columns, then the share of the limit. All return text without a final newline.

// One size: the same operation out of place and in place, as far as there are both.
struct Line {
  uint64_t bytes = 0;
  uint64_t count = 0;
  std::string dtype, op;
  int root = -1;
  std::optional<Row> out_of_place, in_place;
};

std::string table_header();
std::string table_line(const Line& line);
// p50, p99, min, max and the algorithm of each half, as comments below the line.
std::string verbose_lines(const Line& line);

// "# Out of bounds values : 0 OK" and "# Avg bus bandwidth : 1.234", as nccl-tests ends.
std::string table_footer(const std::vector<Row>& rows);

// Why figures of this run would mean little: one rank, more ranks than cores, a busy host, too little memory.
std::vector<std::string> warnings(const Machine& machine, const Options& options, int world);

// The same after the run: what a hypervisor took of it, if that was much; else nothing.
std::optional<std::string> steal_warning(double steal_share);

}  // namespace rondo::bench
