#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/byte_stream.h"

namespace rondo::testing {

// The two ends of a new stream, and what lets time pass between them where that is simulated.
struct StreamEnds {
  std::unique_ptr<ByteStream> side[2];
  std::function<void()> advance = [] {};
  std::string first_name = "first peer";  // of side 0, in errors
};
using MakeStream = std::function<StreamEnds(uint64_t seed)>;

// What every implementation of ByteStream must do (transport/byte_stream.h), by doctest's checks. Both ends are driven
// by the calling thread.
void check_stream_contract(const MakeStream& make, uint64_t first_seed, uint64_t seeds);
// The traffic of it alone, each end driven by a thread of its own.
void check_stream_between_threads(const MakeStream& make, uint64_t first_seed, uint64_t seeds);

}  // namespace rondo::testing
