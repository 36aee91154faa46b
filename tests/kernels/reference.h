#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/combine.h"

namespace rondo {

// What combine() should give for one element, one value at a time, written without a look at the kernels. Elements are
// their stored bits in the low bytes.
uint64_t reference_combine(const CombineSpec& spec, const std::vector<uint64_t>& sources, uint64_t scaled, bool finish);

// The conversions of docs/numerics.md, by arithmetic on exact doubles.
double reference_decode16(DType dtype, uint16_t stored);
uint16_t reference_encode16(DType dtype, float value);

// Values on which implementations differ: limits, signs, zeros, denormals, infinities, NaN of several payloads.
std::vector<uint64_t> special_values(DType dtype);

uint64_t load_element(DType dtype, const unsigned char* from);
void store_element(DType dtype, unsigned char* to, uint64_t bits);

std::vector<InstructionSet> available_instruction_sets();
std::string describe(InstructionSet set, const CombineSpec& spec);

}  // namespace rondo
