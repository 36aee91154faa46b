// Options that cannot be are INVALID at entry, of calls that are made of calls, too: one rank alone may make the
// mistake, nothing is sent, and the communicator goes on. No configured algorithm refuses the library's own exchanges.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ring/base/types.h"
#include "rondo/dist_opt.h"
#include "rondo/sparse.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr size_t kCount = 1000;
constexpr std::chrono::milliseconds kNegative{-5};
constexpr int kNone = 99;  // a value of no enumeration

using Floats = std::vector<float>;

void expect_works(Communicator& group, const std::string& after) {
  float one = 1;
  group.all_reduce(&one, &one, 1, DType::kFloat32);
  expect(one == static_cast<float>(group.size()), after);
}

struct Training {
  Floats parameter = Floats(kCount, 1), gradient = Floats(kCount, 1);
  std::vector<NamedGradient> list() { return {{"weights", parameter.data(), gradient.data(), kCount}}; }
};

void step(DistOpt& optimizer, const StepOptions& options = {}) {
  optimizer.step([](const NamedGradient&) {}, options);
}

// By what is wrong.
std::map<std::string, std::function<void(Communicator&)>> mistakes() {
  std::map<std::string, std::function<void(Communicator&)>> all;
  const auto call = [&](const std::string& name, const auto& change) {
    for (int c = 0; c < kCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      all[fmt::format("{} of {}", name, collective_name(collective))] = [=](Communicator& group) {
        Floats in(kCount * static_cast<size_t>(group.size())), out(in.size());
        Call made{.collective = collective, .input = in.data(), .output = out.data(), .count = kCount};
        if (collective == Collective::kBroadcast) made.input = out.data();
        if (collective_has_root(collective)) made.root = 0;
        if (collective == Collective::kBarrier) made = {.collective = collective};
        change(made.options);
        group.run(made);
      };
    }
  };
  call("timeout", [](CallOptions& options) { options.timeout = kNegative; });
  call("algorithm", [](CallOptions& options) { options.algorithm = static_cast<Algorithm>(kNone); });
  call("wire format", [](CallOptions& options) { options.wire.format = static_cast<WireFormat>(kNone); });
  const auto sparse = [&](const std::string& name, const SparseOptions& options) {
    all["sparse " + name] = [=](Communicator& group) {
      Floats x(kCount, 1), y(kCount);
      sparse_all_reduce(group, x.data(), y.data(), kCount, options);
    };
  };
  sparse("timeout", {.timeout = kNegative});
  sparse("selection", {.select = static_cast<Select>(kNone)});
  sparse("spars", {.spars = -1});
  const auto training = [&](const std::string& name, const DistOptOptions& options) {
    all["DistOpt " + name] = [=](Communicator& group) {
      Training model;
      DistOpt optimizer(group, model.list(), options);
      step(optimizer);
    };
  };
  training("exchange", {.exchange = static_cast<Exchange>(kNone)});
  training("spars", {.exchange = Exchange::kSparseTopK, .spars = 7});
  training("clip", {.clip = -1});
  training("every", {.every = 0});
  training("outer_wire", {.exchange = Exchange::kLocalSgd, .every = 1, .outer_wire = static_cast<WireFormat>(kNone)});
  all["shrink's timeout"] = [](Communicator& group) { group.shrink(kNegative); };
  all["commit's step"] = [](Communicator& group) { group.commit(-1, 0); };
  return all;
}

}  // namespace

TEST_CASE("every option that cannot be is refused at entry, on the rank that gave it, and the communicator goes on") {
  CHECK_EQ(run_threads(RankGroup{.world = 2},
                       [](Communicator& group) {
                         Training model;
                         DistOpt optimizer(group, model.list());
                         for (const auto& mistake : mistakes()) {
                           const std::string& what = mistake.first;
                           if (group.rank() == 1) {
                             const Error error = error_of([&] { mistake.second(group); });
                             expect(error.code == ErrorCode::kInvalid, what + ": " + error.message);
                           }
                           expect_works(group, what);
                         }
                         for (const bool ready : {false, true}) {
                           const StepOptions none{.exchange = static_cast<Exchange>(kNone)};
                           const auto made = [&] { ready ? optimizer.ready("weights", none) : step(optimizer, none); };
                           expect_error(made, ErrorCode::kInvalid);
                           expect_works(group, "an exchange of a step");
                         }
                         step(optimizer);
                       }),
           "");
}

TEST_CASE("the library's own exchanges run by every configured algorithm") {
  for (int a = 1; a < kAlgorithms; ++a) {
    RankGroup shape{.world = 2};
    shape.config.algorithm = static_cast<Algorithm>(a);
    CAPTURE(algorithm_name(shape.config.algorithm));
    CHECK_EQ(run_processes(shape,
                           [](Communicator& group) {
                             auto* const x = static_cast<float*>(group.allocate(kCount * sizeof(float)));
                             std::fill_n(x, kCount, 1.0f);
                             Communicator part = group.split(0), copy = group.dup();
                             for (const double spars : {0.01, 1.0}) {
                               sparse_all_reduce(group, x, x, kCount, {.spars = spars});
                             }
                             for (int e = 0; e <= static_cast<int>(Exchange::kLocalSgd); ++e) {
                               Training model;
                               DistOpt optimizer(group, model.list(),
                                                 {.exchange = static_cast<Exchange>(e), .every = 1});
                               step(optimizer);
                               optimizer.save();
                             }
                             group.commit(1, 0);
                             group.all_reduce(x, x, kCount, DType::kFloat32);
                             part.destroy();
                             copy.destroy();
                           }),
             "");
  }
}

}  // namespace rondo::testing
