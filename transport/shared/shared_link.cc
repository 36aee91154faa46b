#include "transport/shared/shared_link.h"

#include "transport/shared/shared_link_body.h"

namespace rondo {

std::unique_ptr<Link> make_shared_link(SharedLinkEnd end, const LinkShape& shape) {
  RONDO_CHECK(sane_shape(shape), "a link holds 2 to 65 slices of at most 16 MiB");
  return std::make_unique<SharedLink<SharedLinkOrders>>(std::move(end), shape);
}

}  // namespace rondo
