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

#include "rondo/sparse.h"
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
    for (size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (size_t r = 0; r < static_cast<size_t>(group.size()); ++r) sum += all[r * count + i];
      expect(std::abs(sum - target[i]) < 1e-5, [&] { return fmt::format("{}: element {}", text, i); });
    }
    group.all_gather(target, all.data(), count, DType::kFloat32);
    for (size_t r = 0; r < static_cast<size_t>(group.size()); ++r) {
      expect(std::memcmp(all.data() + r * count, target, count * sizeof(float)) == 0, text + ": other bits");
    }
  }
}

ErrorCode code_of(const std::function<void()>& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Exception& e) {
    if (message != nullptr) *message = e.what();
    return e.code();
  }
  return ErrorCode::kOk;
}

}  // namespace

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
    for (size_t i = 0; i < kCount; i += 8) x[i] = 2.0f;  // whatever a stride of a power of two sees
    SparseOptions options;
    options.spars = 0.25;
    const SparseReport report = sparse_all_reduce(group, x.data(), y.data(), kCount, options);
    expect(report.selected == kCount / 4, "another k");
    size_t ones = 0, last = 0;
    for (size_t i = 0; i < kCount; ++i) {
      if (i % 8 == 0) expect(y[i] == 4.0f, "a larger one was left out");
      if (i % 8 != 0 && y[i] != 0) ++ones, last = i;
    }
    expect(ones == kCount / 8 && last == kCount / 7, fmt::format("{} equal ones, the last at {}", ones, last));
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("sparse all_reduce: processes over TCP") {
  RankGroup group{3};
  group.config.transport = "tcp";
  CHECK_EQ(run_processes(group,
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
    expect(!report_at(0.1).dense, "dense at 0.1");
    expect(report_at(1.0).dense && report_at(1.0).bytes_sent == 3200 * 4, "not dense at 1");
    expect(report_at(0.1).total == 320 * static_cast<uint64_t>(group.size()), "total");
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

TEST_CASE("sparse all_reduce: what is not finite is named on all ranks, and residuals stay") {
  const auto body = [](Communicator& group) {
    Floats x(500, 1.0f), residual(500, 0.5f), y(500);
    if (group.rank() == 1) x[123] = std::numeric_limits<float>::quiet_NaN();
    SparseOptions options;
    options.residual = residual.data();
    std::string message;
    const auto call = [&] { sparse_all_reduce(group, x.data(), y.data(), x.size(), options); };
    expect(code_of(call, &message) == ErrorCode::kNotFinite, "no kNotFinite");
    expect(message.find("element 123 of the input and residual of rank 1") != std::string::npos, message);
    expect(residual == Floats(500, 0.5f), "the residual has changed");
    x[123] = 1.0f;
    expect(code_of(call) == ErrorCode::kOk, "the communicator has failed");
  };
  CHECK_EQ(run_threads(RankGroup{3}, body), "");
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
    const uint64_t count = group.rank() == 1 ? 499 : 500;
    const auto other = [&] { sparse_all_reduce(group, x.data(), y.data(), count, options); };
    expect(code_of(other) == ErrorCode::kMismatch, "other counts");
  };
  CHECK_EQ(run_threads(RankGroup{2}, body), "");
}

}  // namespace rondo::testing
