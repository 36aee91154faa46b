#pragma once

#include "tests/life/player.h"

namespace rondo::life {

// Reduces a failing life by playing it again and again, for at most `seconds`: fewer threads, steps, repetitions,
// settings, ranks and elements, as long as it fails alike. Prints what is left.
void shrink_and_tell(const Life& life, const Verdict& verdict, const PlayerOptions& options, int seconds);

}  // namespace rondo::life
