#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/life/door.h"
#include "tests/life/life.h"
#include "tests/life/model.h"

namespace rondo::life {

struct Seat {  // where a rank sits in a group
  int members = 1;
  int me = 0;
  uint64_t salt = 0;
};

// What a collective's line means for one member, in elements.
struct Shape {
  // Elements of the output that come from other ranks.
  struct Result {
    uint64_t at;
    uint64_t count;
    const Cycle* cycle;
    uint64_t phase;
  };
  Kind kind;
  uint64_t in = 0, out = 0;
  bool reads = true, writes = true;  // whether the call uses its input and output here
  bool folds = false, everywhere = false;
  bool nests = true;       // place=1 has a meaning here
  bool in_output = false;  // the input lies in the output's memory: broadcast
  uint64_t inside = 0;     // in place: where the smaller buffer lies in the larger
  std::vector<Result> results;
};

const char* verb_name(Verb verb);
bool is_collective(const std::string& verb);
// Sets what the call says but for buffers and options.
Shape make_shape(const Step& step, const Seat& seat, Call& call);

}  // namespace rondo::life
