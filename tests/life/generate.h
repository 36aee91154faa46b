#pragma once

#include <cstdint>

#include "tests/life/life.h"

namespace rondo::life {

// The life of a seed: the same on every machine.
Life generate(uint64_t seed);

}  // namespace rondo::life
