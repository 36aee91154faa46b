#include "ring/engine/run/board_run.h"

#include <utility>

#include "ring/engine/call/slicing.h"
#include "ring/engine/run/lanes.h"

namespace rondo {

BoardRun::BoardRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, IslandMemory& island)
    : call_(call), plan_(std::move(plan)), island_(island) {}

bool BoardRun::attach() {
  if (!island_.attach()) return false;
  bool all = true;
  for (const Ref& ref : plan_->refs) {
    if (!OneShotRun::is_post(ref)) continue;
    all &= island_.attach_post(ref.peer,
                               OneShotRun::longest_post(*plan_, ref.peer, call_.count, dtype_bytes(call_.dtype)));
  }
  return all;
}

void BoardRun::start(const RunStart& start) {
  if (bound_) return run_.start_again(start.input, start.output, start.sequence, start.fingerprint);
  const Slicing slicing = OneShotRun::slicing(*plan_, call_.count, dtype_bytes(call_.dtype));
  blocks_ = lay_out_blocks(call_, *plan_, slicing);
  Binding binding = binding_of(call_, *plan_, blocks_, slicing);
  binding.observed = &island_.observed();
  bind_operation(binding, start);
  run_.start(binding, island_.channel());
  bound_ = true;
}

RunFailure BoardRun::failure() {
  RunFailure failure;
  if (run_.refused() < 0) return failure;
  failure.kind = run_.mismatched() ? RunFailure::Kind::kOtherCall : RunFailure::Kind::kCorrupt;
  failure.peer = run_.refused();
  failure.fingerprint = run_.fingerprint_seen();
  failure.what = "a post that is none";
  return failure;
}

}  // namespace rondo
