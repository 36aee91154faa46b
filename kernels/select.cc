#include "kernels/select.h"

#include "kernels/machine.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

Selected select_by(const SelectRow& row, const SelectCall& call) {
  const DefaultFloatMode mode;
  return call.residual != nullptr ? row.sum(call) : row.plain(call);
}

}  // namespace

Selected select_magnitudes(const SelectCall& call) {
  static const SelectRow& row = *select_row(active_instruction_set());
  return select_by(row, call);
}

Selected select_magnitudes_with(InstructionSet set, const SelectCall& call) {
  const SelectRow* row = select_row(set);
  RONDO_CHECK(row != nullptr, "an instruction set that this machine lacks");
  return select_by(*row, call);
}

}  // namespace rondo
