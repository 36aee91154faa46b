#include "ring/engine/plans.h"

#include <fmt/format.h>

#include <utility>

#include "ring/plan/choose.h"

namespace rondo {
namespace {

bool scales_at_source(const CheckedCall& call) {
  return collective_reduces(call.collective) && call.op == Op::kPremulSum;
}

// Calls that no plan over these windows can run.
bool no_windows_for(const CheckedCall& call, Algorithm algorithm) {
  const bool raw = algorithm == Algorithm::kPull || algorithm == Algorithm::kRegistered;
  return call.uneven || (raw && scales_at_source(call));
}

}  // namespace

Plans::Plans(int rank, Topology topology, const Config& config)
    : rank_(rank),
      topology_(std::move(topology)),
      configured_(config.algorithm),
      lanes_(static_cast<int>(config.lanes)) {}

Algorithm Plans::choose(const CheckedCall& call, Algorithm asked) const {
  if (asked != Algorithm::kAuto) {
    if (!plan_available(call.collective, asked, topology_)) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("{} on rank {}: there is no {} algorithm for it in a group of {}",
                                  collective_name(call.collective), rank_, algorithm_name(asked), topology_.world()));
    }
    check_windows(call, asked);
    return asked;
  }
  if (configured_ != Algorithm::kAuto && plan_available(call.collective, configured_, topology_) &&
      !(over_windows(configured_) && no_windows_for(call, configured_))) {
    return configured_;
  }
  return rondo::choose(call.collective, call.total_bytes(topology_.world()), topology_, scales_at_source(call));
}

void Plans::check_windows(const CheckedCall& call, Algorithm asked) const {
  if (!over_windows(asked) || !no_windows_for(call, asked)) return;
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("{} on rank {}: the algorithm {} {}", describe_call(call), rank_, algorithm_name(asked),
                              call.uneven ? "takes equal counts only"
                                          : "reads contributions where they lie, so no rank can scale its own"));
}

std::shared_ptr<const Plan> Plans::build(const CheckedCall& call, Algorithm algorithm) const {
  PlanRequest request;
  request.collective = call.collective;
  request.algorithm = algorithm;
  request.rank = rank_;
  request.root = call.root;
  request.lanes = lanes_;
  request.topology = topology_;
  request.scale_at_source = scales_at_source(call);
  return std::make_shared<const Plan>(build_plan(request));
}

Plans::Set Plans::build_set(const CheckedCall& call, Algorithm algorithm) const {
  Set set;
  if (!over_windows(algorithm)) {
    set.plan = build(call, algorithm);
    return set;
  }
  set.staged = build(call, Algorithm::kStaged);
  if (scales_at_source(call)) return set;
  set.pull = build(call, Algorithm::kPull);
  set.registered = build(call, Algorithm::kRegistered);
  return set;
}

const Plans::Set& Plans::get(const CheckedCall& call, Algorithm algorithm) {
  const Key key{call.collective, algorithm, call.root, scales_at_source(call)};
  if (last_ != nullptr && key == last_key_) return *last_;
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, build_set(call, algorithm)).first;
  last_key_ = key;
  last_ = &found->second;
  return *last_;
}

}  // namespace rondo
