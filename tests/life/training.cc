#include <cstring>
#include <optional>

#include "tests/life/dist_opt.h"
#include "tests/life/rank.h"

namespace rondo::life {

void Thread::sparse(const Step& step, Member& member) {
  const auto count = static_cast<uint64_t>(step.number("count"));
  const Seat here = seat(step, member);
  const Kind kind{DType::kFloat32, Op::kSum, here.members, false};
  std::vector<std::vector<float>> inputs;
  for (int m = 0; m < here.members; ++m) {
    inputs.emplace_back(count);
    fill(input_cycle(kind), phase_of(m, here.salt), reinterpret_cast<std::byte*>(inputs.back().data()), count);
  }
  const std::vector<uint64_t> tensors = step.numbers("tensors");
  const bool residual = step.number("residual") != 0, inside = step.number("place") != 0;
  SparseOptions options;
  options.spars = step.real("spars", 0.05);
  options.tensors = tensors;
  if (step.word("select") == "threshold") options.select = Select::kThreshold;
  if (residual) options.residual = memory_.residual(step.line, count).data();
  SparseModel& model = sparse_[step.line];
  if (model.residuals.size() != inputs.size()) model.residuals.clear();
  model.step(inputs, options.select == Select::kThreshold, options.spars, residual, tensors);

  Flight flight(step);
  const size_t bytes = count * sizeof(float);
  Watched out = memory_.take({0, 0, 1}, step.of_member("out", here.me, "p"), bytes, flight.fresh);
  Watched in = inside ? out : memory_.take({0, 0, 0}, step.of_member("in", here.me, "p"), bytes, flight.fresh);
  out.dtype = in.dtype = DType::kFloat32;
  std::memcpy(in.data, inputs[static_cast<size_t>(here.me)].data(), bytes);
  in.snapshot(bytes);
  out.snapshot(bytes);
  std::memcpy(out.expected.data() + out.at(out.data), model.sum.data(), bytes);
  const auto* input = reinterpret_cast<const float*>(in.data);
  auto* output = reinterpret_cast<float*>(out.data);
  flight.watched.push_back(std::move(out));
  if (!inside) flight.watched.push_back(std::move(in));
  std::optional<testing::FloatMode> mode(floats_);
  const Error error = member.group->sparse(input, output, count, options);
  mode.reset();
  must(error, "");
  check(flight, member);
  if (residual && memory_.residual(step.line, count) != model.residuals[static_cast<size_t>(here.me)]) {
    fail("the residual is wrong");
  }
}

// Exists in C++ alone.
void Thread::distopt(const Step& step, Member& member) {
  if (!life_.all_are("cpp")) return;
  uint64_t hash = 0;
  std::string wrong;
  try {
    wrong = play_dist_opt(step, seat(step, member), *member.group->communicator(), &hash);
  } catch (const Exception& exception) {
    wrong = said(exception.error());
  }
  if (!wrong.empty()) fail(wrong);
  report_.bits(step.line, member.ranks[0], hash);
}

}  // namespace rondo::life
