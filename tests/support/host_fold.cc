#include "tests/support/host_fold.h"

#include "kernels/device/fold_rows.h"
#include "ring/base/check.h"

namespace rondo {

void host_fold(const DeviceFold& fold, uint64_t threads) {
  if (fold.count == 0) return;
  const bool copies = fold.fold == kCopies;
  const ThreadFold run = copies ? copy_thread : kThreadFolds.of[fold.dtype].folds[fold.fold];
  RONDO_CHECK(run != nullptr, "no pass for a pair that op_supports() allows");
  Pass pass{fold, 0, 0};
  if (copies) pass.fold.count *= dtype_bytes(DType(fold.dtype));
  align_pass(pass, copies ? 1 : dtype_bytes(DType(fold.dtype)));
  for (uint64_t i = 0; i < threads; ++i) run(pass, {i, threads});
}

}  // namespace rondo
