#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/observe/observer.h"
#include "ring/engine/route/route.h"
#include "ring/engine/run/run.h"

namespace rondo {

// What one rank has worked out for a call, for all operations that are alike but for their buffers: the checked
// arguments, the question of their route, and the run of the route that the last of them took. It holds nothing that
// ranks must agree on, so each rank may forget it at any time.
class PreparedCall : public std::enable_shared_from_this<PreparedCall> {
 public:
  // A run and the algorithm whose plan it runs.
  struct Body {
    Algorithm algorithm = Algorithm::kAuto;
    std::unique_ptr<Run> run;
  };
  // A route that follows from the table of routes alone.
  struct KeptRoute {
    Route route;
    uint64_t version = 0;  // of the table then
  };
  // By the cost model, of the algorithm that was observed last.
  struct Prediction {
    Algorithm algorithm = Algorithm::kAuto;
    uint64_t nanoseconds = 0;
  };

  PreparedCall(CheckedCall checked, const RouteQuestion& asked, uint64_t communicator);

  const CheckedCall call;  // with the buffers that it was made from: those of an operation are its own
  const RouteQuestion question;
  const uint64_t kind;  // what ranks compare: see fingerprint_of()

  // Under the lease.
  Body body;
  std::optional<KeptRoute> kept_route;
  Prediction prediction;

  // The buffers that were checked last. Under the submission lock.
  const void* input;
  const void* output;
};

// What an observer is told of such a call.
inline Observer::Call observed_call(const PreparedCall& prepared, int world, Algorithm algorithm) {
  const CheckedCall& call = prepared.call;
  return {call.collective, call.dtype, call.op, algorithm, call.root, call.total_bytes(world)};
}

// The fields of a call that is not uneven, and not checked: calls with equal fields are alike but for their buffers.
inline CallFields fields_of(const Call& call) {
  return {.purpose = call.options.purpose,
          .collective = call.collective,
          .dtype = call.dtype,
          .op = call.op,
          .wire = call.options.wire.format,
          .asked = call.options.algorithm,
          .root = call.root,
          .count = call.count,
          .scalar = call.options.scalar,
          .timeout = call.options.timeout};
}

// The last calls of one communicator that were prepared. One thread at a time (the submission lock).
class PreparedCalls {
 public:
  // nullptr: not kept. The one that was found or kept last is compared first.
  const std::shared_ptr<PreparedCall>* find(const CallFields& key) {
    return last_ < kept_.size() && kept_[last_].key == key ? &kept_[last_].call : find_other(key);
  }
  const std::shared_ptr<PreparedCall>& keep(const CallFields& key, std::shared_ptr<PreparedCall> call);

 private:
  // Some kilobytes each; the buckets of most models' training steps are fewer.
  static constexpr size_t kKept = 64;
  struct Kept {
    CallFields key;
    std::shared_ptr<PreparedCall> call;  // shared with the operations under way
  };
  const std::shared_ptr<PreparedCall>* find_other(const CallFields& key);

  std::vector<Kept> kept_;
  size_t last_ = 0;  // found or kept last
  size_t next_ = 0;  // to be replaced
};

}  // namespace rondo
