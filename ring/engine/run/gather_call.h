#pragma once

#include <cstdint>

#include "ring/engine/call/call.h"
#include "ring/engine/communicator_context.h"

namespace rondo {

// An all_gather of the library's own: a block of `bytes` bytes a rank.
inline CheckedCall gather_of_bytes(const CommunicatorContext& context, uint64_t bytes) {
  CheckedCall call;
  call.collective = Collective::kAllGather;
  call.dtype = DType::kUint8;
  call.count = bytes;
  for (uint64_t rank = 0; rank < context.members.size(); ++rank) call.output_blocks.push_back({rank * bytes, bytes});
  call.input_blocks.resize(context.members.size());
  call.input_blocks[static_cast<size_t>(context.rank)] = {0, bytes};
  return call;
}

}  // namespace rondo
