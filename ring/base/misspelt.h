#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ring/base/log.h"

namespace rondo {

// Variables of Rondo that are no settings: the rendezvous, rondo-run and the Python package read them.
std::span<const std::string_view> variables_beside_settings();

// Letters to insert, remove or change to make one word of the other (Levenshtein).
size_t spelling_distance(std::string_view from, std::string_view to);

// Warns of variables in the environment that nothing reads, and whose name is nearly that of one that is read:
// more than half of the letters behind "RONDO_" are the same. Once for each in a process, since a program may
// read its environment for many communicators. settings: names that are read as settings. Any thread.
void warn_of_misspelt(std::span<const std::string_view> settings, const Logger& log);

}  // namespace rondo
