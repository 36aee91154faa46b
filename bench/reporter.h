#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/limit.h"
#include "bench/machine.h"
#include "bench/options.h"
#include "bench/progress.h"
#include "bench/session.h"

namespace rondo::bench {

// Rank 0's voice: warnings, the table as it grows, the files at the end.
class Reporter {
 public:
  Reporter(const Options& options, Machine machine, int world);

  // Warnings and the header.
  void begin(const std::string& transport);
  // Valid as long as this object.
  SessionEvents events();
  // Measures the limits of this world and these sizes anew, in another process; nullopt if that failed.
  using Remeasure = std::function<std::optional<Limits>(const std::vector<uint64_t>& sizes, Options::LimitUse use)>;
  // The footer and the files. Where a share is impossible, the limit is measured up to three times more, and the best
  // counts. Returns the exit code: 1 for wrong results, and for a share that stays impossible (on a host with as many
  // busy processes as cores it is left out).
  int finish(std::vector<Row> rows, Limits limits, const Remeasure& remeasure);

 private:
  void print_line(const Case& c, const Line& line);
  bool drop_senseless_shares(std::vector<Row>& rows) const;
  void settle_shares(std::vector<Row>& rows, Limits& limits, const Remeasure& remeasure) const;

  const Options& options_;
  Machine machine_;
  int world_;
  std::string transport_;
  Progress progress_;
  std::optional<Benchmark> printed_;
};

}  // namespace rondo::bench
