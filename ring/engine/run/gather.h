#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/run/run.h"

namespace rondo {

// An all_gather of the library's own, of a record of each rank: before or after a call, with that call's fingerprint,
// so that it compares the calls. Under the lease.
template <typename Record>
class Gather {
 public:
  // make_run(call): what moves the call, which stays where it is as long as this object.
  template <typename MakeRun>
  Gather(const CommunicatorContext& context, const MakeRun& make_run)
      : rank_(static_cast<size_t>(context.rank)), records_(context.members.size()) {
    call_.collective = Collective::kAllGather;
    call_.dtype = DType::kUint8;
    call_.count = sizeof(Record);
    Blocks blocks;
    for (uint64_t at = 0; at < records_.size(); ++at) blocks.output.push_back({at * call_.count, call_.count});
    blocks.input.resize(records_.size());
    blocks.input[rank_] = {0, call_.count};
    call_.blocks = std::make_shared<const Blocks>(std::move(blocks));
    run_ = make_run(call_);
  }
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;

  Record& own() { return records_[rank_]; }
  Run& run() { return *run_; }
  // Once run() is ready; it is what moves it.
  void start(const RunStart& call) {
    const CallBuffers buffers{reinterpret_cast<const std::byte*>(&own()),
                              reinterpret_cast<std::byte*>(records_.data())};
    run_->start({buffers, call.sequence, call.fingerprint});
  }
  // By rank, once it is done.
  const std::vector<Record>& records() const { return records_; }

 private:
  const size_t rank_;
  CheckedCall call_;
  std::vector<Record> records_;
  std::unique_ptr<Run> run_;
};

}  // namespace rondo
