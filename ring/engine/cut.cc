#include "ring/engine/cut.h"

#include <algorithm>

namespace rondo {
namespace {

// Shares and slices begin at multiples of a cache line from the start of their block.
constexpr uint64_t kGranuleBytes = 64;
// A piece up to here is one slice: each further slice costs a header and up to two system calls (about 2 us over
// loopback), as much as 8 to 16 KiB take on the wire.
constexpr uint64_t kSmallestSliceBytes = 16 * 1024;
// However many mailboxes share the cap, a slice does not get smaller than a page.
constexpr uint64_t kSmallestCapBytes = 4 * 1024;

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

LinkShape link_shape(const Config& config) { return {config.slices_per_chunk + 1, config.slice_bytes}; }

Cut choose_cut(const CheckedCall& call, const Plan& plan, const Config& config) {
  const uint64_t element = std::max<uint64_t>(1, dtype_bytes(call.dtype));
  const uint64_t lanes = plan.lanes.size();
  Cut cut;
  cut.lanes = static_cast<uint32_t>(lanes);
  cut.granule = std::max<uint64_t>(1, kGranuleBytes / element);
  cut.slices_per_chunk = std::max(1u, config.slices_per_chunk / plan.ahead);
  // Mailboxes: a link has depth slots each way; a rank has at most `fan` links a lane.
  const uint64_t mailboxes = 2 * uint64_t{link_shape(config).depth} * std::max<uint32_t>(1, plan.fan) * lanes;
  const uint64_t cap = std::max(kSmallestCapBytes, config.mailbox_bytes / mailboxes);
  const uint64_t largest = std::min<uint64_t>(config.slice_bytes, cap) / element / cut.granule * cut.granule;
  cut.slice = largest;
  if (const auto block = call.largest_block(plan.chunks, cut.granule)) {
    const uint64_t wanted = divide_up(divide_up(*block, lanes), cut.slices_per_chunk);
    const uint64_t smallest = std::min(largest, kSmallestSliceBytes / element);
    cut.slice = std::clamp(divide_up(wanted, cut.granule) * cut.granule, smallest, largest);
  }
  return cut;
}

Blocks lay_out_blocks(const CheckedCall& call, const Plan& plan, const Cut& cut) {
  if (!call.input_blocks.empty() || !call.output_blocks.empty()) return {call.input_blocks, call.output_blocks};
  auto blocks = even_blocks(call.count, plan.chunks, cut.granule);
  return {blocks, blocks};
}

}  // namespace rondo
