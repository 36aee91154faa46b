// Words and counts that a peer sends of its selection: a count above the tensor is refused; otherwise nothing outside
// of the tensor is written, and as many elements are added as the words name. What this rank encodes is read back
// exactly.
//   input: elements (16 bits), selected (64 bits), the words
#include "ring/compress/selection_code.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "ring/base/given_numbers.h"
#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

std::string encoded(uint16_t count, const std::vector<uint32_t>& indices) {
  const std::vector<float> values(indices.size(), 1.5f);
  const uint64_t selected = indices.size();
  std::string words(selection_words(selected, count) * sizeof(uint32_t), '\0');
  encode_selection(indices, values.data(), 0, count, reinterpret_cast<uint32_t*>(words.data()));
  std::string text(sizeof count + sizeof selected, '\0');
  std::memcpy(text.data(), &count, sizeof count);
  std::memcpy(text.data() + sizeof count, &selected, sizeof selected);
  return text + words;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<uint32_t> third, all;
  for (uint32_t i = 0; i < 300; ++i) all.push_back(i);
  for (uint32_t i = 0; i < 300; i += 3) third.push_back(i);
  return {encoded(0, {}), encoded(300, {}), encoded(300, {0, 17, 299}), encoded(300, third), encoded(300, all)};
}

void try_input(std::string_view input) {
  uint16_t count = 0;
  uint64_t selected = 0;
  if (input.size() < sizeof count + sizeof selected) return;
  std::memcpy(&count, input.data(), sizeof count);
  std::memcpy(&selected, input.data() + sizeof count, sizeof selected);
  input.remove_prefix(sizeof count + sizeof selected);
  const auto peer = GivenNumbers::of_peer("fuzz", 0, 1);
  try {
    peer.at_most(count, selected, "the number of its selected elements");
  } catch (const Exception& refusal) {
    RONDO_CHECK(refusal.code() == ErrorCode::kCorrupt && selected > count, "a peer's number that is wrong is CORRUPT");
    return;
  }
  // The memory has the exact length, so that the address sanitizer sees what lies beyond.
  const uint64_t words = selection_words(selected, count);
  RONDO_CHECK(words <= 2 * uint64_t{count}, "a selection has a bound");
  const auto coded = std::make_unique<uint32_t[]>(words);
  const auto output = std::make_unique<float[]>(count);
  std::memcpy(coded.get(), input.data(), std::min(words * sizeof(uint32_t), input.size()));
  const uint64_t named = add_selection(coded.get(), selected, count, output.get());
  const auto changed = static_cast<uint64_t>(
      std::count_if(output.get(), output.get() + count, [](float value) { return !(value == 0); }));
  RONDO_CHECK(changed <= std::min(std::max(named, selected), uint64_t{count}), "no element is added that is not named");
}

}  // namespace rondo::fuzz
