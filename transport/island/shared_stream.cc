#include "transport/island/shared_stream.h"

#include <bit>

#include "ring/base/check.h"
#include "transport/island/shared_stream_body.h"

namespace rondo {

size_t shared_stream_bytes(size_t ring_bytes) { return ChannelLayout<StreamCells>({ring_bytes}).bytes; }

std::unique_ptr<ByteStream> make_shared_stream(ChannelEnd end, size_t ring_bytes) {
  RONDO_CHECK(std::has_single_bit(ring_bytes) && ring_bytes >= kSmallByteRingBytes, "a ring holds some pieces");
  return std::make_unique<SharedStream<CellOrders>>(std::move(end), ring_bytes);
}

}  // namespace rondo
