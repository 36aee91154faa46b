// How lists of all_reduces become operations: rules that hold for every list, and the lists that show each of them.
#include "ring/engine/call/fusion.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/support/random.h"

namespace rondo {
namespace {

using Tensors = std::vector<std::vector<uint32_t>>;

constexpr uint64_t kBucketBytes = 4096;

std::vector<TensorShape> floats(const std::vector<uint64_t>& counts) {
  std::vector<TensorShape> shapes;
  for (const uint64_t count : counts) shapes.push_back({.count = count});
  return shapes;
}

Tensors tensors_of(const std::vector<Bucket>& buckets) {
  Tensors all;
  for (const Bucket& bucket : buckets) all.push_back(bucket.tensors);
  return all;
}

std::vector<TensorShape> random_list(testing::Random& random) {
  constexpr std::array kTypes{DType::kFloat32, DType::kFloat16, DType::kInt64, DType::kUint8};
  constexpr std::array kOperations{Op::kSum, Op::kMax};
  std::vector<TensorShape> list(random.below(60));
  for (TensorShape& tensor : list) {
    tensor.count = random.chance(10) ? 0 : random.below(random.chance(20) ? 5000 : 200);
    tensor.dtype = kTypes[random.below(random.chance(50) ? 1 : kTypes.size())];
    tensor.op = kOperations[random.below(kOperations.size())];
    tensor.asked = random.chance(90) ? Algorithm::kAuto : Algorithm::kRing;
    tensor.fusable = random.chance(95);
  }
  return list;
}

bool same_kind(const TensorShape& a, const TensorShape& b) {
  return a.dtype == b.dtype && a.op == b.op && a.asked == b.asked;
}

void check_bucket(const std::vector<TensorShape>& list, const Bucket& bucket) {
  uint64_t count = 0;
  for (const uint32_t index : bucket.tensors) {
    count += list[index].count;
    CHECK(same_kind(list[index], list[bucket.tensors.front()]));
    if (bucket.tensors.size() == 1) continue;
    CHECK(list[index].fusable);
    CHECK(list[index].bytes() < kBucketBytes / 4);
  }
  CHECK(bucket.count == count);
  CHECK(std::is_sorted(bucket.tensors.begin(), bucket.tensors.end()));
  if (bucket.tensors.size() > 1) CHECK(count * dtype_bytes(list[bucket.tensors.front()].dtype) <= kBucketBytes);
}

}  // namespace

TEST_CASE("every tensor that is not empty is in one bucket, with its own kind, and buckets keep their size") {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    testing::Random random(seed);
    const std::vector<TensorShape> list = random_list(random);
    const std::vector<Bucket> buckets = plan_buckets(list, kBucketBytes);
    std::vector<int> seen(list.size(), 0);
    for (const Bucket& bucket : buckets) {
      check_bucket(list, bucket);
      for (const uint32_t index : bucket.tensors) ++seen[index];
    }
    const bool all_empty = std::all_of(list.begin(), list.end(), [](const auto& t) { return t.count == 0; });
    for (size_t i = 0; i < list.size(); ++i) {
      const bool compares = all_empty && i == 0;
      CHECK(seen[i] == (list[i].count > 0 || compares ? 1 : 0));
    }
    CHECK(tensors_of(plan_buckets(list, kBucketBytes)) == tensors_of(buckets));
  }
}

TEST_CASE("two buckets of a kind are never what one could hold") {
  // Proves: a bucket is closed for want of room only.
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    testing::Random random(seed);
    const std::vector<TensorShape> list = random_list(random);
    const std::vector<Bucket> buckets = plan_buckets(list, kBucketBytes);
    const auto shares = [&](const Bucket& bucket) {
      const TensorShape& first = list[bucket.tensors.front()];
      return first.fusable && first.bytes() < kBucketBytes / 4 && bucket.count > 0;
    };
    for (size_t i = 0; i < buckets.size(); ++i) {
      if (!shares(buckets[i])) continue;
      for (size_t j = i + 1; j < buckets.size(); ++j) {
        const TensorShape& next = list[buckets[j].tensors.front()];
        if (!shares(buckets[j]) || !same_kind(list[buckets[i].tensors.front()], next)) continue;
        CHECK(buckets[i].count * dtype_bytes(next.dtype) + next.bytes() > kBucketBytes);
        break;
      }
    }
  }
}

TEST_CASE("large tensors run alone and do not end the bucket around them") {
  CHECK(tensors_of(plan_buckets(floats({10, 5000, 20, 256, 255}), kBucketBytes)) == Tensors{{1}, {3}, {0, 2, 4}});
}

TEST_CASE("a bucket that is full is closed") {
  CHECK(tensors_of(plan_buckets(floats({255, 255, 255, 255, 4, 1, 1}), kBucketBytes)) ==
        Tensors{{0, 1, 2, 3, 4}, {5, 6}});
}

TEST_CASE("types and operations have buckets of their own, though they take turns") {
  std::vector<TensorShape> list = floats({1, 1, 1, 1, 1});
  list[1].dtype = list[3].dtype = DType::kFloat16;
  list[4].op = Op::kMax;
  CHECK(tensors_of(plan_buckets(list, kBucketBytes)) == Tensors{{0, 2}, {1, 3}, {4}});
}

TEST_CASE("no buckets, no tensors, empty tensors") {
  CHECK(tensors_of(plan_buckets(floats({1, 0, 2}), 0)) == Tensors{{0}, {2}});
  CHECK(plan_buckets({}, kBucketBytes).empty());
  CHECK(tensors_of(plan_buckets(floats({0, 7, 0}), kBucketBytes)) == Tensors{{1}});
  CHECK(tensors_of(plan_buckets(floats({0, 0}), kBucketBytes)) == Tensors{{0}});
}

TEST_CASE("lists have a hash of every field, and a text") {
  // Proves: whatever differs between two ranks' lists, they notice.
  const std::vector<TensorShape> list = floats({10, 20, 30});
  const uint64_t hash = TensorList(list).hash;
  CHECK(TensorList(list).hash == hash);
  std::vector<std::vector<TensorShape>> others(7, list);
  others[0][1].count = 21;
  others[1][2].dtype = DType::kInt32;
  others[2][0].op = Op::kMax;
  others[3][0].asked = Algorithm::kRing;
  others[4].pop_back();
  std::swap(others[5][0], others[5][1]);
  others[6][1].any_op = true;
  for (const auto& other : others) CHECK(TensorList(other).hash != hash);
  others[2][1].dtype = DType::kInt8;
  CHECK(TensorList(list).describe() == "[float32 sum 10, 20, 30]");
  CHECK(TensorList(others[2]).describe() == "[float32 max 10, int8 sum 20, float32 30]");
  CHECK(TensorList(others[6]).describe() == "[float32 sum 10, own op sum 20, sum 30]");
  const uint64_t any = TensorList(others[6]).hash;
  others[6][1].op = Op::kMax;
  CHECK(TensorList(others[6]).hash == any);  // each rank's own
  CHECK(TensorList(floats(std::vector<uint64_t>(5000, 1'000'000))).describe().size() < 1700);
}

TEST_CASE("an overlap is found if there is one") {
  // Proves: against comparing every pair.
  std::array<std::byte, 400> memory{};
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    testing::Random random(seed);
    std::vector<TensorMemory> list(1 + random.below(6));
    for (TensorMemory& tensor : list) {
      tensor.bytes = random.below(20);
      const uint64_t output = random.below(360);
      tensor.output = memory.data() + output;
      tensor.input = tensor.output;
      if (random.chance(50)) tensor.input = memory.data() + (output + 20 + random.below(300)) % 380;
      const auto gap = tensor.input - tensor.output;
      if (gap != 0 && gap > -20 && gap < 20) tensor.input = tensor.output;
    }
    const auto meets = [](const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) {
      return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
    };
    const auto overlap = [&](const TensorMemory& a, const TensorMemory& b) {
      return meets(a.output, a.bytes, b.output, b.bytes) || meets(a.output, a.bytes, b.input, b.bytes) ||
             meets(a.input, a.bytes, b.output, b.bytes);
    };
    bool any = false;
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t j = i + 1; j < list.size(); ++j) any |= overlap(list[i], list[j]);
    }
    const auto found = find_overlap(list);
    CHECK(found.has_value() == any);
    if (found) CHECK((found->first < found->second && overlap(list[found->first], list[found->second])));
  }
}

}  // namespace rondo
