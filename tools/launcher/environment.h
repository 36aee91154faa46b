#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::launcher {

using Environment = std::vector<std::string>;  // "NAME=value"

// Replaces the variable of the same name, or adds it.
void set_variable(Environment& environment, const std::string& assignment);

// This process's own environment.
Environment own_environment();

// What all ranks of a job share: where they meet and how they know one another.
struct Meeting {
  std::string folder;        // private to this user and job; rank 0 makes its socket there
  std::string job_id;        // unique
  uint16_t master_port = 0;  // free a moment ago, for programs that want MASTER_PORT; Rondo meets in the folder
};

// The variables that tell a program its place, in Rondo's own names and in the field's.
void set_place(Environment& environment, const Meeting& meeting, int rank, int world);

// A TCP port of 127.0.0.1 that nobody listens on at the moment.
uint16_t free_port();
// 128 random bits in hexadecimal digits.
std::string random_id();

}  // namespace rondo::launcher
