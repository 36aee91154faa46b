// What a program has set for the floats of a rank's thread changes nothing: every call gives the bits, and takes the
// algorithm, that it has where all threads are as they start.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/hash.h"
#include "rondo/dist_opt.h"
#include "rondo/sparse.h"
#include "tests/support/float_modes.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Floats = std::vector<float>;

// What a call gave, and what it was.
struct Outcome {
  std::string call;
  uint64_t hash;
};
using Outcomes = std::vector<Outcome>;

// Every third is denormal; the others' sums depend on the rounding.
Floats input_of(int rank, size_t count) {
  const FloatMode own(0);
  Floats values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t random = mix64(static_cast<uint64_t>(rank) * 1'000'003 + i);
    values[i] = i % 3 == 0 ? std::bit_cast<float>(static_cast<uint32_t>(random % 0x7fffff))
                           : static_cast<float>(random % 1'000'000) * 1.7e-3f;
  }
  return values;
}

uint64_t hash_of(const Floats& values) {
  const char* bytes = reinterpret_cast<const char*>(values.data());
  return Hash64().add(std::string_view(bytes, values.size() * sizeof(float))).value();
}

// A function of the program's: its result depends on the rounding that it finds.
void fold_bits(const void* in, void* inout, size_t count, void* bytes) {
  const volatile float one = 1, three = 3;
  const uint32_t third = std::bit_cast<uint32_t>(one / three);
  const auto* from = static_cast<const uint8_t*>(in);
  auto* to = static_cast<uint8_t*>(inout);
  for (size_t i = 0; i < count * *static_cast<size_t*>(bytes); ++i)
    to[i] = static_cast<uint8_t>(3 * from[i] + to[i] + third);
}

class Player {
 public:
  explicit Player(Communicator& group) : group_(group), world_(static_cast<size_t>(group.size())) {}

  Outcomes play() {
    for (uint64_t count = 1; count <= 40'000; count = count * 3 / 2 + 1) {
      plain(count);
      coded(count);
    }
    for (size_t bytes = 1; bytes <= 64; bytes += 3) in_order(bytes);
    for (const double spars : {0.001, 0.05, 0.4}) sparse(spars);
    train();
    return std::move(outcomes_);
  }

 private:
  void keep(std::string call, const Floats& got) { outcomes_.push_back({std::move(call), hash_of(got)}); }

  template <typename Make>
  void call(const std::string& name, uint64_t count, uint64_t in_blocks, uint64_t out_blocks, const Make& make) {
    const Floats in = input_of(group_.rank(), count * in_blocks);
    Floats out(count * out_blocks);
    make(in.data(), out.data());
    keep(fmt::format("{} of {}", name, count), out);
  }

  void plain(uint64_t n) {
    constexpr DType kType = DType::kFloat32;
    const int last = group_.size() - 1;
    CallOptions scaled;
    scaled.scalar = 0.375 + group_.rank();
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (int c = 0; c <= static_cast<int>(Collective::kExscan); ++c) {
        const auto collective = static_cast<Collective>(c);
        const uint64_t count = collective == Collective::kBarrier ? 0 : n;
        const Algorithm algorithm = group_.algorithm_for(collective, count, kType, Op::kSum);
        if (n * world_ * sizeof(float) < 16 * 1024)  // longer ones are timed
          outcomes_.push_back({"algorithm", static_cast<uint64_t>(algorithm)});
      }
      call("all_reduce", n, 1, 1, [&](auto* in, auto* out) { group_.all_reduce(in, out, n, kType); });
      call("average", n, 1, 1, [&](auto* in, auto* out) { group_.all_reduce(in, out, n, kType, Op::kAverage); });
      call("premulsum", n, 1, 1,
           [&](auto* in, auto* out) { group_.all_reduce(in, out, n, kType, Op::kPremulSum, scaled); });
      call("scan", n, 1, 1, [&](auto* in, auto* out) { group_.scan(in, out, n, kType, Op::kPremulSum, scaled); });
      call("exscan", n, 1, 1, [&](auto* in, auto* out) { group_.exscan(in, out, n, kType); });
      call("reduce", n, 1, 1, [&](auto* in, auto* out) { group_.reduce(in, out, n, kType, Op::kSum, last); });
      call("reduce_scatter", n, world_, 1, [&](auto* in, auto* out) { group_.reduce_scatter(in, out, n, kType); });
      call("all_gather", n, 1, world_, [&](auto* in, auto* out) { group_.all_gather(in, out, n, kType); });
      call("all_to_all", n, world_, world_, [&](auto* in, auto* out) { group_.all_to_all(in, out, n, kType); });
      call("gather", n, 1, world_, [&](auto* in, auto* out) { group_.gather(in, out, n, kType, last); });
      call("scatter", n, world_, 1, [&](auto* in, auto* out) { group_.scatter(in, out, n, kType, last); });
    }
  }

  void coded(uint64_t n) {
    for (const WireFormat format : {WireFormat::kFloat16, WireFormat::kBfloat16, WireFormat::kFloat8E4M3,
                                    WireFormat::kFloat8E5M2, WireFormat::kInt8, WireFormat::kInt4}) {
      Floats residual(n);
      CallOptions options;
      options.wire.format = format;
      call("coded all_gather", n, 1, world_,
           [&](auto* in, auto* out) { group_.all_gather(in, out, n, DType::kFloat32, options); });
      options.wire.residual = residual.data();
      for (int again = 0; again < 2; ++again) {
        call("coded all_reduce", n, 1, 1,
             [&](auto* in, auto* out) { group_.all_reduce(in, out, n, DType::kFloat32, Op::kAverage, options); });
      }
      keep("residual", residual);
    }
  }

  // Costs of plans that keep the order are equal often, but for rounding.
  void in_order(size_t bytes) {
    CallOptions options;
    options.user = {fold_bits, &bytes, static_cast<uint32_t>(bytes), false};
    for (uint64_t n = 1; n <= 40; ++n) {
      const uint64_t floats = (n * bytes + 3) / 4;
      call("all_reduce in order", floats, 1, 1,
           [&](auto* in, auto* out) { group_.all_reduce(in, out, n, DType::kUint8, Op::kUser, options); });
    }
  }

  void sparse(double spars) {
    constexpr uint64_t kCount = 100'000;
    for (const Select select : {Select::kTopK, Select::kThreshold}) {
      Floats residual(kCount);
      const SparseOptions options{.select = select, .spars = spars, .residual = residual.data()};
      for (int again = 0; again < 2; ++again) {
        call("sparse", kCount, 1, 1, [&](auto* in, auto* out) { sparse_all_reduce(group_, in, out, kCount, options); });
      }
      keep("sparse residual", residual);
    }
  }

  void train() {
    constexpr size_t kCount = 3000;
    for (int e = 0; e <= static_cast<int>(Exchange::kLocalSgd); ++e) {
      Floats parameter = input_of(100, kCount), gradient(kCount);
      DistOptOptions options;
      options.exchange = static_cast<Exchange>(e);
      options.clip = 1000;
      options.every = 2;
      options.outer_rate = 0.7f;
      options.outer_momentum = 0.9f;
      options.nesterov = true;
      DistOpt optimizer(group_, {{"weights", parameter.data(), gradient.data(), kCount}}, options);
      for (int step = 0; step < 4; ++step) {
        const Floats next = input_of(group_.rank() + 10 * step, kCount);
        std::copy(next.begin(), next.end(), gradient.begin());
        optimizer.step([&](const NamedGradient& g) {
          const FloatMode own(0);  // the program's arithmetic
          for (size_t i = 0; i < g.count; ++i) g.parameter[i] -= 0.01f * g.gradient[i];
        });
        keep(fmt::format("gradient of exchange {}", e), gradient);
        keep(fmt::format("parameter of exchange {}", e), parameter);
      }
      DistOptState state = optimizer.save();
      ++state.world;  // of another world each rank takes the average
      for (DistOptState::Tensor& tensor : state.tensors) tensor.residuals.resize((world_ + 1) * kCount);
      optimizer.load(state);
      const std::span<float> residual = optimizer.residual("weights");
      keep(fmt::format("residual of exchange {}", e), Floats(residual.begin(), residual.end()));
    }
  }

  Communicator& group_;
  const size_t world_;
  Outcomes outcomes_;
};

std::vector<Outcomes> play(int world, bool modes) {
  std::vector<Outcomes> found(static_cast<size_t>(world));
  CHECK(run_threads(RankGroup{.world = world}, [&](Communicator& group) {
          const FloatMode mode(modes ? (group.rank() + 1) % kFloatModes : 0);
          Outcomes outcomes = Player(group).play();
          const FloatMode end(0);
          found[static_cast<size_t>(group.rank())] = std::move(outcomes);
        }) == "");
  return found;
}

}  // namespace

TEST_CASE("every call has equal bits, routes and residuals whatever the modes of its ranks' threads are") {
  for (const int world : {2, 3}) {
    const std::vector<Outcomes> wanted = play(world, false), found = play(world, true);
    for (size_t rank = 0; rank < wanted.size(); ++rank) {
      CAPTURE(world);
      CAPTURE(rank);
      REQUIRE(wanted[rank].size() > 1000);
      REQUIRE(found[rank].size() == wanted[rank].size());
      std::string other;  // the first; of thousands
      for (size_t i = 0; i < wanted[rank].size() && other.empty(); ++i) {
        if (found[rank][i].hash != wanted[rank][i].hash) other = wanted[rank][i].call;
      }
      CHECK_EQ(other, "");
    }
  }
}

}  // namespace rondo::testing
