#include "ring/compress/selection_code.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace rondo {
namespace {

enum class Form { kCoordinates, kBitmap, kDense };

// How a selection travels, and in how many words of 32 bits.
struct Coding {
  Form form;
  uint64_t words;
};

uint64_t bitmap_words(uint64_t count) { return (count + 31) / 32; }

// Integers only, and fixed preferences where two forms are equally long: all ranks must get the same form.
Coding coding_of(uint64_t selected, uint64_t count) {
  Coding best{Form::kCoordinates, 2 * selected};
  if (bitmap_words(count) + selected < best.words) best = {Form::kBitmap, bitmap_words(count) + selected};
  if (count < best.words) best = {Form::kDense, count};
  return best;
}

// Adds what the words name to the output, as the two below do, and returns how many elements that were. Another number
// than `selected` is the sender's mistake, which the caller reports.
uint64_t add_coordinates(const uint32_t* words, uint64_t selected, uint64_t count, float* output) {
  // The words are a peer's: each index is compared before it is used.
  const uint32_t* values = words + selected;
  uint64_t named = 0;
  for (uint64_t k = 0; k < selected; ++k) {
    if (words[k] >= count) continue;
    output[words[k]] += std::bit_cast<float>(values[k]);
    ++named;
  }
  return named;
}

uint64_t add_bitmap(const uint32_t* words, uint64_t selected, uint64_t count, float* output) {
  const uint32_t* value = words + bitmap_words(count);
  uint64_t named = 0;
  for (uint64_t w = 0; w < bitmap_words(count); ++w) named += static_cast<uint64_t>(std::popcount(words[w]));
  // Else the loop below would read values beyond the words.
  if (named != selected) return named;
  for (uint64_t w = 0; w < bitmap_words(count); ++w) {
    for (uint32_t bits = words[w]; bits != 0; bits &= bits - 1) {
      const uint64_t i = w * 32 + static_cast<uint64_t>(std::countr_zero(bits));
      if (i >= count) return named - static_cast<uint64_t>(std::popcount(bits));
      output[i] += std::bit_cast<float>(*value++);
    }
  }
  return named;
}

// A selected element may be zero: there are no more than `selected` others.
uint64_t add_dense(const uint32_t* words, uint64_t selected, uint64_t count, float* output) {
  uint64_t named = 0;
  for (uint64_t i = 0; i < count; ++i) {
    output[i] += std::bit_cast<float>(words[i]);
    named += words[i] != 0;
  }
  return std::max(named, selected);
}

}  // namespace

uint64_t selection_words(uint64_t selected, uint64_t count) { return coding_of(selected, count).words; }

void encode_selection(std::span<const uint32_t> indices, const float* values, uint32_t base, uint64_t count,
                      uint32_t* words) {
  const Form form = coding_of(indices.size(), count).form;
  if (form == Form::kCoordinates) {
    for (const uint32_t i : indices) *words++ = i - base;
  } else {
    const uint64_t cleared = form == Form::kBitmap ? bitmap_words(count) : count;
    std::memset(words, 0, cleared * sizeof(uint32_t));
    for (size_t k = 0; k < indices.size(); ++k) {
      const uint32_t i = indices[k] - base;
      if (form == Form::kBitmap) {
        words[i / 32] |= uint32_t{1} << (i % 32);
      } else {
        words[i] = std::bit_cast<uint32_t>(values[k]);
      }
    }
    if (form == Form::kDense) return;
    words += cleared;
  }
  if (!indices.empty()) std::memcpy(words, values, indices.size() * sizeof(float));
}

uint64_t add_selection(const uint32_t* words, uint64_t selected, uint64_t count, float* output) {
  switch (coding_of(selected, count).form) {
    case Form::kCoordinates:
      return add_coordinates(words, selected, count, output);
    case Form::kBitmap:
      return add_bitmap(words, selected, count, output);
    case Form::kDense:
      break;
  }
  return add_dense(words, selected, count, output);
}

}  // namespace rondo
