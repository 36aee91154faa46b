#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// What goes to a rank, or comes from it; `peer` is a rank of the engine's communicator. Order matters between parts of
// one peer alone.
struct Part {
  int peer = 0;
  Data data;
};

// A reduction by what the engine does not know by name.
struct Fold {
  std::shared_ptr<const Op> op;
  std::shared_ptr<const Type> type;
};

// A collective of MPI as one call of the engine on bytes (or on elements, where it reduces), and what has to be done
// when that is over: unpacking. Which call that is depends on what all ranks give alike, never on one rank's types. One
// object is one call, and is used by one thread. The engine reads the program's buffers until the work is over, so
// finish() runs after that; both are handed to the request by a nonblocking call.
class Collective {
 public:
  // Runs to its end. The call waits on the thread of the program, which makes progress meanwhile.
  explicit Collective(Comm& comm) : comm_(comm), engine_(*comm.engine), blocking_(true) {}
  // Starts, in the communicator `engine` of the same ranks. Another communicator than the own one is that of a
  // persistent call.
  Collective(Comm& comm, rondo::Communicator& engine) : comm_(comm), engine_(engine), blocking_(false) {}

  void barrier();
  void broadcast(Data data, int root);
  void gather(Data send, Data receive, int root);
  void scatter(Data send, Data receive, int root);
  void all_gather(Data send, Data receive);
  void all_to_all(Data send, Data receive);
  // Blocks of ranks 0, 1, ... of the communicator (of an intercommunicator: of the remote group). `send`, `receive`:
  // one for each rank; empty where this rank has none.
  void gather_v(Data send, std::vector<Data> receive, int root);
  void scatter_v(std::vector<Data> send, Data receive, int root);
  void all_gather_v(Data send, std::vector<Data> receive);
  void all_to_all_v(std::vector<Data> send, std::vector<Data> receive);

  void reduce(Data send, void* receive, const Op& op, int root);
  void all_reduce(Data send, void* receive, const Op& op);
  // counts: elements of each rank; of an intercommunicator: of each rank of the own group. One count: it is that of
  // all.
  void reduce_scatter(Data send, void* receive, const std::vector<MPI_Count>& counts, bool even, const Op& op);
  // exclusive: the ranks before this one alone.
  void scan(Data send, void* receive, const Op& op, bool exclusive);

  // Moves the parts that each pair of ranks agrees on; several parts of one peer keep their order. Calls of
  // intercommunicators, of neighbors and with lists of types are made of it.
  void exchange(std::vector<Part> send, std::vector<Part> receive);

  // A blocking one is over when this is called. Hands over what is under way.
  rondo::Work work() { return std::move(work_); }
  // The function unpacks and folds. It holds all kept memory, and goes to Request::finish, which runs on the thread
  // that waits; for a request that was freed, on the engine's.
  std::function<void()> finish();

 private:
  // Blocks of a buffer as the engine takes them: bytes, by ranks of the engine.
  struct View {
    std::byte* base = nullptr;
    std::vector<uint64_t> counts, displacements;

    std::byte* end() const;
    // Whether memory lies between the blocks, in none of them: the engine would take it for an overlap.
    bool surrounds(const void* memory, uint64_t bytes) const;
  };

  // Runs or starts the engine's call: the last thing that each of these functions does.
  void go(const rondo::Call& call);
  void then(std::function<void()> function);
  // Memory that lives until finish() has run.
  std::byte* keep(MPI_Count bytes);
  // Dense data is used where it lies. Other data is packed into kept memory.
  const void* input(const Data& data);
  std::byte* output(const Data& data);
  View view(std::vector<Part>& parts, bool out, bool packed);
  void check_root(int root) const;
  Data reduced(Data send, void* receive, const Op& op) const;
  void reduce_by(rondo::Call& call, const Data& send, const Data& result, MPI_Count from, const Op& op);
  void fold_here(const rondo::Call& call, const Data& send, const Data& result, MPI_Count from, const Fold& how);
  bool rooted_inter(int root, std::vector<Part> at_root, Data elsewhere, bool root_sends);

  Comm& comm_;
  rondo::Communicator& engine_;
  const bool blocking_;
  rondo::Work work_;
  std::vector<std::shared_ptr<const void>> kept_;  // until the call is over
  std::vector<std::function<void()>> after_;
};

}  // namespace rondo_mpi
