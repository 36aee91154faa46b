#pragma once

#include <functional>
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
  // make_run: what moves the call, which stays where it is as long as this object.
  using MakeRun = std::function<std::unique_ptr<Run>(const CheckedCall& call)>;
  TimeExchange(const CommunicatorContext& context, const MakeRun& make_run);
  TimeExchange(const TimeExchange&) = delete;
  TimeExchange& operator=(const TimeExchange&) = delete;

  Run& run() { return *run_; }
  // Once run() is ready.
  void start(const TimeRecord& own, const RunStart& start);

  // By rank, once it is done.
  std::span<const TimeRecord> records() const { return records_; }

 private:
  const size_t rank_;
  const CheckedCall call_;
  std::vector<TimeRecord> records_;
  const std::unique_ptr<Run> run_;
};

}  // namespace rondo
