// combine() for every number of elements, alignment, alias and number of sources and targets touches what it should,
// with the right values, and nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/kernels/call_buffers.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/support/reference.h"

namespace rondo::testing {
namespace {

constexpr uint32_t kSeed = 7;
std::vector<CallBuffers::Content> random_contents(int sources, size_t bytes, std::mt19937& random) {
  std::vector<CallBuffers::Content> contents(static_cast<size_t>(sources), CallBuffers::Content(bytes));
  for (auto& content : contents) {
    for (unsigned char& byte : content) byte = static_cast<unsigned char>(random());
  }
  return contents;
}

// Buffers lie 7 bytes further from one to the next. An alias of odd number is that of the last target.
void check_case(InstructionSet set, const CombineSpec& spec, BufferShape shape, std::mt19937& random) {
  shape.skew = 7;
  const size_t bytes = dtype_bytes(spec.dtype);
  const uint64_t scaled = 0b101;
  const auto contents = random_contents(shape.sources, shape.count * bytes, random);
  CallBuffers expected(shape, contents), found(shape, contents);
  if (shape.alias % 2 == 1) {
    std::swap(expected.targets.front(), expected.targets.back());
    std::swap(found.targets.front(), found.targets.back());
  }
  std::vector<uint64_t> elements(contents.size());
  for (size_t i = 0; i < shape.count; ++i) {
    for (size_t s = 0; s < elements.size(); ++s) elements[s] = load_element(spec.dtype, &contents[s][i * bytes]);
    const uint64_t result = reference_combine(spec, elements, scaled, true);
    for (void* target : expected.targets)
      store_element(spec.dtype, static_cast<unsigned char*>(target) + i * bytes, result);
  }
  combine_with(set, spec,
               {.sources = found.sources.data(),
                .targets = found.targets.data(),
                .scaled = scaled,
                .source_count = static_cast<uint8_t>(shape.sources),
                .target_count = static_cast<uint8_t>(shape.targets),
                .finish = true},
               shape.count);
  const bool right = expected == found;
  if (!right)
    CHECK_MESSAGE(right, describe(set, spec), " ", shape.sources, " sources ", shape.targets, " targets alias ",
                  shape.alias, " count ", shape.count, " offset ", shape.offset);
}

// A dtype of each width and each kind of kernel: plain, converted, scaled, finished, logical.
const std::vector<CombineSpec>& specs() {
  static const std::vector<CombineSpec> list = {
      {DType::kFloat32, Op::kSum, 1.0, 3},      {DType::kFloat64, Op::kAverage, 1.0, 3},
      {DType::kFloat16, Op::kAverage, 1.0, 3},  {DType::kBfloat16, Op::kMax, 1.0, 3},
      {DType::kBfloat16, Op::kAverage, 1.0, 3}, {DType::kFloat32, Op::kPremulSum, 0.3, 3},
      {DType::kInt8, Op::kSum, 1.0, 3},         {DType::kUint16, Op::kAverage, 1.0, 3},
      {DType::kBool, Op::kSum, 1.0, 3},         {DType::kFloat16, Op::kPremulSum, 0.3, 3},
      {DType::kFloat8E4M3, Op::kSum, 1.0, 3},   {DType::kFloat8E5M2, Op::kAverage, 1.0, 3},
  };
  return list;
}

TEST_CASE("every count from 0 to 257") {
  // Whole blocks, rests of every length, and nothing.
  std::mt19937 random(kSeed);
  for (InstructionSet set : available_instruction_sets())
    for (const CombineSpec& spec : specs())
      for (size_t count = 0; count <= 257; ++count)
        for (int alias : {-1, 0, 1}) check_case(set, spec, {2, 1, alias, count, count % 64}, random);
}

TEST_CASE("fault 45: every misalignment") {
  // No pointer needs an alignment, not even the element's own.
  std::mt19937 random(kSeed);
  for (InstructionSet set : available_instruction_sets())
    for (const CombineSpec& spec : specs())
      for (size_t offset = 0; offset < 64; ++offset) {
        check_case(set, spec, {2, 1, -1, 133, offset}, random);
        check_case(set, spec, {2, 2, 1, 133, offset}, random);
        check_case(set, spec, {5, 3, 2, 133, offset}, random);
      }
}

TEST_CASE("1 to 9 and 64 sources, 1 to 3 targets, in place of each source") {
  // Every shape and every alias, past one tile and one page.
  std::mt19937 random(kSeed);
  for (InstructionSet set : available_instruction_sets())
    for (const CombineSpec& spec : specs())
      for (int sources : {1, 2, 3, 4, 5, 6, 7, 8, 9, 64})
        for (int targets = 1; targets <= 3; ++targets) {
          const int last = std::min(sources, 9);
          for (int alias = -1; alias < last; ++alias) check_case(set, spec, {sources, targets, alias, 67, 3}, random);
          check_case(set, spec, {sources, targets, sources - 1, 9001 / dtype_bytes(spec.dtype), 1}, random);
        }
}

TEST_CASE("large buffers and many targets") {
  // Many pages and tiles, 64 sources to 64 targets.
  std::mt19937 random(kSeed);
  for (InstructionSet set : available_instruction_sets())
    for (const CombineSpec& spec : specs()) {
      check_case(set, spec, {2, 1, 0, 300007, 0}, random);
      check_case(set, spec, {6, 2, 3, 50021, 8}, random);
      check_case(set, spec, {64, 64, -1, 2500, 1}, random);
    }
}

TEST_CASE("a move of one source copies bits") {
  // Without an effective scale or finish even NaN payloads and bools above 1 stay.
  for (InstructionSet set : available_instruction_sets())
    for (int dtype = 0; dtype < kDTypes; ++dtype)
      for (int op = 0; op < kOps; ++op) {
        const CombineSpec spec{static_cast<DType>(dtype), static_cast<Op>(op), 1.0, 1};
        if (!op_supports(spec.op, spec.dtype) || spec.op == Op::kPremulSum) continue;
        std::vector<unsigned char> source(100003);
        std::mt19937 random(kSeed);
        for (unsigned char& byte : source) byte = static_cast<unsigned char>(random());
        const std::vector<unsigned char> before = source;
        std::vector<unsigned char> copy(source.size());
        const void* from = source.data();
        void* to[] = {source.data(), copy.data()};
        combine_with(
            set, spec,
            {.sources = &from, .targets = to, .scaled = 1, .source_count = 1, .target_count = 2, .finish = true},
            source.size() / dtype_bytes(spec.dtype));
        const size_t whole = source.size() / dtype_bytes(spec.dtype) * dtype_bytes(spec.dtype);
        CHECK(source == before);
        CHECK(std::equal(before.begin(), before.begin() + static_cast<ptrdiff_t>(whole), copy.begin()));
      }
}

TEST_CASE("what scales and what finishes") {
  // The two questions that callers ask before they lend memory instead of copying it.
  for (int dtype = 0; dtype < kDTypes; ++dtype) {
    const DType d = static_cast<DType>(dtype);
    const bool scales = d == DType::kFloat16 || d == DType::kFloat8E4M3 || d == DType::kFloat8E5M2;
    CHECK(combine_scales({d, Op::kAverage, 1.0, 2}) == scales);
    CHECK(combine_finishes({d, Op::kAverage, 1.0, 2}) != scales);
    CHECK_FALSE(combine_scales({d, Op::kAverage, 1.0, 1}));
    CHECK_FALSE(combine_finishes({d, Op::kAverage, 1.0, 1}));
    CHECK_FALSE(combine_scales({d, Op::kSum, 3.0, 2}));
    CHECK_FALSE(combine_finishes({d, Op::kSum, 3.0, 2}));
    if (dtype_is_float(d)) CHECK(combine_scales({d, Op::kPremulSum, 1.0, 2}));
    CHECK_FALSE(combine_finishes({d, Op::kPremulSum, 1.0, 2}));
  }
}

}  // namespace
TEST_CASE("a function of the program's folds from left to right into every target, and sees aligned memory") {
  struct Seen {
    size_t element;
    bool aligned = true;
  };
  // Text, the last byte of which is its hash: x op y is what both say, in this order.
  const auto fold = [](const void* in, void* inout, size_t count, void* context) {
    Seen& seen = *static_cast<Seen*>(context);
    const size_t alignment = std::min<size_t>(16, seen.element & (~seen.element + 1));
    seen.aligned = seen.aligned && reinterpret_cast<uintptr_t>(in) % alignment == 0 &&
                   reinterpret_cast<uintptr_t>(inout) % alignment == 0;
    const auto* from = static_cast<const unsigned char*>(in);
    auto* to = static_cast<unsigned char*>(inout);
    for (size_t i = 0; i < count; ++i, from += seen.element, to += seen.element) {
      // The functions x -> a x + b modulo 256 with b the last byte, composed.
      for (size_t k = 0; k + 1 < seen.element; ++k) {
        const unsigned plus = k == 0 ? from[0] * to[seen.element - 1] + from[seen.element - 1] : 0;
        const auto product = static_cast<unsigned char>(from[k] * to[k]);
        if (k == 0) to[seen.element - 1] = static_cast<unsigned char>(plus);
        to[k] = product;
      }
    }
  };
  for (const size_t element : {2u, 3u, 8u, 24u, 4096u}) {
    for (const int sources : {1, 2, 5}) {
      for (const int targets : {1, 3}) {
        for (int alias = -1; alias < sources; ++alias) {
          for (const size_t count : {0u, 1u, 500u}) {
            std::mt19937 random(kSeed);
            const BufferShape shape{sources, targets, alias, count, 5, 7};
            const auto contents = random_contents(sources, count * element, random);
            CallBuffers expected(shape, contents), found(shape, contents);
            Seen seen{element}, reference{element};
            std::vector<unsigned char> wanted = contents[0];
            for (int s = 1; s < sources && count > 0; ++s) {
              std::vector<unsigned char> next = contents[static_cast<size_t>(s)];
              fold(wanted.data(), next.data(), count, &reference);
              wanted = next;
            }
            for (void* target : expected.targets)
              std::copy(wanted.begin(), wanted.end(), static_cast<unsigned char*>(target));
            const UserOp op{fold, &seen, static_cast<uint32_t>(element), false};
            CombineSpec spec;
            spec.op = Op::kUser;
            spec.user = &op;
            combine(spec,
                    {found.sources.data(), found.targets.data(), 0, static_cast<uint8_t>(sources),
                     static_cast<uint8_t>(targets), true},
                    count);
            CAPTURE(element);
            CAPTURE(sources);
            CAPTURE(alias);
            CAPTURE(count);
            REQUIRE(expected == found);
            REQUIRE(seen.aligned);
          }
        }
      }
    }
  }
}

}  // namespace rondo::testing
