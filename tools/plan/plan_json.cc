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

Json refs_json(const Ref* refs, uint32_t count) {
  Json list = Json::array();
  for (uint32_t i = 0; i < count; ++i) list.push_back(ref_json(refs[i]));
  return list;
}

Json step_json(const Plan& plan, const Step& step) {
  const Ref* refs = plan.refs.data() + step.first;
  Json json = {{"sources", refs_json(refs, step.sources)}, {"targets", refs_json(refs + step.sources, step.targets)}};
  if (step.after != kNoStep) json["after"] = step.after;
  if ((step.flags & kFinish) != 0) json["finish"] = true;
  if ((step.flags & kEachRound) != 0) json["each_round"] = true;
  if (step.barrier != 0) json["barrier"] = step.barrier;
  return json;
}

}  // namespace

Json plan_json(const Plan& plan) {
  Json lanes = Json::array();
  for (const Lane& lane : plan.lanes) {
    Json steps = Json::array();
    for (uint32_t s = 0; s < lane.count; ++s) steps.push_back(step_json(plan, plan.steps[lane.first + s]));
    lanes.push_back(std::move(steps));
  }
  return {{"collective", collective_name(plan.collective)},
          {"algorithm", algorithm_name(plan.algorithm)},
          {"rank", plan.rank},
          {"world", plan.world},
          {"root", plan.root},
          {"chunks", plan.chunks},
          {"scratch_slots", plan.scratch_slots},
          {"max_peers", plan.max_peers},
          {"peers", plan.peers},
          {"lanes", std::move(lanes)}};
}

}  // namespace rondo
