// A packed slice that a peer sends: elements, or found to be none; nothing outside of the elements is written. What
// comes back is packed and unpacked again to equal bits.
//   input: dtype (8 bits, even: bfloat16), elements (16 bits), the bytes
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/pack.h"
#include "ring/base/check.h"
#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

constexpr size_t kHeader = 3;

std::string packed(DType dtype, uint16_t count, uint32_t step) {
  std::vector<uint32_t> words(count);
  for (uint32_t i = 0; i < count; ++i) words[i] = 0x3c000000 + i * step;
  std::string text(kHeader + packed_bytes(dtype_bytes(dtype), count), '\0');
  text[0] = dtype == DType::kFloat32 ? '\1' : '\0';
  std::memcpy(text.data() + 1, &count, sizeof count);
  text.resize(kHeader + pack(dtype, words.data(), count, text.data() + kHeader));
  return text;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> seeds;
  for (const DType dtype : {DType::kBfloat16, DType::kFloat32}) {
    for (const uint16_t count : {0, 5, 256, 600}) {
      for (const uint32_t step : {0x10000u, 0x123456u, 0x9e3779b9u}) seeds.push_back(packed(dtype, count, step));
    }
  }
  return seeds;
}

void try_input(std::string_view input) {
  if (input.size() < kHeader) return;
  const DType dtype = input[0] % 2 == 0 ? DType::kBfloat16 : DType::kFloat32;
  uint16_t count = 0;
  std::memcpy(&count, input.data() + 1, sizeof count);
  input.remove_prefix(kHeader);
  const size_t bytes = count * dtype_bytes(dtype);
  // The memory has the exact length, so that the address sanitizer sees what lies beyond.
  const auto from = std::make_unique<char[]>(input.size()), values = std::make_unique<char[]>(bytes);
  if (!input.empty()) std::memcpy(from.get(), input.data(), input.size());
  if (!unpack(dtype, from.get(), input.size(), count, values.get())) return;
  const auto again = std::make_unique<char[]>(packed_bytes(dtype_bytes(dtype), count));
  const auto same = std::make_unique<char[]>(bytes);
  const size_t length = pack(dtype, values.get(), count, again.get());
  RONDO_CHECK(unpack(dtype, again.get(), length, count, same.get()), "what is packed is unpacked");
  RONDO_CHECK(std::memcmp(values.get(), same.get(), bytes) == 0, "equal bits come back");
}

}  // namespace rondo::fuzz
