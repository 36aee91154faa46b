#include "bench/output/row.h"

#include "bench/loop/statistics.h"

namespace rondo::bench {
// Bytes by microseconds are megabytes by second; a thousandth of that is GB/s.
void fill_times(Row& row, const std::vector<double>& batch_us, double bus) {
  const Summary times = summarize(batch_us);
  row.time_us = row.p50_us = times.median;
  row.p99_us = times.p99;
  row.min_us = times.min;
  row.max_us = times.max;
  row.algbw_gbps = times.median > 0 ? static_cast<double>(row.bytes) / times.median / 1e3 : 0;
  row.busbw_gbps = row.algbw_gbps * bus;
}

// None where nothing has to move: one rank, or no bytes.
void fill_cpu(Row& row, double cpu_us, double bus) {
  const double gigabytes = static_cast<double>(row.bytes) * bus * row.world / 1e9;
  row.cpu_s_per_gb = gigabytes > 0 ? std::optional(cpu_us / 1e6 / gigabytes) : std::nullopt;
}

void fill_share(Row& row, std::optional<double> limit_gbps) {
  row.limit_gbps = limit_gbps;
  row.share_of_limit.reset();
  if (limit_gbps && *limit_gbps > 0) row.share_of_limit = row.busbw_gbps / *limit_gbps;
}

}  // namespace rondo::bench
