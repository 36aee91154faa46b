// Reductions by a function of the program's: every collective that reduces, by every algorithm, with elements of odd
// sizes, over links, windows and posts, against a plain fold in the order of the ranks.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ring/base/hash.h"
#include "ring/base/types.h"
#include "ring/plan/build.h"
#include "ring/plan/fold_class.h"
#include "rondo/communicator.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Bytes = std::vector<uint8_t>;

// Elements are pairs of bytes, and one more where they are odd: the functions x -> a x + b modulo 251, composed, which
// is associative and not commutative; and a sum modulo 251.
struct Kind {
  uint32_t element;
  bool commutative;
  std::atomic<bool>* misaligned = nullptr;
};

uint8_t small(uint64_t value) { return static_cast<uint8_t>(value % 251); }

void fold_one(const Kind& kind, const uint8_t* a, uint8_t* b) {
  if (kind.commutative) {
    for (uint32_t i = 0; i < kind.element; ++i) b[i] = small(a[i] + b[i]);
    return;
  }
  for (uint32_t i = 0; i + 1 < kind.element; i += 2) {
    const uint64_t first = a[i], second = b[i], plus = b[i + 1];
    b[i] = small(first * second);
    b[i + 1] = small(first * plus + a[i + 1]);
  }
  if (kind.element % 2 == 1) b[kind.element - 1] = small(a[kind.element - 1] + b[kind.element - 1]);
}

void fold(const void* in, void* inout, size_t count, void* context) {
  const Kind& kind = *static_cast<const Kind*>(context);
  const uint32_t alignment = std::min(16u, kind.element & (~kind.element + 1));
  for (const void* operand : {in, static_cast<const void*>(inout)}) {
    if (reinterpret_cast<uintptr_t>(operand) % alignment != 0 && kind.misaligned != nullptr) *kind.misaligned = true;
  }
  for (size_t i = 0; i < count; ++i) {
    fold_one(kind, static_cast<const uint8_t*>(in) + i * kind.element, static_cast<uint8_t*>(inout) + i * kind.element);
  }
}

Bytes input_of(int rank, uint64_t elements, const Kind& kind) {
  Bytes bytes(elements * kind.element);
  for (uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = small(mix64(static_cast<uint64_t>(rank) * 1'000'003 + i));
  return bytes;
}

// Elements [first, first + count) of ranks 0 .. ranks - 1, one after the other.
Bytes folded(int ranks, uint64_t elements, uint64_t first, uint64_t count, const Kind& kind) {
  const auto part = [&](int rank) {
    const Bytes all = input_of(rank, elements, kind);
    const auto begin = all.begin() + static_cast<long>(first * kind.element);
    return Bytes(begin, begin + static_cast<long>(count * kind.element));
  };
  if (ranks == 0) return {};
  Bytes value = part(ranks - 1);
  for (int rank = ranks - 2; rank >= 0; --rank) {
    const Bytes before = part(rank);
    for (uint64_t i = 0; i < count; ++i) fold_one(kind, &before[i * kind.element], &value[i * kind.element]);
  }
  return value;
}

CallOptions options_of(const Kind& kind, Algorithm algorithm = Algorithm::kAuto) {
  CallOptions options;
  options.user = {fold, const_cast<Kind*>(&kind), kind.element, kind.commutative};
  options.algorithm = algorithm;
  return options;
}

struct Shape {
  Collective collective;
  uint64_t count;
  int root = -1;
  std::vector<uint64_t> counts{};  // not empty: reduce_scatter_v
  bool in_place = false;
  size_t misalign = 0;
  bool async = false;
};

void run(Communicator& group, const Shape& shape, const Kind& kind, Algorithm algorithm) {
  const int world = group.size(), me = group.rank();
  const bool scatters = shape.collective == Collective::kReduceScatter;
  const auto own = static_cast<size_t>(me);
  uint64_t elements = shape.count, first = 0, count = shape.count;
  if (scatters) {
    elements = shape.counts.empty() ? shape.count * static_cast<uint64_t>(world) : 0;
    for (const uint64_t each : shape.counts) elements += each;
    first = shape.count * own;
    if (!shape.counts.empty()) {
      count = shape.counts[own];
      first = 0;
      for (size_t r = 0; r < own; ++r) first += shape.counts[r];
    }
  }
  const Bytes mine = input_of(me, elements, kind);
  Bytes in(mine.size() + 80, 0xEE), out(count * kind.element + 80, 0xEE);
  uint8_t* const input = in.data() + 16 + shape.misalign;
  uint8_t* output = out.data() + 16 + shape.misalign;
  std::copy(mine.begin(), mine.end(), input);
  if (shape.in_place) output = input + first * kind.element;
  Call call{.collective = shape.collective,
            .input = input,
            .output = output,
            .count = count,
            .dtype = DType::kFloat64,  // not read
            .op = Op::kUser,
            .root = shape.root,
            .uneven = !shape.counts.empty(),
            .input_counts = shape.counts,
            .options = options_of(kind, algorithm)};
  if (shape.async) {
    group.start(call).wait();
  } else {
    group.run(call);
  }
  const bool none = (shape.collective == Collective::kReduce && me != shape.root) ||
                    (shape.collective == Collective::kExscan && me == 0);
  if (none) return expect(std::equal(mine.begin(), mine.end(), input), "an input was changed");
  const int ranks = shape.collective == Collective::kScan     ? me + 1
                    : shape.collective == Collective::kExscan ? me
                                                              : world;
  const Bytes wanted = folded(ranks, elements, first, count, kind);
  expect(std::equal(wanted.begin(), wanted.end(), output), [&] {
    return fmt::format("{} of {} elements of {} bytes, {}, by {}: wrong on rank {}", collective_name(shape.collective),
                       count, kind.element, kind.commutative ? "commutative" : "in order", algorithm_name(algorithm),
                       me);
  });
  if (!shape.in_place) {
    expect(output[-1] == 0xEE && output[wanted.size()] == 0xEE && std::equal(mine.begin(), mine.end(), input),
           "something else was written");
  }
}

std::vector<Shape> shapes_of(int world) {
  std::vector<Shape> shapes;
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{1000}}) {
    for (const bool in_place : {false, true}) {
      const size_t misalign = in_place ? 3 : 0;
      for (const Collective c :
           {Collective::kAllReduce, Collective::kReduceScatter, Collective::kScan, Collective::kExscan}) {
        shapes.push_back({c, count, -1, {}, in_place, misalign, count == 7});
      }
      for (int root = 0; root < world; ++root) {
        shapes.push_back({Collective::kReduce, count, root, {}, in_place, misalign, count == 7});
      }
      Shape uneven{Collective::kReduceScatter, 0, -1, {}, in_place, misalign, count == 7};
      for (int r = 0; r < world; ++r) uneven.counts.push_back(r == 1 ? 0 : count + static_cast<uint64_t>(r));
      shapes.push_back(uneven);
    }
  }
  return shapes;
}

void run_all(Communicator& group) {
  std::atomic<bool> misaligned{false};
  int calls = 0;
  for (const uint32_t element : {1u, 3u, 8u, 24u, 4096u}) {
    for (const bool commutative : {false, true}) {
      const Kind kind{element, commutative, &misaligned};
      for (Shape shape : shapes_of(group.size())) {
        if (element == 4096) shape.count /= 20;
        for (int a = 0; a < kAlgorithms; ++a) {
          const auto algorithm = static_cast<Algorithm>(a);
          const bool known =
              algorithm == Algorithm::kAuto ||
              (plan_available(shape.collective, algorithm, group.topology()) && algorithm != Algorithm::kRegistered &&
               algorithm != Algorithm::kPull && !(in_island(algorithm) && !shape.counts.empty()));
          const bool kept = commutative || algorithm == Algorithm::kAuto || group.size() < 2 ||
                            keeps_rank_order(shape.collective, algorithm, shape.root, group.size());
          if (!known || !kept) continue;
          // All of them for one size, some of them for the others.
          if (element != 24 && algorithm != Algorithm::kAuto && ++calls % 5 != 0) continue;
          run(group, shape, kind, algorithm);
        }
      }
    }
  }
  expect(!misaligned, "the function got misaligned memory");
}

}  // namespace

TEST_CASE("every reduction and scan by a function, among threads") {
  for (const int world : {1, 2, 3, 5}) CHECK(run_threads(RankGroup{.world = world}, run_all) == "");
}

TEST_CASE("every reduction and scan by a function, among processes of a host and over TCP") {
  CHECK(run_over_both({.world = 3}, run_all) == "");
}

TEST_CASE("of long elements as many are moved at a time as there is room for, and none is refused") {
  // Proves: what is posted or staged never leaves its place. 64 KiB hold no 4 KiB for each of 19 others.
  const auto call = [](Communicator& group, Collective collective, const Kind& kind, Algorithm algorithm) {
    run(group, {.collective = collective, .count = 3}, kind, algorithm);
  };
  const auto refused = [&](Communicator& group, Collective collective, const Kind& kind, Algorithm algorithm) {
    expect_error([&] { call(group, collective, kind, algorithm); }, ErrorCode::kInvalid, "has no room for elements of");
  };
  CHECK(run_threads(RankGroup{.world = 20}, [&](Communicator& group) {
          for (const uint32_t element : {4096u, 3449u, 2000u, 100u}) {
            for (const bool commutative : {false, true}) {
              const Kind kind{element, commutative};
              for (const Collective c : {Collective::kReduceScatter, Collective::kAllReduce}) {
                call(group, c, kind, Algorithm::kAuto);
                const bool fits = c == Collective::kAllReduce || element <= 64 * 1024 / 19;
                fits ? call(group, c, kind, Algorithm::kOneShot) : refused(group, c, kind, Algorithm::kOneShot);
              }
            }
          }
        }) == "");
  for (const int world : {2, 17}) {
    RankGroup shape{.world = world};
    shape.config.staging_bytes = 64 * 1024;
    CHECK(run_threads(shape, [&](Communicator& group) {
            const Kind kind{4096, true};
            const bool fits = group.size() == 2;
            run(group, {.collective = Collective::kAllReduce, .count = 100}, kind, Algorithm::kAuto);
            for (const Collective c : {Collective::kAllReduce, Collective::kReduceScatter}) {
              fits ? call(group, c, kind, Algorithm::kStaged) : refused(group, c, kind, Algorithm::kStaged);
            }
          }) == "");
  }
}

TEST_CASE("functions in a batch and in registered memory, beside operations of the library's") {
  CHECK(run_processes(RankGroup{.world = 2}, [](Communicator& group) {
          std::atomic<bool> misaligned{false};
          const Kind kind{24, false, &misaligned}, other{6, true, &misaligned};
          const Bytes first = input_of(group.rank(), 50, kind), second = input_of(group.rank(), 9, other);
          auto* const registered = static_cast<uint8_t*>(group.allocate(100'000 * 24));
          std::copy(first.begin(), first.end(), registered);
          Bytes out(second.size());
          int64_t sum = group.rank();
          rondo::BatchScope batch(group);
          group.all_reduce(registered, registered, 50, DType::kUint8, Op::kUser, options_of(kind));
          group.all_reduce(&sum, &sum, 1, DType::kInt64);
          group.all_reduce(second.data(), out.data(), 9, DType::kUint8, Op::kUser, options_of(other));
          batch.end();
          const Bytes wanted = folded(2, 50, 0, 50, kind);
          expect(std::equal(wanted.begin(), wanted.end(), registered), "in a batch");
          expect(out == folded(2, 9, 0, 9, other) && sum == 1, "beside it");
          for (int round = 0; round < 3; ++round) {
            const Bytes large = input_of(group.rank(), 100'000, kind);
            std::copy(large.begin(), large.end(), registered);
            group.all_reduce(registered, registered, 100'000, DType::kUint8, Op::kUser,
                             options_of(kind, round == 2 ? Algorithm::kRegistered : Algorithm::kAuto));
            const Bytes all = folded(2, 100'000, 0, 100'000, kind);
            expect(std::equal(all.begin(), all.end(), registered), "in registered memory");
          }
        }) == "");
}

TEST_CASE("calls of one shape with another function run that") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          const auto keep_first = [](const void* in, void* inout, size_t count, void*) {
            std::memcpy(inout, in, count);
          };
          const auto keep_last = [](const void*, void*, size_t, void*) {};
          for (int i = 0; i < 10; ++i) {
            const auto mine = static_cast<uint8_t>(10 + group.rank());
            uint8_t got = 0;
            CallOptions options;
            options.user = {keep_first, nullptr, 1, false};
            if (i % 2 == 1) options.user.function = keep_last;
            group.all_reduce(&mine, &got, 1, DType::kUint8, Op::kUser, options);
            expect(got == 10 + i % 2, "the function of this call");
          }
        }) == "");
}

TEST_CASE("what a function cannot be is refused before anything happens") {
  CHECK(run_threads(RankGroup{.world = 3}, [](Communicator& group) {
          uint8_t data[64] = {};
          const Kind kind{8, false};
          const auto refused = [&](const char* words, Op op, const CallOptions& options) {
            expect_error([&] { group.all_reduce(data, data, 2, DType::kUint8, op, options); }, ErrorCode::kInvalid,
                         words);
          };
          CallOptions options = options_of(kind);
          refused("the op is sum", Op::kSum, options);
          options.user.element_bytes = 0;
          refused("elements of 0 bytes", Op::kUser, options);
          options.user.element_bytes = 4097;
          refused("elements of 4097 bytes", Op::kUser, options);
          refused("no function", Op::kUser, {});
          refused("does not keep the order of the ranks", Op::kUser, options_of(kind, Algorithm::kRing));
          options = options_of(kind);
          options.wire.format = WireFormat::kInt8;
          refused("wire format", Op::kUser, options);
          expect_error([&] { group.all_gather(data, data + 8, 1, DType::kUint8, options_of(kind)); },
                       ErrorCode::kInvalid, "the op is none");
          const TensorRef tensor{data, data, 2, DType::kUint8};
          expect_error(
              [&] {
                group.all_reduce_many({&tensor, 1}, Op::kUser, options_of(kind));
              },
              ErrorCode::kInvalid, "a call for each tensor");
          options = options_of(kind);
          expect_error([&] { group.all_reduce(data, data, uint64_t{1} << 61, DType::kUint8, Op::kUser, options); },
                       ErrorCode::kInvalid, "64-bit byte counts");
          float x = 1;
          expect_error([&] { group.scan(&x, &x, 1, DType::kFloat32, Op::kAverage); }, ErrorCode::kInvalid,
                       "avg is over all ranks");
          group.barrier();
        }) == "");
}

TEST_CASE("ranks that differ in element size or order are told of both calls") {
  for (const Kind& other : {Kind{4, true}, Kind{8, false}}) {
    CHECK(run_threads(RankGroup{.world = 2}, [&](Communicator& group) {
            uint8_t data[64] = {};
            const Kind kind = group.rank() == 0 ? Kind{8, true} : other;
            const std::string words = other.element == 4 ? "4 bytes each" : "in the order of the ranks";
            const auto calls = [&] {
              for (int i = 0; i < 100; ++i) {
                group.all_reduce(data, data, 2, DType::kUint8, Op::kUser, options_of(kind));
              }
            };
            expect_error(calls, ErrorCode::kMismatch, words);
          }) == "");
  }
}

}  // namespace rondo::testing
