#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/doorbell.h"
#include "transport/fabric.h"
#include "transport/link.h"

namespace rondo {

// The two ends of a link between ranks that are threads of one process: a mailbox of `depth` slots each way, lent to
// the thread that writes or reads them. The doorbells are those of the two progress engines and must outlive both ends.
std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> make_inproc_link(const LinkShape& shape,
                                                                         std::shared_ptr<Doorbell> first_bell,
                                                                         std::shared_ptr<Doorbell> second_bell,
                                                                         std::string first_name,
                                                                         std::string second_name);

}  // namespace rondo
