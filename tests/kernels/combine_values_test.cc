// combine() gives, for every dtype, op and instruction set, the bits of a plain scalar reference.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/kernels/instruction_sets.h"
#include "tests/support/reference.h"

namespace rondo::testing {
namespace {

constexpr uint32_t kSeed = 20240607;

struct Flags {
  uint64_t scaled = 0;
  bool finish = false;
};

// columns[s][i]: element i of source s. Every element of the result against the reference; one assertion a call.
void check_values(InstructionSet set, const CombineSpec& spec, const std::vector<std::vector<uint64_t>>& columns,
                  Flags flags) {
  const size_t count = columns[0].size(), bytes = dtype_bytes(spec.dtype);
  std::vector<std::vector<unsigned char>> buffers(columns.size(), std::vector<unsigned char>(count * bytes));
  std::vector<const void*> sources;
  for (size_t s = 0; s < columns.size(); ++s) {
    for (size_t i = 0; i < count; ++i) store_element(spec.dtype, &buffers[s][i * bytes], columns[s][i]);
    sources.push_back(buffers[s].data());
  }
  std::vector<unsigned char> result(count * bytes);
  void* target = result.data();
  combine_with(set, spec,
               {.sources = sources.data(),
                .targets = &target,
                .scaled = flags.scaled,
                .source_count = static_cast<uint8_t>(columns.size()),
                .target_count = 1,
                .finish = flags.finish},
               count);
  for (size_t i = 0; i < count; ++i) {
    std::vector<uint64_t> elements;
    for (const auto& column : columns) elements.push_back(column[i]);
    const uint64_t expected = reference_combine(spec, elements, flags.scaled, flags.finish);
    const uint64_t found = load_element(spec.dtype, &result[i * bytes]);
    if (found == expected) continue;
    INFO("element ", i, " of ", columns.size(), " sources, the first two ", elements[0], " and ",
         elements.size() > 1 ? elements[1] : 0, ", scaled ", flags.scaled, ", finish ", flags.finish);
    CHECK_MESSAGE(found == expected, describe(set, spec));
    return;
  }
}

template <class Body>
void for_every_spec(Body body) {
  for (InstructionSet set : available_instruction_sets())
    for (int dtype = 0; dtype < kDTypes; ++dtype)
      for (int op = 0; op < kOps; ++op)
        if (op_supports(static_cast<Op>(op), static_cast<DType>(dtype)))
          body(set, CombineSpec{static_cast<DType>(dtype), static_cast<Op>(op)});
}

TEST_CASE("which instruction sets these tests cover") {
  // Says aloud what this machine cannot prove.
  for (InstructionSet set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512})
    if (!instruction_set_available(set))
      MESSAGE("NOT TESTED on this processor: the kernels of ", std::string(instruction_set_name(set)));
  CHECK(instruction_set_available(InstructionSet::kBaseline));
  CHECK(instruction_set_available(active_instruction_set()));
}

TEST_CASE("pairs of special values") {
  // Every pair of NaN, infinities, zeros, denormals and limits is folded as the reference folds it.
  for_every_spec([](InstructionSet set, const CombineSpec& spec) {
    const std::vector<uint64_t> values = special_values(spec.dtype);
    std::vector<std::vector<uint64_t>> columns(2);
    for (uint64_t left : values)
      for (uint64_t right : values) {
        columns[0].push_back(left);
        columns[1].push_back(right);
      }
    check_values(set, spec, columns, {});
  });
}

TEST_CASE("all pairs of 8-bit floats") {
  // Every op on every pair of the 256 codes.
  for_every_spec([](InstructionSet set, const CombineSpec& spec) {
    if (spec.dtype != DType::kFloat8E4M3 && spec.dtype != DType::kFloat8E5M2) return;
    std::vector<std::vector<uint64_t>> columns(2);
    for (uint64_t pair = 0; pair < 65536; ++pair) {
      columns[0].push_back(pair >> 8);
      columns[1].push_back(pair & 255);
    }
    check_values(set, {spec.dtype, spec.op, 1.0 / 3, 3}, columns, {.scaled = 3, .finish = true});
  });
}

TEST_CASE("random values, 1 to 8 and 64 sources, every flag") {
  // Folding order, scaling per source and the finish, on random bits mixed with special values.
  MESSAGE("seed ", kSeed);
  std::mt19937_64 random(kSeed);
  for_every_spec([&](InstructionSet set, CombineSpec spec) {
    const std::vector<uint64_t> special = special_values(spec.dtype);
    const uint64_t mask = ~uint64_t{0} >> (64 - 8 * dtype_bytes(spec.dtype));
    for (size_t sources : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 64}) {
      spec.world = std::vector<uint32_t>{1, 2, 3, 7, 64, 200, 70000, 4294967295u}[random() % 8];
      spec.scalar = std::vector<double>{0.5, 1.0 / 3, -2.75, 1.0, 0.0, 1e300, 1e-6, 65504.0}[random() % 8];
      std::vector<std::vector<uint64_t>> columns(sources, std::vector<uint64_t>(331));
      for (auto& column : columns)
        for (uint64_t& value : column)
          value = random() % 16 == 0 ? special[random() % special.size()] : random() & mask;
      check_values(set, spec, columns, {});
      check_values(set, spec, columns, {.scaled = ~uint64_t{0}, .finish = true});
      check_values(set, spec, columns, {.scaled = random(), .finish = random() % 2 == 0});
    }
  });
}

TEST_CASE("sums of ordinary floats") {
  // Values of 1 to 16, where random bits would nearly always absorb one of two.
  MESSAGE("seed ", kSeed);
  std::mt19937_64 random(kSeed);
  for_every_spec([&](InstructionSet set, CombineSpec spec) {
    if (!dtype_is_float(spec.dtype)) return;
    spec.world = 3;
    spec.scalar = 1.0 / 3;
    const uint64_t one = encode_float(spec.dtype, 1);
    const uint64_t sixteen = encode_float(spec.dtype, 16);
    for (size_t sources : {2, 3, 5, 11}) {
      std::vector<std::vector<uint64_t>> columns(sources, std::vector<uint64_t>(1000));
      for (auto& column : columns)
        for (uint64_t& value : column) {
          const uint64_t near = one + random() % (sixteen - one);
          value = near ^ ((random() & 1) << (8 * dtype_bytes(spec.dtype) - 1));
        }
      check_values(set, spec, columns, {});
      check_values(set, spec, columns, {.scaled = random(), .finish = true});
    }
  });
}

TEST_CASE("integer averages truncate to zero") {
  // The quotient is the integer division's for every 16-bit sum and for limits of 32 and 64 bits, by every small world.
  for (InstructionSet set : available_instruction_sets())
    for (int dtype = 0; dtype < kDTypes; ++dtype) {
      if (dtype_is_float(static_cast<DType>(dtype)) || static_cast<DType>(dtype) == DType::kBool) continue;
      const size_t bytes = dtype_bytes(static_cast<DType>(dtype));
      for (uint32_t world : {2u, 3u, 5u, 6u, 7u, 10u, 127u, 128u, 255u, 256u, 1000u, 32767u, 65535u, 65536u}) {
        std::vector<uint64_t> values;
        for (uint64_t i = 0; i < 65536; ++i)
          values.push_back(bytes <= 2
                               ? i % (uint64_t{1} << (8 * bytes))
                               : (i % 2 == 0 ? i / 2 * world - i % 3 : (uint64_t{1} << (8 * bytes - 1)) - i / 2) &
                                     (~uint64_t{0} >> (64 - 8 * bytes)));
        check_values(set, {static_cast<DType>(dtype), Op::kAverage, 1.0, world}, {values}, {.finish = true});
      }
    }
}

}  // namespace
}  // namespace rondo::testing
