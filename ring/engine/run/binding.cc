#include "ring/engine/run/binding.h"

#include <algorithm>

namespace rondo {
namespace {

// A caller's buffer on another rank, which its owner may take back. Staging memory and posts are the library's.
bool is_peers_buffer(const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kStaging) == 0; }

}  // namespace

Binding binding_of(const CheckedCall& call, const Plan& plan, const Blocks& blocks, const Slicing& slicing) {
  Binding binding;
  binding.plan = &plan;
  binding.blocks = &blocks;
  binding.slicing = slicing;
  binding.dtype = call.dtype;
  binding.combine = {call.coded() ? DType::kFloat32 : call.dtype, call.op, call.scalar,
                     static_cast<uint32_t>(plan.world)};
  binding.element_bytes = call.element_bytes();
  binding.pairwise = call.uneven && call.shared_counts == 0;
  return binding;
}

// Works out once for each kind of call what would cost a look at every ref for each slice.
void BoundStep::bind(const Binding& binding, const Step& step) {
  sources = sources_of(*binding.plan, step);
  targets = targets_of(*binding.plan, step);
  for (size_t i = 0; i < sources.size(); ++i) {
    if ((sources[i].flags & kScale) != 0 && combine_scales(binding.combine)) scaled |= uint64_t{1} << i;
  }
  finish = (step.flags & kFinish) != 0 && combine_finishes(binding.combine);
  copies = sources.size() == 1 && scaled == 0 && !finish;
  passes_on = copies && is_mailbox(sources[0]);
  const std::span<const Ref> refs = refs_of(*binding.plan, step);
  peers_buffers = std::any_of(refs.begin(), refs.end(), is_peers_buffer);
}

}  // namespace rondo
