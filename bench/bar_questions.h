#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/bars.h"
#include "bench/entrant.h"

namespace rondo::bench {

// What is asked for the sake of some bars, and whom.
struct BarQuestion {
  Question question;
  std::vector<std::string> libraries;  // ours first
  size_t settings = 1;                 // of the machine, with which the libraries are compared, too
};

// Asked for so many seconds a size and turn.
Question question_of(const Bar& bar, double seconds);

// The libraries that Rondo is compared with by a bar; none: the machine.
std::vector<std::string> peers_of(const Bar& bar);

// Without them a bar is not judged: the best of some MPIs would be no bar at all, and Gloo's modes do not all work
// everywhere.
std::vector<std::string> needed_peers_of(const Bar& bar);

// Each question once. Peers are asked over plain buffers only.
std::vector<BarQuestion> questions_of(const std::vector<Bar>& bars, double seconds);

}  // namespace rondo::bench
