// ranks.so: a rank of a life for a program in another language (door_asked.h).
#include <exception>
#include <iostream>

#include "ring/base/file_text.h"
#include "tests/life/door_asked.h"
#include "tests/life/rank.h"

int life_play(life_ask_t ask, const char* file, int rank, const char* meeting, const char* folder) {
  try {
    rondo::life::ask_by(ask);
    return rondo::life::play_life(rondo::life::parse(rondo::file_text(file)), rank, meeting, folder);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
