#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "ring/base/descriptor.h"
#include "ring/base/output_folder.h"
#include "ring/engine/observe/metrics_server.h"
#include "ring/engine/observe/observer.h"
#include "rondo/config.h"

namespace rondo {

// The observer of one join as Config says: with a trace, with metrics that a thread of its own writes or serves, or
// off. Throws Exception(kSystem) where a file or a port cannot be had.
std::shared_ptr<Observer> make_observer(ObservedRank about, const Config& config);

// Throws what make_observer() would, of a host's ranks, and leaves nothing behind.
void check_outputs(const Config& config, int local_ranks);

// Writes metrics where others read them, on a thread of its own.
class MetricsOutput {
 public:
  // where: "port:9464": GET http://127.0.0.1:(9464 + local rank)/metrics. Else a folder: rondo-rank-R.prom, replaced
  // every 5 s and by the destructor.
  MetricsOutput(const Observer& observer, const std::string& where);
  ~MetricsOutput();
  MetricsOutput(const MetricsOutput&) = delete;
  MetricsOutput& operator=(const MetricsOutput&) = delete;

 private:
  void run();
  template <typename Body>
  void attempt(Body body);
  void write_file() const;
  std::string text() const;

  const Observer& observer_;
  std::optional<MetricsServer> server_;
  std::optional<OutputFolder> folder_;  // one of the two
  std::string file_;                    // in the folder
  bool warned_ = false;                 // the thread's, then the destructor's
  Descriptor stop_;
  const pid_t pid_;
  std::thread thread_;
};

}  // namespace rondo
