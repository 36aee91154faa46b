#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ring/base/check.h"

namespace rondo::fuzz {

// What a fuzz target defines. Two mains drive it: replay_main.cc, a test of every build, and libfuzzer_main.cc.

// Inputs to begin from. Today's encoders make them, so that they follow every change of a format.
std::vector<std::string> seeds();

// Tries one input. Returns whether it was accepted or refused; a promise that is broken ends the process (RONDO_CHECK,
// or a sanitizer).
void try_input(std::string_view input);

}  // namespace rondo::fuzz
