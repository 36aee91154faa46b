// DistOpt in C++: updates and residuals add up to what the exact averages give; ranks stay equal; NaN updates nothing,
// and the error names its gradient.
#include "rondo/dist_opt.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr float kRate = 0.125f;
constexpr size_t kSizes[] = {3000, 7, 500};

float gradient_of(int rank, uint64_t step, size_t tensor, size_t i) {
  Random random(1 + static_cast<uint64_t>(rank) * 1000 + step * 100 + tensor * 10 + i * 100'000);
  return static_cast<float>(random.below(2'000'001)) * 1e-6f - 1.0f;
}

struct Model {
  std::vector<std::vector<float>> parameters, gradients;
  Model() {
    for (const size_t size : kSizes) {
      parameters.emplace_back(size, 1.0f);
      gradients.emplace_back(size);
    }
  }
  std::vector<NamedGradient> list() {
    std::vector<NamedGradient> list;
    for (size_t t = 0; t < parameters.size(); ++t) {
      list.push_back({fmt::format("t{}", t), parameters[t].data(), gradients[t].data(), kSizes[t]});
    }
    return list;
  }
  void compute(int rank, uint64_t step) {
    for (size_t t = 0; t < gradients.size(); ++t) {
      for (size_t i = 0; i < kSizes[t]; ++i) gradients[t][i] = gradient_of(rank, step, t, i);
    }
  }
};

void descend(const NamedGradient& g) {
  for (uint64_t i = 0; i < g.count; ++i) g.parameter[i] -= kRate * g.gradient[i];
}

// early: the gradients become ready one by one, from the last on. outer: DistOptOptions::outer_wire.
void check_training(Communicator& group, Exchange exchange, double bound, bool early = false,
                    WireFormat outer = WireFormat::kNone) {
  Model model;
  if (group.rank() > 0) model.parameters[0][5] = 99.0f;  // until the broadcast
  DistOptOptions options;
  options.exchange = exchange;
  options.spars = 0.3;
  options.bucket_bytes = 4096;
  options.every = 2;
  options.outer_wire = outer;
  DistOpt optimizer(group, model.list(), options);
  constexpr uint64_t kSteps = 4;
  for (uint64_t step = 0; step < kSteps; ++step) {
    model.compute(group.rank(), step);
    for (size_t t = std::size(kSizes); early && t-- > 0;) optimizer.ready(fmt::format("t{}", t));
    optimizer.step(descend);
  }
  for (size_t t = 0; t < std::size(kSizes); ++t) {
    std::vector<double> left(kSizes[t]);
    const std::span<float> residual = optimizer.residual(fmt::format("t{}", t));
    std::copy(residual.begin(), residual.end(), left.begin());
    group.all_reduce(left.data(), left.data(), left.size(), DType::kFloat64, Op::kAverage);
    expect_same_everywhere(group, std::as_bytes(std::span(model.parameters[t])), "parameters");
    for (size_t i = 0; i < kSizes[t]; ++i) {
      double wanted = 1.0;
      for (int r = 0; r < group.size(); ++r) {
        for (uint64_t step = 0; step < kSteps; ++step)
          wanted -= double{kRate} * gradient_of(r, step, t, i) / group.size();
      }
      // What is left of changes is in the unit of a parameter.
      const double rest = outer == WireFormat::kNone ? -double{kRate} * left[i] : left[i];
      const double got = double{model.parameters[t][i]} + rest;
      expect(std::abs(got - wanted) < bound, [&] {
        return fmt::format("exchange {}: tensor {} element {}: {} instead of {}", static_cast<int>(exchange), t, i, got,
                           wanted);
      });
    }
  }
}

}  // namespace

TEST_CASE("DistOpt: every exchange trains what the exact averages train, residuals counted") {
  for (int world = 1; world <= 8; ++world) {
    const auto body = [](Communicator& group) {
      check_training(group, Exchange::kFloat32, 1e-5);
      check_training(group, Exchange::kFloat16, 2e-3);
      check_training(group, Exchange::kBfloat16, 2e-2);
      check_training(group, Exchange::kInt8, 1e-5);
      check_training(group, Exchange::kSparseTopK, 1e-5);
      check_training(group, Exchange::kSparseThreshold, 1e-5);
      check_training(group, Exchange::kLocalSgd, 1e-5);
      for (const WireFormat outer : {WireFormat::kBfloat16, WireFormat::kInt8, WireFormat::kInt4}) {
        check_training(group, Exchange::kLocalSgd, 1e-5, false, outer);
      }
      for (const Exchange exchange : {Exchange::kFloat32, Exchange::kInt8, Exchange::kSparseTopK}) {
        check_training(group, exchange, 1e-5, true);
      }
    };
    CHECK_EQ(run_threads(RankGroup{world}, body), "");
  }
}

TEST_CASE("DistOpt: a partial update averages one partition in each step") {
  const auto body = [](Communicator& group) {
    Model model;
    DistOptOptions options;
    options.exchange = Exchange::kPartialUpdate;
    options.partition_bytes = 1;  // a tensor each
    DistOpt optimizer(group, model.list(), options);
    for (uint64_t step = 0; step < 3; ++step) {
      model.compute(group.rank(), step);
      optimizer.step(descend);
      for (size_t t = 0; t < 3; ++t) {
        std::vector<float> all(2 * kSizes[t]);
        group.all_gather(model.parameters[t].data(), all.data(), kSizes[t], DType::kFloat32);
        const bool equal = std::memcmp(all.data(), all.data() + kSizes[t], kSizes[t] * sizeof(float)) == 0;
        expect(equal == (t == step), fmt::format("tensor {} after step {}", t, step));
      }
    }
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("DistOpt: the outer step of local SGD, and exchanges of single steps") {
  const auto body = [](Communicator& group) {
    for (const bool nesterov : {false, true}) {
      Model model;
      DistOptOptions options;
      options.exchange = Exchange::kLocalSgd;
      options.every = 1;
      options.outer_rate = 0.5f;
      options.outer_momentum = 0.75f;
      options.nesterov = nesterov;
      DistOpt optimizer(group, model.list(), options);
      float wanted = 1.0f, velocity = 0;
      for (int step = 0; step < 3; ++step) {
        // The ranks' mean gradient is 0.5, and the numbers are exact in float32.
        for (std::vector<float>& gradient : model.gradients) {
          gradient.assign(gradient.size(), static_cast<float>(group.rank()));
        }
        optimizer.step(descend);
        const float change = -kRate * 0.5f;
        velocity = 0.75f * velocity + change;
        wanted += 0.5f * (nesterov ? change + 0.75f * velocity : velocity);
        expect(model.parameters[1] == std::vector<float>(7, wanted), fmt::format("step {}", step));
      }
    }
    Model model;
    DistOpt optimizer(group, model.list());
    for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), 2.0f);
    optimizer.step(descend, {.exchange = Exchange::kSparseTopK, .spars = 1.0});
    expect(model.parameters[0][9] == 1.0f - kRate * 2.0f, "a step of another exchange");
    optimizer.ready("t2");
    const auto refused = [&](const std::function<void()>& call) { return code_of(call) == ErrorCode::kInvalid; };
    expect_error([&] { optimizer.ready("t2"); }, ErrorCode::kInvalid, "\"t2\" is ready a second time");
    expect(refused([&] { optimizer.ready("t9"); }), "an unknown gradient");
    optimizer.ready("t1");
    optimizer.ready("t0");
    for (const Exchange other : {Exchange::kInt8, Exchange::kSparseTopK, Exchange::kPartialUpdate}) {
      expect(refused([&] { optimizer.step(descend, {.exchange = other}); }), "too late");
    }
    optimizer.step(descend);
    // A gradient that is ready, though its bucket is not, is none of the next step's.
    optimizer.ready("t0");
    optimizer.step(descend, {.exchange = Exchange::kPartialUpdate});
    const float before = model.parameters[0][9];
    for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), 4.0f);
    optimizer.step(descend);
    expect(model.parameters[0][9] == before - kRate * 4.0f, "an earlier step's gradient");
    expect(refused([&] { optimizer.step(descend, {.exchange = Exchange::kSparseTopK, .spars = 0.0}); }), "spars 0");
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE(
    "DistOpt: changes of local SGD travel during further steps, whose own changes are added to the outer step's") {
  const auto body = [](Communicator& group) {
    Model model;
    DistOptOptions options;
    options.exchange = Exchange::kLocalSgd;
    options.every = 3;
    options.outer_delay = 2;
    DistOpt optimizer(group, model.list(), options);
    const float own = -kRate * static_cast<float>(group.rank()), mean = -kRate * 0.5f;  // of a step; exact in float32
    float wanted = 1.0f;
    for (int step = 0; step < 9; ++step) {
      for (std::vector<float>& gradient : model.gradients) {
        gradient.assign(gradient.size(), static_cast<float>(group.rank()));
      }
      optimizer.step(descend);
      wanted += own;
      if (step % 3 == 1 && step > 1) wanted += 3 * (mean - own);  // of the three steps up to the last average
      expect(model.parameters[1] == std::vector<float>(7, wanted), fmt::format("step {}", step));
      const bool travels = step % 3 != 1 && step > 1;
      for (const std::function<void()>& call :
           {std::function<void()>([&] { optimizer.load({}); }),
            std::function<void()>([&] { optimizer.ready("t2", {.exchange = Exchange::kFloat32}); })}) {
        if (travels) {
          expect_error(call, ErrorCode::kInvalid, "while the parameters' changes travel, until step");
        }
      }
    }
    options.outer_delay = 3;
    CHECK_THROWS_WITH(DistOpt(group, model.list(), options), doctest::Contains("outer_delay is 3; it is below every"));
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("DistOpt: fragments of the parameters have their outer steps in turn; a state saved while changes travel") {
  const auto body = [](Communicator& group) {
    DistOptOptions options;
    options.exchange = Exchange::kLocalSgd;
    options.every = 4;
    options.outer_delay = 1;
    options.outer_fragments = 2;  // t2 and t1 after steps 4, 8, ..., t0 after steps 2, 6, ...
    Model model;
    DistOpt optimizer(group, model.list(), options);
    const float own = -kRate * static_cast<float>(group.rank()), mean = -kRate * 0.5f;  // of a step; exact in float32
    float first = 1.0f, second = 1.0f;
    for (int step = 0; step < 9; ++step) {
      for (std::vector<float>& gradient : model.gradients) {
        gradient.assign(gradient.size(), static_cast<float>(group.rank()));
      }
      optimizer.step(descend);
      first += own;
      second += own;
      if (step == 4 || step == 8) first += 4 * (mean - own);
      if (step == 2) second += 2 * (mean - own);
      if (step == 6) second += 4 * (mean - own);
      for (const size_t t : {1, 2}) {
        expect(model.parameters[t] == std::vector<float>(kSizes[t], first), fmt::format("t{}, step {}", t, step));
      }
      expect(model.parameters[0] == std::vector<float>(kSizes[0], second), fmt::format("t0, step {}", step));
    }

    options.outer_wire = WireFormat::kInt4;
    options.outer_momentum = 0.5f;
    for (const uint64_t saved_at : {2, 3, 4, 5}) {  // t0 travels; nothing; t2 and t1 do; nothing
      Model whole;
      DistOpt straight(group, whole.list(), options);
      std::optional<DistOptState> state;
      std::optional<Model> half;
      for (uint64_t step = 0; step < 10; ++step) {
        whole.compute(group.rank(), step);
        straight.step(descend);
        if (step + 1 != saved_at) continue;
        state = straight.save();
        half = whole;
      }
      std::vector<std::vector<float>> at_save = half->parameters;
      DistOpt resumed(group, half->list(), options);
      half->parameters = at_save;  // the constructor has broadcast those of rank 0
      resumed.load(*state);
      for (uint64_t step = saved_at; step < 10; ++step) {
        half->compute(group.rank(), step);
        resumed.step(descend);
      }
      expect(half->parameters == whole.parameters, fmt::format("other bits after a state of step {}", saved_at));
      for (const DistOptState::Tensor& tensor : straight.save().tensors) {
        expect_same_everywhere(group, std::as_bytes(std::span(tensor.outer)), "the last average");
      }
    }
    const auto refused = [&] { DistOpt(group, model.list(), options); };
    options.outer_fragments = 5;
    CHECK_THROWS_WITH(refused(), doctest::Contains("outer_fragments is 5; it is at most every, which is 4"));
    options.outer_fragments = 0;
    CHECK_THROWS_WITH(refused(), doctest::Contains("outer_fragments are at least 1"));
    options = {.outer_fragments = 2};
    CHECK_THROWS_WITH(refused(), doctest::Contains("outer_fragments is given, and the exchange is not local SGD"));
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("DistOpt: ranks go on with another communicator, and a new one takes over what they have") {
  const auto body = [](Communicator& group) {
    for (const Exchange exchange : {Exchange::kFloat32, Exchange::kInt8, Exchange::kLocalSgd}) {
      DistOptOptions options;
      options.exchange = exchange;
      options.every = 3;
      options.outer_momentum = 0.5f;
      options.outer_delay = options.outer_fragments = exchange == Exchange::kLocalSgd ? 2 : 0;
      if (exchange != Exchange::kLocalSgd) options.outer_fragments = 1;
      Model model;
      std::optional<DistOpt> optimizer(std::in_place, group, model.list(), options);
      for (uint64_t step = 0; step < 7; ++step) {  // of local SGD both fragments travel
        model.compute(group.rank(), step);
        optimizer->step(descend);
      }
      const std::vector<std::vector<float>> before = model.parameters;
      Communicator next = group.dup();
      if (group.rank() == 2) {
        optimizer.reset();
        for (std::vector<float>& parameters : model.parameters) parameters.assign(parameters.size(), 9.0f);
        optimizer.emplace(next, model.list(), options);
      } else {
        optimizer->regroup(next);
        expect(model.parameters == before, "a rank that has missed nothing has other parameters");
      }
      expect(optimizer->steps() == 7, "another number of steps");
      const DistOptState state = optimizer->save();
      for (size_t t = 0; t < std::size(kSizes); ++t) {
        const std::vector<float>& own = exchange == Exchange::kLocalSgd ? state.tensors[t].outer : model.parameters[t];
        std::vector<float> all = own;
        next.broadcast(all, 0);
        expect(all == own && own[0] != 9.0f, "other parameters than rank 0 has");
        if (group.rank() == 2) expect(model.parameters[t] == own, "not those of the last average");
        all = state.tensors[t].momentum;
        next.broadcast(all, 0);
        expect(all == state.tensors[t].momentum, "another momentum");
      }
      for (uint64_t step = 7; step < 12; ++step) {
        model.compute(group.rank(), step);
        optimizer->step(descend);
      }
      next.barrier();
      optimizer.reset();
    }
  };
  CHECK_EQ(run_threads(RankGroup{3}, body), "");
}

TEST_CASE("DistOpt: after an error no gradient is ready, and no exchange is under way") {
  const auto body = [](Communicator& group) {
    for (const Exchange exchange : {Exchange::kFloat16, Exchange::kInt8}) {
      Model model;
      DistOptOptions options;
      options.exchange = exchange;
      options.bucket_bytes = 4096;  // three buckets
      DistOpt optimizer(group, model.list(), options);
      for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), 1.0f);
      model.gradients[2][3] = std::numeric_limits<float>::infinity();
      optimizer.ready("t2");
      expect_error([&] { optimizer.step(descend); }, ErrorCode::kNotFinite);
      for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), 2.0f);
      optimizer.ready("t2");
      optimizer.step(descend);
      expect(std::abs(model.parameters[2][3] - (1.0f - kRate * 2.0f)) < 0.02f, "a gradient of the step before");
    }
    Model model;
    DistOptOptions options;
    options.bucket_bytes = 4096;
    DistOpt optimizer(group, model.list(), options);
    optimizer.ready("t2");
    error_of([&] { group.barrier(); });  // it fails where the other rank is at its abort() already
    group.abort("enough");
    for (int attempt = 0; attempt < 2; ++attempt) {
      expect_error([&] { optimizer.step(descend); }, ErrorCode::kAborted);
      expect_error([&] { optimizer.ready("t2"); }, ErrorCode::kAborted);
    }
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("DistOpt: an exchange under way keeps its memory where the optimizer goes in an end function") {
  const auto body = [](Communicator& group) {
    Model model;
    DistOptOptions options;
    options.bucket_bytes = 4096;  // two buckets
    auto optimizer = std::make_unique<DistOpt>(group, model.list(), options);
    for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), group.rank() + 1.0f);
    uint8_t word = 0;
    if (group.rank() == 0) {
      for (size_t t = std::size(kSizes); t-- > 0;) optimizer->ready(fmt::format("t{}", t));
      std::atomic<bool> gone{false};
      group.recv_async(word, 1).on_end([&](const Error&) {
        optimizer.reset();
        gone = true;
      });
      while (!gone) std::this_thread::yield();
      std::vector<std::vector<float>> others;  // in memory that was given back, if any was
      for (const size_t size : kSizes) others.emplace_back(size, 99.0f);
      group.send(word, 1);
      group.barrier();
      for (size_t t = 0; t < std::size(kSizes); ++t) {
        expect(others[t] == std::vector<float>(kSizes[t], 99.0f), "the exchange has written to others' memory");
      }
      return;
    }
    group.send(word, 0);
    group.recv(word, 0);
    optimizer->step([](const NamedGradient&) {});
    for (size_t t = 0; t < std::size(kSizes); ++t) {
      expect(model.gradients[t] == std::vector<float>(kSizes[t], 1.5f), "the average has others' values");
    }
    group.barrier();
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("DistOpt: a regroup() that is refused, in an end function or a batch, drops no exchange that is under way") {
  RankGroup ranks{2};
  ranks.config.timeout_ms = 10'000;
  const auto body = [](Communicator& group) {
    Model model;
    DistOptOptions options;
    options.bucket_bytes = 4096;  // two buckets
    DistOpt optimizer(group, model.list(), options);
    Communicator next = group.dup();
    for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), group.rank() + 1.0f);
    uint8_t word = 0;
    if (group.rank() == 0) {
      for (size_t t = std::size(kSizes); t-- > 0;) optimizer.ready(fmt::format("t{}", t));
      Error refused;
      std::atomic<bool> over{false};
      group.recv_async(word, 1).on_end([&](const Error&) {
        refused = error_of([&] { optimizer.regroup(next); });
        over = true;
      });
      while (!over) std::this_thread::yield();
      expect_error(refused, ErrorCode::kInvalid, "a function of on_end() must not wait");
      next.batch_begin();
      expect_error([&] { optimizer.regroup(next); }, ErrorCode::kInvalid, "DistOpt::regroup on rank 0: not in a batch");
      next.batch_end();
      // The step averages what was ready, not what is there now.
      for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), 99.0f);
      group.send(word, 1);
    } else {
      group.send(word, 0);
      group.recv(word, 0);  // its part of the exchange comes after that
    }
    optimizer.step([](const NamedGradient&) {});
    for (size_t t = 0; t < std::size(kSizes); ++t) {
      expect(model.gradients[t] == std::vector<float>(kSizes[t], 1.5f), "another average");
    }
    optimizer.regroup(next);
    optimizer.step(descend);
    next.barrier();
  };
  CHECK_EQ(run_threads(ranks, body), "");
}

TEST_CASE("DistOpt: a state resumes to the same bits, and other worlds take the mean residual") {
  DistOptState state;
  DistOptOptions options;
  options.bucket_bytes = 4096;
  options.every = 2;
  const auto first = [&](Communicator& group) {
    Model whole, half;
    DistOpt straight(group, whole.list(), options), before(group, half.list(), options);
    for (uint64_t step = 0; step < 4; ++step) {
      whole.compute(group.rank(), step);
      straight.step(descend);
      if (step >= 2) continue;
      half.compute(group.rank(), step);
      before.step(descend);
    }
    const DistOptState saved = before.save();
    DistOpt after(group, half.list(), options);
    after.load(saved);
    for (uint64_t step = after.steps(); step < 4; ++step) {
      half.compute(group.rank(), step);
      after.step(descend);
    }
    expect(after.steps() == 4 && half.parameters == whole.parameters, "other bits");
    if (group.rank() == 0) state = saved;
  };
  options.exchange = Exchange::kLocalSgd;
  options.outer_wire = WireFormat::kInt4;
  CHECK_EQ(run_threads(RankGroup{2}, first), "");
  options.exchange = Exchange::kInt8;
  options.outer_wire = WireFormat::kNone;
  CHECK_EQ(run_threads(RankGroup{2}, first), "");
  const auto resumed = [&](Communicator& group) {
    Model model;
    DistOpt optimizer(group, model.list(), options);
    optimizer.load(state);
    double left = 0;
    for (const DistOptState::Tensor& tensor : state.tensors) {
      const std::span<float> own = optimizer.residual(tensor.name);
      for (size_t i = 0; i < own.size(); ++i) {
        const double mean = (double{tensor.residuals[i]} + double{tensor.residuals[own.size() + i]}) / 2;
        expect(std::abs(own[i] - mean) < 1e-9, "another residual");
        left += std::abs(mean);
      }
    }
    expect(left > 0, "nothing was left");
    DistOptState other = state;
    other.tensors[0].name = "t7";
    expect_error([&] { optimizer.load(other); }, ErrorCode::kInvalid);
    for (const int world : {0, -1, 3}) {
      other = state;
      other.world = world;
      CHECK_THROWS_AS(optimizer.load(other), Exception);
    }
    other = state;
    other.tensors[1] = other.tensors[0];
    CHECK_THROWS_WITH(optimizer.load(other), doctest::Contains("has \"t0\" twice"));
  };
  CHECK_EQ(run_threads(RankGroup{4}, resumed), "");
}

TEST_CASE("DistOpt: local SGD goes on from a state of another exchange at the parameters that were loaded") {
  const auto body = [](Communicator& group) {
    Model model;
    const DistOptState state = DistOpt(group, model.list()).save();
    DistOptOptions options;
    options.exchange = Exchange::kLocalSgd;
    options.every = 1;
    options.outer_rate = 0.5f;
    DistOpt optimizer(group, model.list(), options);
    for (std::vector<float>& parameters : model.parameters) parameters.assign(parameters.size(), 3.0f);
    optimizer.load(state);
    for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), 2.0f);
    optimizer.step(descend);
    expect(model.parameters[1] == std::vector<float>(7, 3.0f - 0.5f * kRate * 2.0f), "the last average is another");
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("DistOpt: a step in halves, gradients that move or are missing, an exchange of the backward pass's own") {
  const auto body = [](Communicator& group) {
    Model model;
    DistOptOptions options;
    options.bucket_bytes = 4096;  // t2 and t1, t0
    options.clip = 8;
    DistOpt optimizer(group, model.list(), options);
    const auto refuses = [](const std::function<void()>& call) { return code_of(call) == ErrorCode::kInvalid; };
    std::vector<std::vector<float>> moved;
    for (size_t t = 0; t < std::size(kSizes); ++t) {
      moved.emplace_back(kSizes[t], 2.0f * static_cast<float>(group.rank()));
      optimizer.place(fmt::format("t{}", t), moved[t].data());
    }
    for (const char* name : {"t2", "t1"}) optimizer.ready(name, {.exchange = Exchange::kFloat16});
    expect(refuses([&] { optimizer.ready("t0", {.exchange = Exchange::kInt8}); }), "two exchanges in a backward pass");
    optimizer.wait();
    expect(refuses([&] { optimizer.reduce(); }), "another exchange than the backward pass's");
    const uint64_t sent = optimizer.bytes_sent();
    expect(sent == 2 * (kSizes[1] + kSizes[2]), "bytes of a bucket as float16");
    optimizer.reduce({.exchange = Exchange::kFloat16});
    expect(optimizer.bytes_sent() > sent && optimizer.steps() == 0, "the other buckets");
    for (const std::vector<float>& gradient : moved) {
      expect(gradient == std::vector<float>(gradient.size(), 1.0f), "another average");
    }
    optimizer.average({.exchange = Exchange::kFloat16});
    expect(optimizer.steps() == 1 && model.parameters[0] == std::vector<float>(3000, 1.0f), "no update was asked for");

    moved[0].assign(kSizes[0], 9.0f);
    optimizer.place("t1", nullptr);
    expect(refuses([&] { optimizer.reduce(); }), "a gradient that is null");
    expect(refuses([&] { optimizer.step(descend, {.exchange = Exchange::kPartialUpdate}); }), "step with it");
    optimizer.reduce({.exchange = Exchange::kPartialUpdate});
    expect(moved[0] == std::vector<float>(kSizes[0], 8.0f), "clipped");
    optimizer.average({.exchange = Exchange::kPartialUpdate});
    expect(optimizer.steps() == 2, "a step of local updates");
    expect(refuses([&] { optimizer.place("t9", nullptr); }), "an unknown gradient");
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("DistOpt: NaN updates nothing and is named by gradient and rank; what cannot be is refused") {
  const auto body = [](Communicator& group) {
    DistOptOptions options;
    for (const Exchange exchange : {Exchange::kFloat16, Exchange::kInt8, Exchange::kSparseTopK}) {
      Model model;
      options.exchange = exchange;
      DistOpt optimizer(group, model.list(), options);
      model.compute(group.rank(), 0);
      if (group.rank() == 1) model.gradients[1][3] = std::numeric_limits<float>::quiet_NaN();
      const Error error = error_of([&] { optimizer.step(descend); });
      expect_error(error, ErrorCode::kNotFinite, "element 3 of \"t1\"");
      expect(model.parameters[0] == std::vector<float>(3000, 1.0f), "updated");
      expect(error.ranks == std::vector<int>{1}, "it names another rank");
    }
    std::vector<NamedGradient> wrapping = Model().list();
    wrapping[0].count = uint64_t{1} << 62;  // 2^64 bytes
    CHECK_THROWS_WITH(DistOpt(group, wrapping), doctest::Contains("entry 0 of the gradients' counts"));
    // Local SGD finds NaN in the changes that it averages: each rank's own update has been made.
    DistOptOptions outer;
    outer.exchange = Exchange::kLocalSgd;
    outer.outer_wire = WireFormat::kInt8;
    outer.every = 1;
    Model local;
    DistOpt averages(group, local.list(), outer);
    local.compute(group.rank(), 0);
    if (group.rank() == 1) local.gradients[1][3] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH(averages.step(descend), doctest::Contains("element 3 of \"t1\""));
    CHECK_THROWS_WITH(averages.step(descend, {.exchange = Exchange::kInt8}), doctest::Contains("keeps a residual"));
    outer.exchange = Exchange::kFloat32;
    CHECK_THROWS_WITH(DistOpt(group, local.list(), outer),
                      doctest::Contains("outer_wire, outer_delay or outer_fragments is given"));
    Model model;
    options.exchange = Exchange::kSparseTopK;
    options.spars = 0;
    expect_error([&] { DistOpt(group, model.list(), options); }, ErrorCode::kInvalid);
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

}  // namespace rondo::testing
