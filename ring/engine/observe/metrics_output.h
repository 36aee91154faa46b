#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>

#include "ring/base/descriptor.h"
#include "ring/base/output_folder.h"
#include "ring/engine/observe/observer.h"
#include "rondo/config.h"

namespace rondo {

// The observer of one join as Config says: with a trace, with metrics that a thread of its own writes, or off.
// Throws Exception(kSystem) where a file cannot be had.
std::shared_ptr<Observer> make_observer(ObservedRank about, const Config& config);

// Throws what make_observer() would, and leaves nothing behind.
void check_outputs(const Config& config);

// Writes metrics where others read them, on a thread of its own.
class MetricsOutput {
 public:
  // In the folder: rondo-rank-R.prom, replaced every 5 s and by the destructor.
  MetricsOutput(const Observer& observer, const std::string& folder);
  ~MetricsOutput();
  MetricsOutput(const MetricsOutput&) = delete;
  MetricsOutput& operator=(const MetricsOutput&) = delete;

 private:
  void run();
  void write_or_warn();
  void write_file() const;

  const Observer& observer_;
  const OutputFolder folder_;
  const std::string file_;  // in the folder
  bool warned_ = false;     // the thread's, then the destructor's
  Descriptor stop_;
  const pid_t pid_;
  std::thread thread_;
};

}  // namespace rondo
