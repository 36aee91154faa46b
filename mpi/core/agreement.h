#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "mpi/core/errors.h"
#include "mpi/core/objects.h"

namespace rondo_mpi {

// How the ranks of a communicator agree to make something together: each checks what it gives, and hears of the others
// before it goes on. If one refuses, all throw: that rank what its check threw, the others its error class and its
// name. Without that a rank that refuses alone would leave the others in the exchange that follows. MPI lets an error
// leave them there; programs that catch errors would hang.
class Verdict {
 public:
  // Runs check(), which waits for no rank. comm: must outlive this.
  Verdict(const Comm& comm, const std::function<void()>& check);
  // What the others have to hear, in whatever exchange the call makes; the largest of all ranks counts. 0: no refusal.
  int64_t word() const { return word_; }
  // The largest of all, by an exchange of its own: 8 bytes by all ranks of comm.engine.
  int64_t exchange() const;
  void settle(int64_t largest) const;
  // The error class or code in a word, or MPI_SUCCESS.
  static int code_of(int64_t word) { return static_cast<int>(static_cast<uint32_t>(word)); }

 private:
  const Comm& comm_;
  std::optional<Failure> own_;
  int64_t word_ = 0;
};

// A verdict with its exchange: no rank goes on before all have come.
void agree(const Comm& comm, const std::function<void()>& check);

}  // namespace rondo_mpi
