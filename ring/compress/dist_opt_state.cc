// Residuals, and checkpoints of them.
#include <fmt/format.h>

#include <set>
#include <string_view>

#include "kernels/machine.h"
#include "ring/compress/compound_call.h"
#include "ring/compress/dist_opt_options.h"
#include "rondo/dist_opt.h"

namespace rondo {

using dist_opt::refuse;

std::span<float> DistOpt::residual(const std::string& name) {
  const size_t i = index_of(name);
  return {buckets_[places_[i].bucket].residual.data() + places_[i].offset, gradients_[i].count};
}

// Changes that travel arrive first, so the state is that of one step. All ranks get the residuals of all ranks.
DistOptState DistOpt::save() {
  return CompoundCall::run(*group_, Purpose::kDistOpt, "DistOpt::save", [this](const CompoundCall& call) {
    end_changes({});
    DistOptState state;
    state.steps = steps_;
    state.world = call.size();
    for (size_t i = 0; i < gradients_.size(); ++i) {
      DistOptState::Tensor& tensor = state.tensors.emplace_back();
      tensor.name = gradients_[i].name;
      const std::span<float> own = residual(tensor.name);
      tensor.residuals.resize(own.size() * static_cast<size_t>(call.size()));
      call->all_gather(own.data(), tensor.residuals.data(), own.size(), DType::kFloat32, call.options());
      if (i >= outer_.size()) continue;
      tensor.outer = outer_[i];
      tensor.momentum = momentum_[i];
    }
    return state;
  });
}

// Everything is checked before anything is changed: a refused state leaves the optimizer as it was.
void DistOpt::load(const DistOptState& state) {
  refuse_meanwhile("load()");
  const auto saved = static_cast<size_t>(state.world), rank = static_cast<size_t>(group_->rank());
  if (state.world < 1 || state.tensors.size() != gradients_.size()) {
    refuse(*group_, fmt::format("the state is of {} tensors and {} ranks; there are {} gradients", state.tensors.size(),
                                state.world, gradients_.size()));
  }
  std::set<std::string_view> names;
  for (const DistOptState::Tensor& tensor : state.tensors) {
    const uint64_t count = gradients_[index_of(tensor.name)].count, numbers = tensor.residuals.size();
    if (!names.insert(tensor.name).second) refuse(*group_, fmt::format("the state has \"{}\" twice", tensor.name));
    if (numbers % saved != 0 || numbers / saved != count) {
      refuse(*group_, fmt::format("the state's residuals of \"{}\" are {} numbers; {} ranks have {} each", tensor.name,
                                  numbers, saved, count));
    }
  }
  // The mean of another world's residuals must have the same bits on all ranks, whatever mode their threads are in.
  const DefaultFloatMode mode;
  for (const DistOptState::Tensor& tensor : state.tensors) {
    const std::span<float> own = residual(tensor.name);
    const size_t i = index_of(tensor.name), count = own.size();
    for (size_t e = 0; e < count; ++e) {
      double sum = 0;
      for (size_t r = 0; r < saved; ++r) sum += double{tensor.residuals[r * count + e]};
      const bool same = state.world == group_->size();
      own[e] = same ? tensor.residuals[rank * count + e] : static_cast<float>(sum / static_cast<double>(saved));
    }
    if (i >= outer_.size()) continue;
    if (tensor.outer.size() == count && tensor.momentum.size() == count) {
      outer_[i] = tensor.outer;
      momentum_[i] = tensor.momentum;
    } else {  // another exchange has saved it
      outer_[i].assign(gradients_[i].parameter, gradients_[i].parameter + count);
      momentum_[i].assign(count, 0.0f);
    }
  }
  steps_ = state.steps;
}

}  // namespace rondo
