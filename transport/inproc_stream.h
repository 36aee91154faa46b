#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/byte_stream.h"
#include "transport/doorbell.h"

namespace rondo {

// The two ends of a byte stream between threads of one process. The doorbells are rung when an end can go on.
std::pair<std::unique_ptr<ByteStream>, std::unique_ptr<ByteStream>> make_inproc_stream(
    std::shared_ptr<Doorbell> first_bell, std::shared_ptr<Doorbell> second_bell, std::string first_name,
    std::string second_name);

}  // namespace rondo
