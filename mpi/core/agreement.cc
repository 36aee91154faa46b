#include "mpi/core/agreement.h"

#include <string>

namespace rondo_mpi {
namespace {

// In an intercommunicator the engine's ranks are those of both groups.
std::string name_of(const Comm& comm, int engine_rank) {
  const int own = engine_rank - comm.first;
  if (own >= 0 && own < comm.size()) return "rank " + std::to_string(own);
  return "rank " + std::to_string(comm.peer_of(engine_rank)) + " of the remote group";
}

}  // namespace

// The word has the rank in the upper half: of several refusals that of the highest rank is told. 0 is no refusal, so
// the rank counts from 1.
Verdict::Verdict(const Comm& comm, const std::function<void()>& check) : comm_(comm) {
  try {
    check();
  } catch (...) {
    own_ = caught();
    word_ = (int64_t{comm.engine->rank()} + 1) << 32 | static_cast<uint32_t>(own_->code);
  }
}

int64_t Verdict::exchange() const {
  int64_t largest = word_;
  try {
    comm_.engine->all_reduce(&largest, &largest, 1, rondo::DType::kInt64, rondo::Op::kMax);
  } catch (...) {  // another rank may have heard of the refusal, and have ended the job
    if (own_) throw Failure(*own_);
    throw;
  }
  return largest;
}

void Verdict::settle(int64_t largest) const {
  if (own_) throw Failure(*own_);
  if (largest == 0) return;
  throw Failure{code_of(largest),
                name_of(comm_, static_cast<int>(largest >> 32) - 1) + " cannot make this call; its own error says why",
                true};
}

void agree(const Comm& comm, const std::function<void()>& check) {
  const Verdict verdict(comm, check);
  verdict.settle(verdict.exchange());
}

}  // namespace rondo_mpi
