#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>

#include "ring/base/descriptor.h"
#include "ring/engine/observe/observer.h"
#include "rondo/config.h"

namespace rondo {

// The observer of one join as Config says: with a trace, with metrics that a thread of its own writes or serves, or
// off. Throws Exception(kSystem) where a file or a port cannot be had.
std::shared_ptr<Observer> make_observer(ObservedRank about, const Config& config);

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
  void listen(int port);
  void run();
  void serve(int ready) const;
  void answer(int client) const;
  bool write_file() const;
  std::string text() const;

  const Observer& observer_;
  std::string file_;  // empty: a port
  Descriptor listener_;
  Descriptor stop_;
  const pid_t pid_;
  std::thread thread_;
};

}  // namespace rondo
