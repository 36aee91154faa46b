#include "ring/engine/prepared_call.h"

#include <algorithm>
#include <utility>

#include "ring/base/hash.h"

namespace rondo {
namespace {

// Everything that ranks must agree on in a call, but for its place among the others. How blocks are cut follows from it
// and from settings that were compared at the start.
uint64_t kind_of(uint64_t communicator, const CheckedCall& call, const RouteQuestion& question) {
  // Where each pair knows only its own counts, they are compared slice by slice.
  const uint64_t count = call.uneven ? 0 : call.count;
  return Hash64()
      .add(communicator)
      .add(static_cast<uint64_t>(call.collective) | (static_cast<uint64_t>(call.uneven) << 8) |
           (static_cast<uint64_t>(call.dtype) << 16) | (static_cast<uint64_t>(call.op) << 24) |
           (static_cast<uint64_t>(question.algorithm) << 32) |
           (static_cast<uint64_t>(question.registered_first) << 40) | (static_cast<uint64_t>(call.wire) << 48))
      .add(static_cast<uint64_t>(call.root + 1))
      .add(call.shared_counts)
      .add(call.part)
      .add(call.piece | (static_cast<uint64_t>(call.pieces) << 32))
      .add(count + (call.attaches ? UINT64_MAX / 2 : 0))
      .value();
}

}  // namespace

PreparedCall::PreparedCall(CheckedCall checked, const RouteQuestion& asked, uint64_t communicator)
    : call(std::move(checked)),
      question(asked),
      kind(kind_of(communicator, call, asked)),
      input(call.input),
      output(call.output) {}

CallKey key_of(const CheckedCall& call, Algorithm asked) {
  CallKey key;
  key.collective = call.collective;
  key.dtype = call.dtype;
  key.op = call.op;
  key.wire = call.wire;
  key.asked = asked;
  key.root = call.root;
  key.count = call.count;
  key.scalar = call.scalar;
  key.timeout_ms = call.timeout.count();
  key.list = call.shared_counts;
  key.part = call.part;
  key.piece = call.piece;
  key.pieces = call.pieces;
  return key;
}

const std::shared_ptr<PreparedCall>* PreparedCalls::find_other(const CallKey& key) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.key == key; });
  if (found == kept_.end()) return nullptr;
  last_ = static_cast<size_t>(found - kept_.begin());
  return &found->call;
}

const std::shared_ptr<PreparedCall>& PreparedCalls::keep(const CallKey& key, std::shared_ptr<PreparedCall> call) {
  last_ = next_;
  next_ = (next_ + 1) % kKept;
  if (last_ == kept_.size()) kept_.emplace_back();
  kept_[last_] = {key, std::move(call)};
  return kept_[last_].call;
}

}  // namespace rondo
