// Sparse all_reduce, random shapes, worlds 1..8: exact selections, the same bits on all ranks; what is sent and what
// the residual keeps are the input, exactly; full selections become dense.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "ring/compress/compound_call.h"
#include "ring/compress/selection.h"
#include "ring/compress/selection_code.h"
#include "rondo/sparse.h"
#include "tests/support/errors.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Floats = std::vector<float>;

// Few different values, so that magnitudes are equal often.
Floats values_of(uint64_t seed, int rank, size_t count, bool ties) {
  Random random(seed * 64 + static_cast<uint64_t>(rank));
  Floats values(count);
  for (float& value : values) {
    value =
        ties ? static_cast<float>(random.below(7)) - 3.0f : static_cast<float>(random.below(2'000'001)) * 1e-6f - 1.0f;
  }
  return values;
}

// By sorting: which elements go.
std::vector<bool> reference_selection(const Floats& u, const SparseOptions& options) {
  std::vector<bool> chosen(u.size());
  if (options.select == Select::kThreshold) {
    for (size_t i = 0; i < u.size(); ++i) chosen[i] = std::abs(double{u[i]}) >= options.spars;
    return chosen;
  }
  std::vector<size_t> order(u.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return std::abs(u[a]) > std::abs(u[b]); });
  const auto k = static_cast<size_t>(std::ceil(options.spars * static_cast<double>(u.size())));
  for (size_t i = 0; i < k; ++i) chosen[order[i]] = true;
  return chosen;
}

void check_call(Communicator& group, uint64_t seed) {
  Random random(seed);
  constexpr size_t kCounts[] = {1, 2, 31, 32, 33, 1000, 20'000, 150'000};
  constexpr double kTop[] = {1e-6, 0.001, 0.01, 0.05, 0.3, 1.0};
  constexpr double kThresholds[] = {0.0, 0.3, 1.0, 2.0, 100.0};
  const size_t count = kCounts[random.below(std::size(kCounts))];
  const bool ties = random.chance(50), in_place = random.chance(50);
  SparseOptions options;
  options.select = random.chance(60) ? Select::kTopK : Select::kThreshold;
  options.spars = options.select == Select::kTopK ? kTop[random.below(6)] : kThresholds[random.below(5)];
  const std::string text = fmt::format("{} of {}, spars {}, world {}, seed {}", static_cast<int>(options.select), count,
                                       options.spars, group.size(), seed);
  Floats residual(count), kept(count);
  options.residual = residual.data();
  for (uint64_t call = 0; call < 3; ++call) {
    Floats input = values_of(seed + call, group.rank(), count, ties), u(count), output(count);
    for (size_t i = 0; i < count; ++i) u[i] = input[i] + kept[i];
    const std::vector<bool> chosen = reference_selection(u, options);
    float* target = in_place ? input.data() : output.data();
    const SparseReport report = sparse_all_reduce(group, input.data(), target, count, options);
    expect(report.selected == static_cast<uint64_t>(std::count(chosen.begin(), chosen.end(), true)),
           fmt::format("{}: {} selected", text, report.selected));
    Floats sent(count), all(count * static_cast<size_t>(group.size()));
    for (size_t i = 0; i < count; ++i) {
      sent[i] = chosen[i] ? u[i] : 0.0f;
      kept[i] = chosen[i] ? 0.0f : u[i];
    }
    expect(std::memcmp(kept.data(), residual.data(), count * sizeof(float)) == 0, text + ": another residual");
    group.all_gather(sent.data(), all.data(), count, DType::kFloat32);
    const float bound = report.route == SparseRoute::kDense ? 1e-5f : 0.0f;  // the others add in rank order
    for (size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (size_t r = 0; r < static_cast<size_t>(group.size()); ++r) sum += all[r * count + i];
      expect(std::abs(sum - target[i]) <= bound, [&] { return fmt::format("{}: element {}", text, i); });
    }
    expect_same_everywhere(group, std::as_bytes(std::span(target, count)), text);
  }
}

// What rank 1 of 2 sends instead of a selection of 1000 elements.
struct Hostile {
  uint64_t header[3] = {1, 0, 1000};  // selected, not finite, count
  std::vector<uint32_t> words = {7, 0};
};
void send_hostile(Communicator& group, const Hostile& sent) {
  CompoundCall::run(group, Purpose::kSparse, "sparse_all_reduce", [&](const CompoundCall& call) {
    uint64_t all[6];
    call->all_gather(sent.header, all, 3, DType::kUint64, call.options());
    const uint64_t words[2] = {2, sent.words.size()};
    std::vector<uint32_t> out(2 + sent.words.size());
    call->all_gather_v(sent.words.data(), out.data(), words, {}, DType::kUint32, call.options());
    call->barrier();  // until rank 0 has ended it
  });
}

}  // namespace

TEST_CASE("sparse all_reduce: what no selection is ends in CORRUPT that names rank and number, on all ranks") {
  const std::vector<uint32_t> nothing(32), bitmap(32 + 999, 0xffffffffu);
  std::vector<uint32_t> beyond(32 + 40, 0);
  for (size_t i = 0; i < 40; ++i) beyond[31] |= i < 24 ? 1u << (8 + i) : 0;  // elements 1000 to 1023
  beyond[0] = 0xffff;
  const std::pair<Hostile, const char*> cases[] = {
      {{{uint64_t{1} << 63, 0, 1000}, {}}, "the number of its selected elements is 9223372036854775808"},
      {{{1001, 0, 1000}, {}}, "is 1001; it is at most 1000"},
      {{{1, 1001, 1000}, {}}, "the place of an element that is not finite is 1001"},
      {{{1, 0, 1000}, {1000, 0}}, "its selection names is 0; it must be 1"},
      {{{1, 0, 1000}, {0xffffffffu, 0}}, "its selection names is 0; it must be 1"},
      {{{40, 0, 1000}, std::vector<uint32_t>(32 + 40)}, "its selection names is 0; it must be 40"},
      {{{40, 0, 1000}, std::vector<uint32_t>(32 + 40, 0xffffffffu)}, "its selection names is 1024; it must be 40"},
      {{{40, 0, 1000}, beyond}, "its selection names is 16; it must be 40"},
  };
  for (const auto& one : cases) {
    const Hostile& sent = one.first;
    const char* const words = one.second;
    CAPTURE(words);
    CHECK_EQ(run_threads(RankGroup{2},
                         [&](Communicator& group) {
                           Floats x(1000, 1.0f);
                           x[5] = 2.0f;
                           SparseOptions options;
                           options.spars = 0.001;
                           const Error error = error_of([&] {
                             if (group.rank() == 1) return send_hostile(group, sent);
                             sparse_all_reduce(group, x.data(), x.data(), x.size(), options);
                           });
                           expect_error(error, ErrorCode::kCorrupt, words);
                           expect_error(error, ErrorCode::kCorrupt, "on rank 0: rank 1 says");
                         }),
             "");
  }
}

TEST_CASE("sparse all_reduce: counts that no merge has end in CORRUPT, on all ranks") {
  constexpr uint64_t kCount = 300'000;
  for (const bool in_range : {true, false}) {
    CAPTURE(in_range);
    const auto hostile = [&](const CompoundCall& call) {
      const auto world = static_cast<size_t>(call.size());
      const uint64_t range = kCount / world, header[3] = {kCount / 20, 0, kCount};
      std::vector<uint64_t> all(3 * world * world), counts(world, in_range ? range + 1 : 0), arriving, none(world);
      call->all_gather(header, all.data(), 3, DType::kUint64, call.options());
      call->all_gather(counts.data(), all.data(), world, DType::kUint64, call.options());
      if (in_range) return call->barrier();
      for (size_t r = 0; r < world; ++r) arriving.push_back(selection_words(all[r * world + 1], range));
      std::vector<uint32_t> words(std::accumulate(arriving.begin(), arriving.end(), uint64_t{0}));
      call->all_to_all_v(nullptr, none, {}, words.data(), arriving, {}, DType::kUint32, call.options());
      counts[0] = UINT64_MAX / 2;
      call->all_gather(counts.data(), all.data(), 1, DType::kUint64, call.options());
      call->barrier();
    };
    const auto body = [&](Communicator& group) {
      Floats x = values_of(1, group.rank(), kCount, false);
      const auto call = [&] {
        if (group.rank() == 1) return CompoundCall::run(group, Purpose::kSparse, "sparse_all_reduce", hostile);
        sparse_all_reduce(group, x.data(), x.data(), kCount);
      };
      expect_error(call, ErrorCode::kCorrupt,
                   in_range ? "in a range is 50001; it is at most 50000" : "is 9223372036854775807");
    };
    CHECK_EQ(run_threads(RankGroup{6}, body), "");
  }
}

TEST_CASE("sparse all_reduce: random calls, worlds 1..8") {
  for (int world = 1; world <= 8; ++world) {
    const auto body = [&](Communicator& group) {
      for (uint64_t seed = 0; seed < 15; ++seed) check_call(group, seed + 100 * static_cast<uint64_t>(world));
    };
    CHECK_EQ(run_threads(RankGroup{world}, body), "");
  }
}

TEST_CASE("sparse all_reduce: top-k is exact where a sample of the elements misleads") {
  constexpr size_t kCount = size_t{1} << 18;
  const auto body = [&](Communicator& group) {
    Floats x(kCount, 1.0f), y(kCount);
    for (uint64_t j = 0; j < kSample; ++j) x[sample_place(j, kCount / kSample)] = 2.0f;  // all that the sample sees
    SparseOptions options;
    options.spars = 0.25;
    const SparseReport report = sparse_all_reduce(group, x.data(), y.data(), kCount, options);
    expect(report.selected == kCount / 4, "another k");
    size_t ones = 0, last = 0, earlier = 0;
    for (size_t i = 0; i < kCount; ++i) {
      expect(x[i] != 2.0f || y[i] == 4.0f, "a larger one was left out");
      if (x[i] == 1.0f && y[i] != 0) ++ones, last = i;
    }
    for (size_t i = 0; i <= last; ++i) earlier += x[i] == 1.0f;
    expect(ones == kCount / 4 - kSample && earlier == ones, fmt::format("{} ones, the last at {}", ones, last));
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("sparse all_reduce: in a buffer of several tensors each sends its own largest elements") {
  const auto body = [&](Communicator& group) {
    for (const Select select : {Select::kTopK, Select::kThreshold}) {
      const std::vector<uint64_t> tensors = {1, 100'000, 0, 77, 500};
      Floats x, residual, wanted;
      for (size_t t = 0; t < tensors.size(); ++t) {
        Floats one = values_of(t, group.rank(), tensors[t], true);
        for (float& value : one) value *= static_cast<float>(1 + t);  // as one tensor the last would send most
        x.insert(x.end(), one.begin(), one.end());
        const std::vector<bool> chosen = reference_selection(one, {.select = select, .spars = 0.3});
        for (size_t i = 0; i < one.size(); ++i) wanted.push_back(chosen[i] ? 0.0f : one[i]);
      }
      residual.resize(x.size());
      SparseOptions options;
      options.select = select;
      options.spars = 0.3;
      options.residual = residual.data();
      options.tensors = tensors;
      Floats y(x.size());
      sparse_all_reduce(group, x.data(), y.data(), x.size(), options);
      expect(residual == wanted, fmt::format("another selection by {}", static_cast<int>(select)));
      x[100'050] = std::numeric_limits<float>::infinity();
      const auto call = [&] { sparse_all_reduce(group, x.data(), y.data(), x.size(), options); };
      expect_error(call, ErrorCode::kNotFinite, "element 100050 of");
      options.tensors = options.tensors.first(2);
      expect(code_of(call) == ErrorCode::kInvalid, "tensors that are too short");
      const uint64_t wrapping[] = {UINT64_MAX - 9, x.size() + 10};
      options.tensors = wrapping;
      expect_error(call, ErrorCode::kInvalid, "entry 0 of the tensors' lengths is 18446744073709551606");
    }
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("sparse all_reduce: selections are gathered, merged or dense by how many there are, with the same bits") {
  constexpr size_t kCount = 200'000;
  const auto body = [&](Communicator& group) {
    const auto world = static_cast<size_t>(group.size());
    const auto route_at = [&](double spars) {
      Floats x = values_of(3, group.rank(), kCount, false), y(kCount), all(kCount * world);
      SparseOptions options;
      options.spars = spars;
      const SparseReport report = sparse_all_reduce(group, x.data(), y.data(), kCount, options);
      const std::vector<bool> chosen = reference_selection(x, options);
      for (size_t i = 0; i < kCount; ++i) x[i] = chosen[i] ? x[i] : 0.0f;
      group.all_gather(x.data(), all.data(), kCount, DType::kFloat32);
      for (size_t i = 0; report.route != SparseRoute::kDense && i < kCount; ++i) {
        float sum = 0;
        for (size_t r = 0; r < world; ++r) sum += all[r * kCount + i];
        expect(sum == y[i], [&] { return fmt::format("spars {}: element {}", spars, i); });
      }
      return report.route;
    };
    expect(route_at(0.001) == SparseRoute::kGathered, "0.1 % are not gathered");
    expect(route_at(0.2) == SparseRoute::kMerged, "20 % are not merged");
    expect(route_at(1.0) == SparseRoute::kDense, "all are not dense");
  };
  CHECK_EQ(run_threads(RankGroup{6}, body), "");
}

TEST_CASE("sparse all_reduce: a sum that overflows is infinite on all ranks, and troubles no other element") {
  constexpr size_t kCount = 200'000;
  const auto body = [&](Communicator& group) {
    for (const double spars : {0.001, 0.2, 1.0}) {
      Floats x = values_of(3, group.rank(), kCount, false), y(kCount);
      for (size_t i = 0; i < kCount; i += 20'001) x[i] = 2e38f;  // all ranks select it
      SparseOptions options;
      options.spars = spars;
      const SparseReport report = sparse_all_reduce(group, x.data(), y.data(), kCount, options);
      const std::string text = fmt::format("spars {} by route {}", spars, static_cast<int>(report.route));
      for (size_t i = 0; i < kCount; ++i) {
        expect(std::isfinite(y[i]) == (i % 20'001 != 0), [&] { return fmt::format("{}: element {}", text, i); });
      }
      expect_same_everywhere(group, std::as_bytes(std::span(y)), text);
    }
  };
  CHECK_EQ(run_threads(RankGroup{6}, body), "");
}

TEST_CASE("sparse all_reduce: what is not finite at random places, worlds 1..8") {
  for (int world = 1; world <= 8; ++world) {
    const auto body = [&](Communicator& group) {
      Random random(static_cast<uint64_t>(world));
      for (int i = 0; i < 10; ++i) {
        const size_t count = random.between(1, 5000), at = random.below(count);
        const int culprit = static_cast<int>(random.below(static_cast<uint64_t>(world)));
        const bool in_residual = random.chance(50);
        constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                  -std::numeric_limits<float>::infinity()};
        const float bad = kBad[random.below(3)];
        const Select select = random.chance(50) ? Select::kTopK : Select::kThreshold;
        Floats x = values_of(7, group.rank(), count, false), residual(count, 0.25f);
        if (group.rank() == culprit) (in_residual ? residual : x)[at] = bad;
        const Floats before = x, kept = residual;
        SparseOptions options;
        options.select = select;
        options.residual = residual.data();
        expect_error([&] { sparse_all_reduce(group, x.data(), x.data(), count, options); }, ErrorCode::kNotFinite,
                     fmt::format("element {} of the input and residual of rank {}", at, culprit));
        expect(std::memcmp(x.data(), before.data(), count * sizeof(float)) == 0, "the input has changed");
        expect(std::memcmp(residual.data(), kept.data(), count * sizeof(float)) == 0, "the residual has changed");
      }
    };
    CHECK_EQ(run_threads(RankGroup{world}, body), "");
  }
}

TEST_CASE("sparse all_reduce: processes over TCP") {
  CHECK_EQ(run_processes(ranks_over("tcp", 3),
                         [](Communicator& c) {
                           for (uint64_t seed = 0; seed < 10; ++seed) check_call(c, seed);
                         }),
           "");
}

TEST_CASE("sparse all_reduce: bytes follow the density, and full selections are dense") {
  const auto body = [](Communicator& group) {
    Floats x = values_of(1, group.rank(), 3200, false);
    SparseOptions options;
    const auto report_at = [&](double spars) {
      options.spars = spars;
      Floats y(x.size());
      return sparse_all_reduce(group, x.data(), y.data(), x.size(), options);
    };
    expect(report_at(0.01).bytes_sent == 32 * 8, "coordinates");
    expect(report_at(0.1).bytes_sent == 400 + 320 * 4, "a bitmap");
    expect(report_at(0.1).route == SparseRoute::kGathered, "not gathered at 0.1");
    expect(report_at(1.0).route == SparseRoute::kDense && report_at(1.0).bytes_sent == 3200 * 4, "not dense at 1");
    expect(report_at(0.1).total == 320 * static_cast<uint64_t>(group.size()), "total");
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("sparse all_reduce: what cannot be is refused, and ranks with other counts are told") {
  const auto body = [](Communicator& group) {
    Floats x(500, 1.0f), y(500);
    SparseOptions options;
    const auto refused = [&](double spars, float* residual) {
      options.spars = spars;
      options.residual = residual;
      return code_of([&] { sparse_all_reduce(group, x.data(), y.data(), 400, options); }) == ErrorCode::kInvalid;
    };
    expect(refused(0, nullptr) && refused(1.5, nullptr) && refused(-1, nullptr), "top-k");
    expect(refused(0.1, x.data() + 10), "a residual in the input");
    options.select = Select::kThreshold;
    expect(refused(-1, nullptr) && refused(std::numeric_limits<double>::quiet_NaN(), nullptr), "threshold");
    options = {};
    for (const uint64_t count : {499u, 0u}) {
      const auto other = [&] {
        sparse_all_reduce(group, x.data(), y.data(), group.rank() == 1 ? count : 500, options);
      };
      expect(code_of(other) == ErrorCode::kMismatch, fmt::format("{} and 500 elements", count));
    }
    expect(code_of([&] { sparse_all_reduce(group, nullptr, nullptr, 0, options); }) == ErrorCode::kOk, "no elements");
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

}  // namespace rondo::testing
