#include "ring/engine/run/slicing.h"

#include <algorithm>

#include "kernels/pack.h"
#include "kernels/wire_codec.h"
#include "ring/base/check.h"
#include "ring/engine/run/wire_move.h"

namespace rondo {
namespace {

// Slices begin at multiples of a cache line from the start of their block.
constexpr uint64_t kGranuleBytes = 64;
// A slice of a plan over windows. Only the cache asks for slices there: as many sources and targets of this
// size as there are ranks, 2 to 8, stay in a second-level cache of 1 MiB.
constexpr uint64_t kWindowSliceBytes = 64 * 1024;

// The smallest slice that the cap on mailboxes can force: a page, however many mailboxes share the cap.
constexpr uint64_t kSmallestCapBytes = 4 * 1024;
static_assert(kSmallestCapBytes >= kMostUserBytes);

// Both numbers are below 2^62 (check_call()), so the sum does not wrap.
uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// What slices begin at multiples of: in elements, and in bytes as they travel. beside: bytes that a travelling
// slice has besides its elements.
struct Granule {
  uint64_t elements = 1, bytes = 1, beside = 0;
};
Granule granule_of(const CheckedCall& call) {
  const uint64_t element = call.element_bytes();
  if (call.wire == WireFormat::kPacked) return {kPackedBlock, packed_bytes(element, kPackedBlock), 0};
  if (call.coded()) {
    const uint64_t bytes = wire_block_bytes(call.wire);
    return {kWireBlock, bytes, wire_slice_bytes(call.wire, element, kWireBlock) - bytes};
  }
  const uint64_t elements = std::max<uint64_t>(1, kGranuleBytes / element);
  return {elements, elements * element, 0};
}

}  // namespace

LinkShape link_shape(const Config& config) { return {config.slices_per_chunk + 1, config.slice_bytes}; }

Slicing choose_slicing(const CheckedCall& call, const Plan& plan, const Config& config, const Topology& topology) {
  const Granule granule = granule_of(call);
  Slicing slicing;
  slicing.granule = granule.elements;
  // A link holds the slices of all chunks that are under way at once.
  slicing.slices_per_chunk = std::max(1u, config.slices_per_chunk / plan.chunks_in_flight);
  // Mailboxes: a link has depth slots each way; a rank has at most `max_peers` links.
  const uint64_t mailboxes = 2 * uint64_t{link_shape(config).depth} * std::max<uint32_t>(1, plan.max_peers);
  const uint64_t cap = std::max(kSmallestCapBytes, config.mailbox_bytes / mailboxes);
  const uint64_t room = std::min<uint64_t>(config.slice_bytes, cap) - granule.beside;
  const uint64_t largest = room / granule.bytes * granule.elements;
  slicing.slice = largest;
  if (const auto block = call.largest_block(plan.blocks, slicing.granule)) {
    const Passing passing = passing_of(plan.algorithm, plan.blocks);
    const uint64_t slices = wanted_slices(passing, topology.one_host(), slicing.slices_per_chunk);
    const uint64_t wanted = divide_up(*block, slices);
    const uint64_t least = smallest_slice_bytes(passing, loopback(topology)) / granule.bytes * granule.elements;
    const uint64_t smallest = std::min(largest, least);
    slicing.slice = std::clamp(divide_up(wanted, slicing.granule) * slicing.granule, smallest, largest);
  }
  return slicing;
}

Slicing choose_window_slicing(const CheckedCall& call, const Plan& plan, uint64_t round_bytes) {
  const uint64_t element = call.element_bytes();
  Slicing slicing;
  const uint64_t room = elements_that_fit(round_bytes, plan.blocks, element);  // of a chunk
  RONDO_CHECK(room > 0, "a round that holds no element of each chunk");
  slicing.granule = std::min(std::max<uint64_t>(1, kGranuleBytes / element), room);
  const uint64_t largest_block = call.largest_block(plan.blocks, slicing.granule).value_or(0);
  const uint64_t whole = std::max<uint64_t>(1, divide_up(largest_block, slicing.granule)) * slicing.granule;
  const uint64_t most = room / slicing.granule * slicing.granule;
  const uint64_t chunk = std::min(most, whole);
  slicing.slice =
      std::min(chunk, std::max<uint64_t>(1, kWindowSliceBytes / element / slicing.granule) * slicing.granule);
  slicing.slices_per_chunk = static_cast<uint32_t>(divide_up(chunk, slicing.slice));
  // A chunk is of whole slices.
  if (slicing.chunk() > most)
    slicing.slices_per_chunk = static_cast<uint32_t>(std::max<uint64_t>(1, chunk / slicing.slice));
  return slicing;
}

// The products fit 64 bits: check_call() has bounded the blocks of all ranks together.
BufferBytes buffer_bytes(const CheckedCall& call, int world) {
  const uint64_t block = call.count * call.element_bytes();
  const uint64_t all = block * static_cast<uint64_t>(world);
  const CollectiveFacts& facts = facts_of(call.collective);
  return {facts.input.blocks ? all : block, facts.output.blocks ? all : block};
}

void lay_out_windows(const CheckedCall& call, const Plan& plan, const Slicing& slicing, WindowBinding& windows) {
  if (!call.blocks) {
    windows.input_blocks = even_blocks(call.count, plan.blocks, slicing.granule);
    windows.output_blocks = windows.input_blocks;
    windows.largest_block = windows.input_blocks.front().count;  // the first are the longest
    return;
  }
  // A block a rank: one after the other, or alone in the buffer.
  const CollectiveFacts& facts = facts_of(call.collective);
  windows.input_blocks.clear();
  windows.output_blocks.clear();
  for (uint64_t b = 0; b < plan.blocks; ++b) {
    windows.input_blocks.push_back({facts.input.blocks ? b * call.count : 0, call.count});
    windows.output_blocks.push_back({facts.output.blocks ? b * call.count : 0, call.count});
  }
  windows.largest_block = call.count;
}

Blocks lay_out_blocks(const CheckedCall& call, const Plan& plan, const Slicing& slicing) {
  if (call.blocks) return *call.blocks;
  auto blocks = even_blocks(call.count, plan.blocks, slicing.granule);
  return {blocks, blocks};
}

}  // namespace rondo
