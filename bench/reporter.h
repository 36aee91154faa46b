#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/limit/limit.h"
#include "bench/output/machine.h"
#include "bench/output/progress.h"
#include "bench/session.h"

namespace rondo::bench {

// Rank 0's voice: warnings, the table as it grows, the files at the end.
class Reporter {
 public:
  Reporter(const Options& options, Machine machine, int world);

  // The header and warnings. transport: that all ranks use, in words.
  void begin(const std::string& transport);
  // Valid as long as this object. shares: the table compares with a limit.
  SessionEvents events(bool shares);
  // Measures the limit of this world and size anew; nullopt if that failed.
  using Remeasure = std::function<std::optional<StreamLimit>(uint64_t bytes)>;
  // The footer and the files. Where a share is above kHighestShare, the limit is measured again and the higher one
  // counts; a share that stays above is left out. Returns the exit code: 1 for wrong results.
  int finish(std::vector<Row> rows, Limits limits, const Remeasure& remeasure);

 private:
  void print_line(const Case& c, const Line& line, bool shares);
  void settle_shares(std::vector<Row>& rows, Limits& limits, const Remeasure& remeasure) const;

  const Options& options_;
  Machine machine_;
  int world_;
  Progress progress_;
  std::string section_;  // what the lines printed last are about
};

}  // namespace rondo::bench
