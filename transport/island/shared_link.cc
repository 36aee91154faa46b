#include "transport/island/shared_link.h"

#include "transport/island/shared_link_body.h"

namespace rondo {

size_t shared_link_bytes(const LinkShape& shape) {
  return ChannelLayout<LinkCells>({shape.depth, shape.slice_bytes}).bytes;
}

std::unique_ptr<Link> make_shared_link(ChannelEnd end, const LinkShape& shape) {
  RONDO_CHECK(sane_shape(shape), "a link holds 2 to 65 slices of at most 16 MiB");
  return std::make_unique<SharedLink<CellOrders>>(std::move(end), shape);
}

}  // namespace rondo
