#include "rondo/sparse.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "ring/base/given_numbers.h"
#include "ring/compress/compound_call.h"
#include "ring/compress/selection.h"
#include "ring/compress/sparse_routes.h"

namespace rondo {
namespace {

// What ranks tell each other before the elements.
struct Header {
  uint64_t selected = 0;
  uint64_t not_finite = 0;  // index plus 1 of the first such element
  uint64_t count = 0;       // elements of the call
};
constexpr char kName[] = "sparse_all_reduce";
// The header travels as words of kUint64, without padding.
constexpr uint64_t kHeaderWords = sizeof(Header) / sizeof(uint64_t);

[[noreturn]] void refuse(const CompoundCall& group, const std::string& why) {
  throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", kName, group.rank(), why));
}

// Addresses as integers: pointers into different arrays may not be compared.
bool overlap(const float* a, const float* b, uint64_t count) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  const uint64_t bytes = count * sizeof(float);
  return first < second + bytes && second < first + bytes;
}

void check_selection(const CompoundCall& group, const SparseOptions& options) {
  const double spars = options.spars;
  switch (options.select) {
    case Select::kTopK:
      if (spars > 0 && spars <= 1) return;
      refuse(group,
             fmt::format("spars is {}; top-k needs a fraction above 0, at most 1 (0 would send nothing)", spars));
    case Select::kThreshold:
      if (spars >= 0 && std::isfinite(spars)) return;
      refuse(group, fmt::format("spars is {}; a threshold is a number from 0 on", spars));
  }
  refuse(group, fmt::format("select is {}, which is no selection", static_cast<int>(options.select)));
}

void check(const CompoundCall& group, const float* input, const float* output, uint64_t count,
           const SparseOptions& options) {
  const auto given = GivenNumbers::of_caller(kName, group.rank());
  given.at_most(UINT32_MAX, count, "the number of elements");
  if (count > 0 && (input == nullptr || output == nullptr)) refuse(group, "a buffer is null");
  check_selection(group, options);
  if (options.timeout.count() < 0) {
    refuse(group,
           fmt::format("timeout is {} ms; it must be positive, or 0 for the configured one", options.timeout.count()));
  }
  if (!options.tensors.empty()) {
    given.equal(count, given.sum(count, options.tensors, "the tensors' lengths"), "the sum of the tensors' lengths");
  }
  if (count == 0) return;
  if (input != output && overlap(input, output, count)) refuse(group, "input and output overlap, and are not equal");
  if (options.residual == nullptr) return;
  if (overlap(options.residual, input, count) || overlap(options.residual, output, count)) {
    refuse(group, "the residual overlaps another buffer");
  }
}

// How many elements each rank has selected.
std::vector<uint64_t> exchange(const CompoundCall& group, const Header& own, const CallOptions& options) {
  // All ranks get the same headers, so all throw the same error, and the communicator goes on.
  std::vector<Header> all(static_cast<size_t>(group.size()));
  group->all_gather(&own, all.data(), kHeaderWords, DType::kUint64, options);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].count == all[0].count) continue;
    throw Exception(Error{ErrorCode::kMismatch,
                          fmt::format("{} on rank {}: rank {} has {} elements, and rank 0 has {}", kName, group.rank(),
                                      r, all[r].count, all[0].count),
                          {static_cast<int>(r)}});
  }
  std::vector<uint64_t> selected;
  for (size_t r = 0; r < all.size(); ++r) {
    const auto given = GivenNumbers::of_peer(kName, group.rank(), static_cast<int>(r));
    selected.push_back(given.at_most(own.count, all[r].selected, "the number of its selected elements"));
    if (given.at_most(own.count, all[r].not_finite, "the place of an element that is not finite") == 0) continue;
    throw Exception(Error{ErrorCode::kNotFinite,
                          fmt::format("{} on rank {}: element {} of the input and residual of rank {} is NaN or "
                                      "infinite; nothing was sent, and the residuals are as before",
                                      kName, group.rank(), all[r].not_finite - 1, r),
                          {static_cast<int>(r)}});
  }
  return selected;
}

// The bytes that this rank has sent by the route.
uint64_t run(SparseRoute route, const SparseCall& call) {
  if (route == SparseRoute::kDense) return run_dense(call);
  return route == SparseRoute::kMerged ? run_merged(call) : run_gathered(call);
}

}  // namespace

SparseReport sparse_all_reduce(Communicator& group, const float* input, float* output, uint64_t count,
                               const SparseOptions& options) {
  return CompoundCall::run(group, Purpose::kSparse, kName, [&](const CompoundCall& call) -> SparseReport {
    check(call, input, output, count, options);
    CallOptions exchanges = call.options();
    exchanges.timeout = options.timeout;
    const Contribution u{input, options.residual, count};
    const Selection own = select(u, options);
    const std::vector<uint64_t> selected = exchange(call, {own.count, own.not_finite, count}, exchanges);
    if (count == 0) return {};  // on all ranks

    SparseReport report;
    report.selected = own.count;
    for (const uint64_t one : selected) report.total += one;
    report.route = cheapest_route(selected, count);
    report.bytes_sent = run(report.route, {call, u, own, selected, output, options.residual, exchanges});
    return report;
  });
}

}  // namespace rondo
