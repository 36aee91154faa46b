#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ring/base/log.h"

namespace rondo {

// Variables of Rondo's that are no settings: read by the rendezvous, rondo-run and the Python package.
std::span<const std::string_view> variables_beside_settings();

// Letters to insert, take out or change to make one word of the other (Levenshtein).
size_t spelling_distance(std::string_view from, std::string_view to);

// Warns of each variable of the environment that nobody reads and that is nearly the name of one that somebody does:
// more than half of its letters behind "RONDO_" stay. Once a process of each, since a program may read its environment
// for each of many communicators. settings: names that are read as settings; those that are read elsewhere are known.
// Any thread.
void warn_of_misspelt(std::span<const std::string_view> settings, const Logger& log);

}  // namespace rondo
