#pragma once

#include <cstdint>
#include <string>

#include "rondo/communicator.h"
#include "tests/life/life.h"
#include "tests/life/shape.h"

namespace rondo::life {

// Plays a `distopt` line on one member. "" or what is wrong; *hash: of the gradients that all members have then.
// Throws rondo::Exception.
std::string play_dist_opt(const Step& step, const Seat& seat, Communicator& group, uint64_t* hash);

}  // namespace rondo::life
