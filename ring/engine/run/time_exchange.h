#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/route/tuner.h"
#include "ring/engine/run/run.h"

namespace rondo {

// The exchange by which all ranks learn what each of them timed: an all_gather of records before a call, with that
// call's fingerprint. Under the lease.
class TimeExchange {
 public:
  explicit TimeExchange(const CommunicatorContext& context);

  // What run() must run, in a ring or by posts.
  const CheckedCall& call() const { return call_; }
  void set_run(std::unique_ptr<Run> run) { run_ = std::move(run); }
  // Requires set_run(); start() when it is ready().
  Run& run() { return *run_; }
  bool has_run() const { return run_ != nullptr; }
  void start(const TimeRecord& own, const RunStart& start);

  // By rank, once it is done.
  std::span<const TimeRecord> records() const { return records_; }

 private:
  const size_t rank_;
  const CheckedCall call_;
  std::vector<TimeRecord> records_;
  std::unique_ptr<Run> run_;
};

}  // namespace rondo
