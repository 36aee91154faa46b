#include "transport/island/shared_stream.h"

#include "transport/island/shared_stream_body.h"

namespace rondo {

size_t shared_stream_bytes(const BufferShape& shape) { return SharedStream<CellOrders>::memory_bytes(shape); }

std::unique_ptr<ByteStream> make_shared_stream(ChannelEnd end, std::shared_ptr<StreamBuffers> buffers) {
  return std::make_unique<SharedStream<CellOrders>>(std::move(end), std::move(buffers));
}

}  // namespace rondo
