#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "rondo/store.h"

namespace rondo {

// A client of a PMI-1 server: lines of "cmd=name key=value ..." on a descriptor that the launcher passed down (PMI_FD).
// Every call may throw Exception(kBootstrap), or kTimeout at its deadline; after that the connection is of no use.
class PmiClient {
 public:
  // Does not own the descriptor: an MPI library in the same process may use it too.
  explicit PmiClient(int fd) : fd_(fd) {}
  // Says finalize if init had succeeded (and in the same process): without it the launcher takes the exit for a crash.
  ~PmiClient();
  PmiClient(const PmiClient&) = delete;
  PmiClient& operator=(const PmiClient&) = delete;

  // The first call does the introduction; later ones do nothing.
  void init(Store::Deadline deadline);
  // The job's name space: the same for all ranks, and for no other job of the server.
  const std::string& name_space() const { return name_space_; }

  // Any bytes: they are sent as hexadecimal digits, in several keys where they exceed the server's limit for one. A key
  // can be put once.
  void put(std::string_view key, std::string_view value, Store::Deadline deadline);
  // All ranks of the job call it; what was put before is visible afterwards.
  void barrier(Store::Deadline deadline);
  std::string get(std::string_view key, Store::Deadline deadline);

  // Counts up from 0: the n-th meeting of this process.
  int next_meeting() { return meetings_++; }

 private:
  // Sends a line and returns the answer, which must begin with cmd=`answer` and have no rc but 0.
  std::string ask(const std::string& line, std::string_view answer, Store::Deadline deadline);
  std::string read_line(Store::Deadline deadline);

  int fd_;
  pid_t owner_ = 0;  // set by init
  bool broken_ = false;
  std::string input_;  // read, but not yet a whole line
  std::string name_space_;
  size_t key_limit_ = 0;
  size_t value_limit_ = 0;
  int meetings_ = 0;
};

// The connection of this process: PMI_FD belongs to the process and is introduced once, however often the process joins
// a group. It ends with the process.
PmiClient& process_pmi(int fd);

}  // namespace rondo
