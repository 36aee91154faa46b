#pragma once

#include <chrono>
#include <map>
#include <string>

#include "tests/life/life.h"

namespace rondo::life {

struct PlayerOptions {
  std::chrono::seconds patience{10};         // without a step of any thread: a hang
  bool stacks = true;                        // of a hang, where there is gdb
  std::map<std::string, std::string> doors;  // command of a door that is not of this program
};

enum class Outcome { kRight, kFault, kCrash, kHang };
const char* outcome_name(Outcome outcome);

struct Verdict {
  Outcome outcome = Outcome::kRight;
  std::string text;  // what each rank said, or where it is
};

// Starts the ranks of a life as processes of their own, and watches them until all have ended.
Verdict play(const Life& life, const PlayerOptions& options);

}  // namespace rondo::life
