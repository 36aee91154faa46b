#include "ring/engine/plans.h"

#include <fmt/format.h>

#include <utility>

#include "ring/plan/choose.h"

namespace rondo {
namespace {

bool scales_at_source(const CheckedCall& call) {
  return collective_reduces(call.collective) && call.op == Op::kPremulSum;
}

}  // namespace

Plans::Plans(int rank, Topology topology, const Config& config)
    : rank_(rank),
      topology_(std::move(topology)),
      configured_(config.algorithm),
      lanes_(static_cast<int>(config.lanes)),
      ahead_(static_cast<int>(config.slices_per_chunk)) {}

Algorithm Plans::choose(const CheckedCall& call, Algorithm asked) const {
  if (asked != Algorithm::kAuto) {
    if (!plan_available(call.collective, asked, topology_)) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("{} on rank {}: there is no {} algorithm for it in a group of {}",
                                  collective_name(call.collective), rank_, algorithm_name(asked), topology_.world()));
    }
    return asked;
  }
  if (configured_ != Algorithm::kAuto && plan_available(call.collective, configured_, topology_)) return configured_;
  return rondo::choose(call.collective, call.total_bytes(topology_.world()), topology_, scales_at_source(call));
}

std::shared_ptr<const Plan> Plans::get(const CheckedCall& call, Algorithm algorithm) {
  const Key key{call.collective, algorithm, call.root, scales_at_source(call)};
  if (last_ && key == last_key_) return last_;
  auto& plan = plans_[key];
  if (!plan) {
    PlanRequest request;
    request.collective = call.collective;
    request.algorithm = algorithm;
    request.rank = rank_;
    request.root = call.root;
    request.lanes = lanes_;
    request.ahead = ahead_;
    request.topology = topology_;
    request.scale_at_source = scales_at_source(call);
    plan = std::make_shared<const Plan>(build_plan(request));
  }
  last_key_ = key;
  last_ = plan;
  return plan;
}

}  // namespace rondo
