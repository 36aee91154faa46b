#include "kernels/device/host_fold.h"

#include "kernels/device/fold_rows.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

template <class K>
int run_threads(const DeviceFold& fold, const PeerPlaces&, void* threads) {
  const PassOf<K> pass = pass_of<K>(fold);
  const uint64_t count = *static_cast<const uint64_t*>(threads);
  for (uint64_t i = 0; i < count; ++i) fold_thread(pass, {i, count});
  return 0;
}

struct Threads {
  using Row = FoldRow;
  template <class K>
  static constexpr FoldLaunch of() {
    return run_threads<K>;
  }
};

constexpr IntegerRows kIntegerRows = integer_rows<Threads>();
constexpr OtherRows kOtherRows = other_rows<Threads>();

void copy_threads(const DeviceFold& fold, uint64_t threads) {
  const PassOf<Copy> pass = pass_of<Copy>(bytes_of(fold));
  for (uint64_t i = 0; i < threads; ++i) copy_thread(pass, {i, threads});
}

}  // namespace

void host_fold(const DeviceFold& fold, uint64_t threads) {
  if (fold.count == 0) return;
  if (fold.fold == kCopies) return copy_threads(fold, threads);
  const FoldRow& row = fold.dtype < kIntegers ? kIntegerRows.of[fold.dtype] : kOtherRows.of[fold.dtype - kIntegers];
  RONDO_CHECK(row.folds[fold.fold] != nullptr, "no pass for a pair that op_supports() allows");
  row.folds[fold.fold](fold, {}, &threads);
}

bool host_find_places(const PeerPlaces& places, DeviceFold& fold) {
  const uint64_t element_bytes = dtype_bytes(DType(fold.dtype)), bytes = fold.count * element_bytes;
  fold.count = count_in_message(places, fold.count, element_bytes);
  return find_places(places, fold, bytes, {0, 1});
}

}  // namespace rondo
