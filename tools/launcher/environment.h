#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::launcher {

// The job ids that rondo-run makes begin with it.
inline constexpr char kJobPrefix[] = "rondo-run-";

using Environment = std::vector<std::string>;  // "NAME=value"

// "NAME="; nothing where it is not there.
void unset_variable(Environment& environment, const std::string& name);
// Replaces the variable of the same name, or adds it.
void set_variable(Environment& environment, const std::string& assignment);

// This process's own environment, less what rondo-run has set for it as a rank of another job.
Environment own_environment();

// The value of a variable; "" if it is not there.
std::string value_of(const Environment& environment, const std::string& name);

// Where the ranks of a job meet and how they know one another.
struct Meeting {
  std::string rendezvous;   // RONDO_RENDEZVOUS
  std::string newcomers;    // RONDO_JOIN; "": none are taken in
  std::string job_id;       // unique
  std::string master_host;  // MASTER_ADDR, for programs that want it
  uint16_t master_port = 0;
};

// A rank's place among the ranks, those of its host, and the hosts.
struct RankPlace {
  int rank = 0, world = 0;
  int local_rank = 0, local_world = 0;
  int node = 0, nodes = 1;
};

// The variables that tell a program its place, in Rondo's own names and in the field's.
void set_place(Environment& environment, const Meeting& meeting, const RankPlace& place);

// Takes away what makes a process a rank, of this job or of the launcher around it: it is a newcomer, in the same place
// of its host.
void unset_rank(Environment& environment);

// OMP_NUM_THREADS, where it is not set: this process's cores divided among the ranks of the host, at least 1.
void limit_threads(Environment& environment, int local_world);

// This machine's loopback address, over IPv4 if it has one, and a TCP port of it that nobody listens on at the moment.
struct LoopbackPort {
  std::string host;
  uint16_t port = 0;
};
// Throws std::runtime_error where there is none.
LoopbackPort free_port();
// 128 random bits in hexadecimal digits. Throws std::system_error.
std::string random_id();

}  // namespace rondo::launcher
