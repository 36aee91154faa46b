#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/loop/benchmark.h"

namespace rondo::bench {

// One result, as --json shows it. Times are of one operation, in microseconds; rates are in 10^9 bytes/s.
struct Row {
  std::string library = "rondo";
  std::string collective;
  std::string transport;
  std::string algorithm;
  std::string dtype;
  std::string op;  // "none" where nothing is reduced
  int world = 1;
  uint64_t bytes = 0;
  bool in_place = false;
  std::string buffers = "plain";   // or registered: memory that the library gave
  std::string calls = "blocking";  // or async: started, then waited for
  std::string list = "none";  // or the name of a list of sizes (tensors.h): an operation is one call for each; with
                              // "-fused" behind it: one for all of them
  double time_us = 0;         // the median batch
  double p50_us = 0;
  double p99_us = 0;
  double min_us = 0;
  double max_us = 0;
  double algbw_gbps = 0;
  double busbw_gbps = 0;
  std::optional<double>
      cpu_s_per_gb;  // processor seconds of all ranks per 10^9 bytes that they send as busbw counts them
  std::optional<double> limit_gbps;
  std::optional<double> share_of_limit;
  std::optional<uint64_t> wrong;  // none: not checked

  bool operator==(const Row&) const = default;
};

// Fills times and rates from the batches' times, and the share if there is a limit.
// size_bytes: Row::bytes; bus: bus_factor().
void fill_times(Row& row, const std::vector<double>& batch_us, double bus);
// cpu_us: of one operation, all ranks together.
void fill_cpu(Row& row, double cpu_us, double bus);
void fill_share(Row& row, std::optional<double> limit_gbps);

}  // namespace rondo::bench
