#pragma once

#include <string>
#include <vector>

#include "kernels/combine.h"

namespace rondo::testing {

inline std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets;
  for (InstructionSet set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512})
    if (instruction_set_available(set)) sets.push_back(set);
  return sets;
}

inline std::string describe(InstructionSet set, const CombineSpec& spec) {
  return std::string(instruction_set_name(set)) + " " + dtype_name(spec.dtype) + " " + op_name(spec.op) + " world " +
         std::to_string(spec.world) + " scalar " + std::to_string(spec.scalar);
}

}  // namespace rondo::testing
