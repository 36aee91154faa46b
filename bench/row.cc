#include "bench/row.h"

#include <fmt/format.h>

#include "bench/statistics.h"

namespace rondo::bench {
namespace {

template <typename Value>
std::string or_empty(const std::optional<Value>& value) {
  return value ? fmt::format("{}", *value) : "";
}

}  // namespace

void fill_times(Row& row, const std::vector<double>& batch_us, double bus) {
  const Summary times = summarize(batch_us);
  row.time_us = row.p50_us = times.median;
  row.p99_us = times.p99;
  row.min_us = times.min;
  row.max_us = times.max;
  row.algbw_gbps = times.median > 0 ? static_cast<double>(row.bytes) / times.median / 1e3 : 0;
  row.busbw_gbps = row.algbw_gbps * bus;
}

void fill_cpu(Row& row, double cpu_us, double bus) {
  const double gigabytes = static_cast<double>(row.bytes) * bus * row.world / 1e9;
  row.cpu_s_per_gb = gigabytes > 0 ? std::optional(cpu_us / 1e6 / gigabytes) : std::nullopt;
}

void fill_share(Row& row, std::optional<double> limit_gbps) {
  row.limit_gbps = limit_gbps;
  row.share_of_limit.reset();
  if (limit_gbps && *limit_gbps > 0) row.share_of_limit = row.busbw_gbps / *limit_gbps;
}

std::string csv_header() {
  return "library,collective,transport,algorithm,dtype,op,world,bytes,in_place,buffers,list,time_us,p50_us,p99_us,min_"
         "us,max_us,"
         "algbw_gbps,busbw_gbps,cpu_s_per_gb,limit_gbps,share_of_limit,wrong";
}

std::string csv_line(const Row& r) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", r.library, r.collective,
                     r.transport, r.algorithm, r.dtype, r.op, r.world, r.bytes, r.in_place, r.buffers, r.list,
                     r.time_us, r.p50_us, r.p99_us, r.min_us, r.max_us, r.algbw_gbps, r.busbw_gbps,
                     or_empty(r.cpu_s_per_gb), or_empty(r.limit_gbps), or_empty(r.share_of_limit), or_empty(r.wrong));
}

}  // namespace rondo::bench
