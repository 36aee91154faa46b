#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/route/route.h"

namespace rondo {

class Run;
struct TunedKind;

// A checked call, and what one rank has worked out for all operations that are alike but for their buffers. It holds
// nothing that ranks must agree on beside the call, so each may forget it at any time.
struct PreparedCall : CheckedCall {
  PreparedCall() = default;
  PreparedCall(CheckedCall checked, int world) : CheckedCall(std::move(checked)), bytes(travelling_bytes(world)) {}

  uint64_t bytes = 0;  // CheckedCall::travelling_bytes()
  // By Router::ask(), with `algorithm` and `registered_first`: for buffers that are not registered; kWindow: one of
  // those over windows.
  Alternatives ways;  // none: `algorithm` runs
  RouteReason why = RouteReason::kCheapest;
  uint64_t kind = 0;  // what ranks compare: see fingerprint_of()

  bool tuned() const { return ways.count > 0; }

  // The buffers of the last such call that was checked, which are not checked again; at first what no call has. Under
  // the submission lock.
  const void* good_input = this;
  const void* good_output = this;

  // --- under the lease
  // The route of the last one, as long as RouteTable::goes_on().
  std::optional<Route> route;
  uint64_t route_changes = 0;       // the table's changes, then
  TunedKind* tuned_kind = nullptr;  // there; null: the route is not tuned
  uint32_t* unasked = nullptr;      // likewise: calls that need not ask; null: it does not follow from that
  // The run of the route that the last operation took, and whose plan it runs. Never shared.
  std::shared_ptr<Run> run;
  Algorithm run_algorithm = Algorithm::kAuto;
  // By the cost model, of the algorithm that was observed last.
  Algorithm predicted = Algorithm::kAuto;
  uint64_t predicted_ns = 0;
};

// The last calls of one communicator that were prepared. One thread at a time (the submission lock).
class PreparedCalls {
 public:
  // nullptr: not kept. The one that was found or kept last is compared first.
  const std::shared_ptr<PreparedCall>* find(const CallFields& key) {
    return last_ < kept_.size() && kept_[last_].key == key ? &kept_[last_].call : find_other(key);
  }
  // Takes the place of the one that was kept the longest ago.
  const std::shared_ptr<PreparedCall>& keep(const CallFields& key, std::shared_ptr<PreparedCall> call) {
    last_ = next_;
    next_ = (next_ + 1) % kKept;
    if (last_ == kept_.size()) kept_.emplace_back();
    kept_[last_] = {key, std::move(call)};
    return kept_[last_].call;
  }

 private:
  // Some kilobytes each; the buckets of most models' training steps are fewer.
  static constexpr size_t kKept = 64;
  struct Kept {
    CallFields key;
    std::shared_ptr<PreparedCall> call;  // shared with the operations under way
  };
  const std::shared_ptr<PreparedCall>* find_other(const CallFields& key) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.key == key; });
    if (found == kept_.end()) return nullptr;
    last_ = static_cast<size_t>(found - kept_.begin());
    return &found->call;
  }

  std::vector<Kept> kept_;
  size_t last_ = 0;  // found or kept last
  size_t next_ = 0;  // to be replaced
};

}  // namespace rondo
