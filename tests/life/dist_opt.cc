#include "tests/life/dist_opt.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "rondo/dist_opt.h"
#include "tests/life/model.h"

namespace rondo::life {
namespace {

// In the order of Exchange.
constexpr std::array kExchanges = {"float32", "float16", "bfloat16", "int8", "topk", "threshold", "partial", "local"};

Exchange exchange_named(const std::string& name) {
  for (size_t i = 0; i < kExchanges.size(); ++i) {
    if (name == kExchanges[i]) return static_cast<Exchange>(i);
  }
  throw std::runtime_error("life: no exchange of DistOpt is named '" + name + "'");
}

class Training {
 public:
  Training(const Step& step, const Seat& seat, Communicator& group)
      : seat_(seat), steps_(static_cast<int>(step.number("steps", 1))), ready_(step.number("ready") != 0) {
    options_.exchange = exchange_named(step.word("exchange", "float32"));
    if (step.has("spars")) options_.spars = step.real("spars");
    options_.bucket_bytes = options_.partition_bytes = static_cast<uint64_t>(step.number("bucket", 2 << 20));
    options_.every = static_cast<uint64_t>(step.number("every", 8));
    options_.outer_fragments = static_cast<uint64_t>(step.number("fragments", 1));
    std::vector<NamedGradient> named;
    for (const uint64_t count : step.numbers("counts")) {
      const size_t t = tensors_.size();
      tensors_.push_back({std::vector<float>(count), std::vector<float>(count), {}, {}, {}});
      for (uint64_t i = 0; i < count; ++i) tensors_[t].parameters[i] = static_cast<float>(input(seat.me, t, 0, i));
    }
    for (size_t t = 0; t < tensors_.size(); ++t) {
      Tensor& tensor = tensors_[t];
      named.push_back({std::to_string(t), tensor.parameters.data(), tensor.gradients.data(), tensor.gradients.size()});
    }
    optimizer_.emplace(group, named, options_);
    for (size_t t = 0; t < tensors_.size(); ++t) tensors_[t].expected.assign(members(), first_parameters(t));
  }

  std::string play() {
    std::string wrong = check_parameters(0);
    for (int k = 1; k <= steps_ && wrong.empty(); ++k) wrong = one_step(k);
    if (wrong.empty() && options_.exchange == Exchange::kInt8) wrong = check_residuals();
    return wrong;
  }

  uint64_t hash() const {
    uint64_t all = 0;
    for (const Tensor& tensor : tensors_) {
      all = all * 31 + hash_of(reinterpret_cast<const std::byte*>(tensor.gradients.data()),
                               tensor.gradients.size() * sizeof(float));
    }
    return on_parameters() ? 0 : all;
  }

 private:
  struct Tensor {
    std::vector<float> parameters, gradients;
    std::vector<std::vector<double>> expected;  // parameters of each member
    SparseModel sparse;
    int last_averaged = 0;  // in turns: the step
  };

  size_t members() const { return static_cast<size_t>(seat_.members); }
  bool on_parameters() const { return options_.exchange >= Exchange::kPartialUpdate; }
  // Which parameters are averaged in a step is DistOpt's choice.
  bool in_turns() const { return options_.exchange == Exchange::kPartialUpdate || options_.outer_fragments > 1; }
  bool sparse() const {
    return options_.exchange == Exchange::kSparseTopK || options_.exchange == Exchange::kSparseThreshold;
  }
  // Element i of tensor t of a member: step 0: its parameters; from 1 on: its gradients.
  double input(int member, size_t t, int step, uint64_t i) const {
    const uint64_t phase = phase_of(member, seat_.salt + static_cast<uint64_t>(step)) + 29 * t;
    return input_cycle(kind()).values[(phase + i) % kPeriod];
  }
  double sum(size_t t, int step, uint64_t i) const {
    double all = 0;
    for (int m = 0; m < seat_.members; ++m) all += input(m, t, step, i);
    return all;
  }
  Kind kind() const { return {DType::kFloat32, Op::kAverage, seat_.members, false}; }
  std::vector<double> first_parameters(size_t t) const {
    std::vector<double> values;
    for (uint64_t i = 0; i < tensors_[t].parameters.size(); ++i) values.push_back(input(0, t, 0, i));
    return values;
  }

  std::string one_step(int k) {
    for (size_t t = tensors_.size(); t-- > 0;) {
      std::vector<float>& gradients = tensors_[t].gradients;
      for (uint64_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(input(seat_.me, t, k, i));
      if (ready_) optimizer_->ready(std::to_string(t));
    }
    std::vector<int> updates(tensors_.size(), 0);
    optimizer_->step([&](const NamedGradient& g) {
      ++updates[std::stoul(g.name)];
      for (uint64_t i = 0; i < g.count; ++i) g.parameter[i] += g.gradient[i];
    });
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (updates[t] != 1) return place(t, k) + "was updated " + std::to_string(updates[t]) + " times";
      if (std::string wrong = check_gradients(t, k); !wrong.empty()) return wrong;
      expect_parameters(t, k);
    }
    return check_parameters(k);
  }

  std::string place(size_t t, int k) const {
    return "tensor " + std::to_string(t) + " in step " + std::to_string(k) + " ";
  }

  std::string check_gradients(size_t t, int k) {
    Tensor& tensor = tensors_[t];
    const float share = 1.0f / static_cast<float>(seat_.members);
    const WireFormat wires[] = {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kBfloat16, WireFormat::kInt8};
    const bool coded = options_.exchange <= Exchange::kInt8 && options_.exchange != Exchange::kFloat32;
    const double bound = coded ? bound_of(kind(), wires[static_cast<int>(options_.exchange)], true, false, true) : 0;
    if (sparse()) select(t, k);
    for (uint64_t i = 0; i < tensor.gradients.size(); ++i) {
      double want = static_cast<float>(sum(t, k, i)) * share;
      if (on_parameters()) want = input(seat_.me, t, k, i);
      if (sparse()) want = tensor.sparse.sum[i] * share;
      if (std::abs(tensor.gradients[i] - want) <= bound) continue;
      return place(t, k) + "has the gradient " + std::to_string(tensor.gradients[i]) + " at " + std::to_string(i) +
             ", must be within " + std::to_string(bound) + " of " + std::to_string(want);
    }
    return "";
  }

  void select(size_t t, int k) {
    std::vector<std::vector<float>> inputs(members(), tensors_[t].gradients);
    for (size_t m = 0; m < members(); ++m) {
      for (uint64_t i = 0; i < inputs[m].size(); ++i)
        inputs[m][i] = static_cast<float>(input(static_cast<int>(m), t, k, i));
    }
    const bool threshold = options_.exchange == Exchange::kSparseThreshold;
    tensors_[t].sparse.step(inputs, threshold, options_.spars.value_or(threshold ? 0.001 : 0.05), true, {});
  }

  // Adds what update() has added, and takes the mean over all members where DistOpt must, or may, do so.
  void expect_parameters(size_t t, int k) {
    Tensor& tensor = tensors_[t];
    for (uint64_t i = 0; i < tensor.parameters.size(); ++i) {
      for (size_t m = 0; m < members(); ++m) {
        tensor.expected[m][i] += on_parameters() ? input(static_cast<int>(m), t, k, i) : tensor.gradients[i];
      }
    }
    const bool whole = options_.exchange == Exchange::kLocalSgd && static_cast<uint64_t>(k) % options_.every == 0;
    if (in_turns() ? fits(tensor, k) : !whole) return;
    tensor.last_averaged = k;
    for (uint64_t i = 0; i < tensor.parameters.size(); ++i) {
      double all = 0;
      for (const std::vector<double>& of_member : tensor.expected) all += of_member[i];
      for (std::vector<double>& of_member : tensor.expected) of_member[i] = all / seat_.members;
    }
  }

  bool fits(const Tensor& tensor, int k) const { return first_wrong(tensor, k) == tensor.parameters.size(); }
  size_t first_wrong(const Tensor& tensor, int k) const {
    // Each step rounds a few times, at magnitudes up to 510 (k + 1).
    const double bound = std::ldexp(510.0 * (k + 1) * (k + 1) * seat_.members, -22);
    const std::vector<double>& expected = tensor.expected[static_cast<size_t>(seat_.me)];
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!(std::abs(tensor.parameters[i] - expected[i]) <= bound)) return i;
    }
    return expected.size();
  }

  std::string check_parameters(int k) const {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = tensors_[t];
      if (const size_t i = first_wrong(tensor, k); i < tensor.parameters.size()) {
        return place(t, k) + "has the parameter " + std::to_string(tensor.parameters[i]) + " at " + std::to_string(i) +
               ", must be " + std::to_string(tensor.expected[static_cast<size_t>(seat_.me)][i]);
      }
      // A partition has at least one tensor; a mean may be what this rank had.
      const bool partial = options_.exchange == Exchange::kPartialUpdate;
      const int turn = partial ? static_cast<int>(tensors_.size()) : static_cast<int>(2 * options_.every);
      const bool late = seat_.members > 1 && k - tensor.last_averaged > turn;
      if (in_turns() && late) return place(t, k) + "was not averaged for long";
    }
    return "";
  }

  // What all ranks have sent and what is left is what all ranks have given.
  std::string check_residuals() {
    const DistOptState state = optimizer_->save();
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const size_t count = tensors_[t].parameters.size();
      if (state.tensors[t].residuals.size() != members() * count) return "save() has residuals of another length";
      for (size_t i = 0; i < count; ++i) {
        double given = 0, left = 0;
        for (int k = 1; k <= steps_; ++k) given += sum(t, k, i);
        for (size_t m = 0; m < members(); ++m) left += state.tensors[t].residuals[m * count + i];
        const double sent =
            (tensors_[t].expected[static_cast<size_t>(seat_.me)][i] - input(0, t, 0, i)) * seat_.members;
        const double bound = std::ldexp(510.0 * (steps_ + 1) * members() * members(), -19);
        if (std::abs(sent + left - given) <= bound || members() == 1) continue;
        return place(t, steps_) + "has given " + std::to_string(given) + " at " + std::to_string(i) + ", sent " +
               std::to_string(sent) + " and kept " + std::to_string(left);
      }
    }
    return "";
  }

  const Seat seat_;
  const int steps_;
  const bool ready_;
  DistOptOptions options_;
  std::vector<Tensor> tensors_;
  std::optional<DistOpt> optimizer_;
};

}  // namespace

std::string play_dist_opt(const Step& step, const Seat& seat, Communicator& group, uint64_t* hash) {
  Training training(step, seat, group);
  std::string wrong = training.play();
  *hash = training.hash();
  return wrong;
}

}  // namespace rondo::life
