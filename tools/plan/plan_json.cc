#include "tools/plan/plan_json.h"

#include "ring/plan/describe.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

Json ref_json(const Ref& ref) {
  Json json = {{"space", space_name(ref.space)}};
  if (is_remote(ref)) json["peer"] = ref.peer;
  json["chunk"] = ref.chunk;
  if (ref.space == Space::kWindow) json["of"] = window_name(ref);
  if ((ref.flags & kScale) != 0) json["scale"] = true;
  return json;
}

Json refs_json(std::span<const Ref> refs) {
  Json list = Json::array();
  for (const Ref& ref : refs) list.push_back(ref_json(ref));
  return list;
}

Json step_json(const Plan& plan, const Step& step) {
  Json json = {{"sources", refs_json(sources_of(plan, step))}, {"targets", refs_json(targets_of(plan, step))}};
  if (step.after != kNoStep) json["after"] = step.after;
  if ((step.flags & kFinish) != 0) json["finish"] = true;
  if ((step.flags & kEachRound) != 0) json["each_round"] = true;
  if (step.barrier != 0) json["barrier"] = step.barrier;
  return json;
}

}  // namespace

Json plan_json(const Plan& plan) {
  Json lanes = Json::array();
  for (uint32_t lane = 0; lane < plan.lanes.size(); ++lane) {
    Json steps = Json::array();
    for (const Step& step : steps_of(plan, lane)) steps.push_back(step_json(plan, step));
    lanes.push_back(std::move(steps));
  }
  return {{"collective", collective_name(plan.collective)},
          {"algorithm", algorithm_name(plan.algorithm)},
          {"rank", plan.rank},
          {"world", plan.world},
          {"root", plan.root},
          {"chunks", plan.chunks},
          {"scratch_slots", plan.scratch_slots},
          {"posts", plan.posts},
          {"max_peers", plan.max_peers},
          {"peers", plan.peers},
          {"lanes", std::move(lanes)}};
}

}  // namespace rondo
