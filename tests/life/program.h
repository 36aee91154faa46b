#pragma once

#include <string>

#include "tests/life/life.h"

namespace rondo::life {

// A life as a C++ program of the public API: the same calls, sizes and places of buffers. It checks no values; it
// prints what fails, and a hash of all outputs. Lines that it has no words for are comments in it.
std::string program_of(const Life& life);

}  // namespace rondo::life
