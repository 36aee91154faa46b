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

// An all_gather of the library's own: one record of each rank, before or after a call. It has that call's
// number and fingerprint, so that it compares the calls, too. Under the lease.
template <typename Record>
class Gather {
 public:
  // make_run(call) makes what moves it, and may keep a reference to the call. So this object is neither copied
  // nor moved.
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
  // Starts it once run() is ready, after own() has been filled.
  void start(const RunStart& call) {
    const CallBuffers buffers{reinterpret_cast<const std::byte*>(&own()),
                              reinterpret_cast<std::byte*>(records_.data())};
    run_->start({buffers, call.sequence, call.fingerprint});
  }
  // One record a rank, in rank order, once it is done. Peers have written them: check what they say before it
  // is used.
  const std::vector<Record>& records() const { return records_; }

 private:
  const size_t rank_;
  CheckedCall call_;
  std::vector<Record> records_;
  std::unique_ptr<Run> run_;
};

}  // namespace rondo
