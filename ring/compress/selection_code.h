#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

// Selected elements among `count` as words of 32 bits, in the shortest of three forms; which one follows from the two
// numbers:
//   coordinates  all indices, all values
//   bitmap       a bit for each of the count elements, all values
//   dense        all elements, zero where not selected
uint64_t selection_words(uint64_t selected, uint64_t count);

// indices: ascending; each less `base` is below count. values: of each index. words: selection_words() of them.
void encode_selection(std::span<const uint32_t> indices, const float* values, uint32_t base, uint64_t count,
                      uint32_t* words);

// output[i] += the selected value, for each of them. Returns how many elements the words name, which another rank may
// have spoilt: nothing is written outside of output's count elements. selected: at most count.
uint64_t add_selection(const uint32_t* words, uint64_t selected, uint64_t count, float* output);

}  // namespace rondo
