#include "rondo/sparse.h"

#include <chrono>
#include <string>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

namespace {

static_assert(RONDO_TOP_K == static_cast<int>(rondo::Select::kTopK) &&
              RONDO_THRESHOLD == static_cast<int>(rondo::Select::kThreshold));
static_assert(RONDO_SPARSE_GATHERED == static_cast<int>(rondo::SparseRoute::kGathered) &&
              RONDO_SPARSE_MERGED == static_cast<int>(rondo::SparseRoute::kMerged) &&
              RONDO_SPARSE_DENSE == static_cast<int>(rondo::SparseRoute::kDense));

// Checks what does not fit the C++ types; spars and lengths are checked by sparse_all_reduce(). `tensors` refers to the
// caller's array.
rondo::SparseOptions sparse_options_of(const rondo_sparse_options_t* given_options) {
  if (given_options == nullptr) return {};
  const auto options = read_struct(given_options, rondo_sparse_options_t RONDO_SPARSE_OPTIONS_INIT, "options");
  if (options.select < RONDO_TOP_K || options.select > RONDO_THRESHOLD) {
    throw rondo::Exception(rondo::ErrorCode::kInvalid, "unknown selection " + std::to_string(options.select));
  }
  if (options.timeout_ms < 0) {
    throw rondo::Exception(rondo::ErrorCode::kInvalid, "timeout is " + std::to_string(options.timeout_ms) +
                                                           " ms; it must be positive, or 0 for the configured one");
  }
  rondo::SparseOptions made;
  made.select = static_cast<rondo::Select>(options.select);
  made.spars = options.spars;
  made.residual = options.residual;
  if (options.tensors != nullptr) made.tensors = {options.tensors, options.tensor_count};
  made.timeout = std::chrono::milliseconds(options.timeout_ms);
  return made;
}

}  // namespace

extern "C" {

rondo_result_t rondo_sparse_all_reduce(rondo_comm_t comm, const float* input, float* output, uint64_t count,
                                       const rondo_sparse_options_t* options, rondo_sparse_report_t* report) {
  return guarded([&] {
    const rondo::SparseReport made =
        rondo::sparse_all_reduce(*communicator(comm), input, output, count, sparse_options_of(options));
    if (report == nullptr) return;
    *report = {made.selected, made.total, made.bytes_sent, static_cast<rondo_sparse_route_t>(made.route), 0};
  });
}

}  // extern "C"
