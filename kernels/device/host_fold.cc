#include "kernels/device/host_fold.h"

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

bool host_find_places(const PeerPlaces& places, DeviceFold& fold) {
  const uint64_t element_bytes = dtype_bytes(DType(fold.dtype)), bytes = fold.count * element_bytes;
  fold.count = count_in_message(places, fold.count, element_bytes);
  return find_places(places, fold, bytes, {0, 1});
}

}  // namespace rondo
