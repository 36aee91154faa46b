#pragma once

#include <sys/types.h>

#include <string>

#include "rondo/store.h"
#include "transport/rendezvous/pmix_abi.h"

namespace rondo {

// A client of the launcher's PMIx server, through libpmix.so.2, which is opened when it is needed. An MPI library in
// the same process may use it too. Every call may throw Exception(kBootstrap) with what to do instead.
class PmixClient {
 public:
  // This process's: introduced to the server at the first call, and until the process ends.
  static PmixClient& of_process();
  // Says goodbye to the server, in the process that was introduced: without it the launcher takes the exit for a crash.
  ~PmixClient();
  PmixClient(const PmixClient&) = delete;
  PmixClient& operator=(const PmixClient&) = delete;

  // Makes a text known to all ranks. A key can be put once.
  void put(const std::string& key, const std::string& value);
  // Waits until that rank has put it. Throws Exception(kBootstrap) naming the rank at the deadline.
  std::string get(int rank, const std::string& key, Store::Deadline deadline);

  // Counts up from 0: the n-th meeting of this process.
  int next_meeting() { return meetings_++; }

 private:
  PmixClient();
  template <class Function>
  Function symbol(const char* name) const;
  pmix::Status try_get(int rank, const std::string& key, std::string& text) const;
  void check(const char* call, pmix::Status status) const;

  void* library_ = nullptr;  // never closed: it has threads of its own
  pid_t owner_ = 0;
  pmix::Process self_{};
  int meetings_ = 0;
};

}  // namespace rondo
