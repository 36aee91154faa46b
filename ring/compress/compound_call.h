#pragma once

#include "kernels/machine.h"
#include "rondo/communicator.h"

namespace rondo {

// A call that is made of calls, as sparse_all_reduce() is: it reads what its exchanges bring, and all ranks make all of
// them. Its parts take this, not the Communicator. So it is refused in a batch, which would keep the exchanges, and no
// rank waits for one that has gone: where a rank ends it alone, by an exception, the communicator fails.
class CompoundCall {
 public:
  // body(call), whose result is returned. Throws kInvalid, or the communicator's failure, before it begins. What all
  // ranks know (kNotFinite, kMismatch) and kInvalid before the first exchange pass as they are; anything else that body
  // throws fails the communicator, whose failure is thrown. name: a literal.
  template <typename Body>
  static auto run(Communicator& group, Purpose purpose, const char* name, Body body) {
    CompoundCall call(group, purpose, name);
    try {
      return body(call);
    } catch (...) {
      call.end_by_exception();
    }
  }

  const char* name() const { return name_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  // Options of an exchange, by which it matches no call of the program.
  CallOptions options() const { return {.purpose = purpose_}; }
  // For an exchange, with options().
  Communicator* operator->() const {
    begun_ = true;
    return &group_;
  }

 private:
  // Throws before anything is exchanged: the communicator's failure, or kInvalid in an open batch or an end function.
  CompoundCall(Communicator& group, Purpose purpose, const char* name);
  // The current exception as it is, if all ranks throw it or none has begun; else the communicator fails, and its
  // failure is thrown.
  [[noreturn]] void end_by_exception() const;

  Communicator& group_;
  const Purpose purpose_;
  const char* const name_;
  const DefaultFloatMode mode_;  // what a rank computes here must not depend on its thread
  // Set by the first exchange: from then on other ranks wait for this one.
  mutable bool begun_ = false;
};

}  // namespace rondo
