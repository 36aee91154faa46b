#pragma once

#include <mpi.h>

#include <rondo/communicator.h>

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi/core/handles.h"
#include "mpi/core/locked.h"
#include "mpi/core/product.h"

namespace rondo_mpi {

// What MPI's handles stand for.

struct Info {
  MPI_Info handle{};
  using Entries = std::vector<std::pair<std::string, std::string>>;
  Locked<Entries> entries;  // in the order of their first setting
};

struct Errhandler {
  enum class Kind { kFatal, kAbort, kReturn, kFunction };
  MPI_Errhandler handle{};
  Kind kind = Kind::kReturn;
  void (*function)(MPI_Comm*, int*, ...) = nullptr;  // or of a session, which has the same form
};

using Handler = Locked<std::shared_ptr<Errhandler>>;

// What has attributes: a keyval is for one kind of them.
enum class Holder : uint8_t { kComm, kType, kWin };
struct Keyval {
  Holder holder;
  void* copy = nullptr;
  void* remove = nullptr;
  void* state = nullptr;
  bool freed = false;
};
// A keyval that was freed stays until its last value is gone.
struct Attribute {
  int id;
  std::shared_ptr<Keyval> keyval;
  void* value;
};
using Attributes = Locked<std::vector<Attribute>>;  // in the order of their setting

struct Session;
struct Group {
  MPI_Group handle{};
  std::vector<int> ranks;            // of the world
  std::shared_ptr<Session> session;  // that it was made of; or null
};

// The element types that MPI names, by what operations do with them.
enum class Basic : uint8_t { kNone, kSigned, kUnsigned, kFloat, kComplex, kLogical, kByte, kChar, kPair };

struct Type;
// `count` copies of a type, the first `offset` bytes from the beginning, each `stride` bytes after the one before.
struct Piece {
  MPI_Aint offset = 0;
  MPI_Count count = 1;
  MPI_Aint stride = 0;
  std::shared_ptr<const Type> type;
};

struct Type : std::enable_shared_from_this<Type> {
  MPI_Datatype handle{};
  MPI_Count size = 0;  // bytes of the elements
  MPI_Aint lb = 0, ub = 0, true_lb = 0, true_ub = 0;
  // Its elements are bytes 0 to size, and the next one follows: a buffer of it is memory that can be sent as it is.
  bool dense = true;
  bool committed = false;
  std::vector<Piece> pieces;  // in the order of the type map; a named element type has none
  MPI_Count elements = 0;     // named elements in one
  Basic basic = Basic::kNone;
  uint8_t place = 0;                  // among the named ones (predefined.h), of one that is like it
  std::optional<rondo::DType> dtype;  // what the engine takes for it in reductions
  MPI_Aint alignment = 1;             // of its elements, for the padding of structs
  // How it was made.
  int combiner = MPI_COMBINER_NAMED;
  std::vector<int> integers;
  std::vector<MPI_Aint> addresses;
  std::vector<MPI_Count> large;
  std::vector<std::shared_ptr<const Type>> parts;
  Locked<std::string> name;
  Attributes attributes;

  MPI_Aint extent() const { return ub - lb; }
};

// `count` elements of a type at `data`. In-place calls say so by MPI_IN_PLACE as data.
struct Data {
  void* data = nullptr;
  MPI_Count count = 0;
  std::shared_ptr<const Type> type;

  MPI_Count bytes() const { return product(count, type->size); }
  bool in_place() const { return data == MPI_IN_PLACE; }
};

struct Op : std::enable_shared_from_this<Op> {
  MPI_Op handle{};
  std::optional<rondo::Op> engine;  // what the engine calls it
  uint8_t place = 0;                // among the named ones (predefined.h)
  bool commutative = true;
  MPI_User_function* function = nullptr;
  MPI_User_function_c* function_c = nullptr;
  bool user() const { return function != nullptr || function_c != nullptr; }
};

struct Topology {
  int kind = MPI_UNDEFINED;
  std::vector<int> dims, periods;  // cartesian
  std::vector<int> index, edges;   // graph
  // Neighbors of this rank, and of a distributed graph their weights.
  std::vector<int> sources, destinations, source_weights, destination_weights;
  bool weighted = false;
};

// Memory that MPI_Bsend takes.
struct Buffer {
  void* data = nullptr;
  MPI_Count bytes = 0;
  // Its data and the communicator of the engine stay until it is over: shared with its end, as the program may free
  // the communicator, and with it this buffer, before.
  struct Sent {
    std::shared_ptr<const std::vector<std::byte>> data;
    std::shared_ptr<rondo::Communicator> engine;
    rondo::Work work;
  };
  std::list<Sent> sent;
  bool attached = false;
};

struct Comm : std::enable_shared_from_this<Comm> {
  MPI_Comm handle{};
  // An intercommunicator's has the ranks of both groups: those of the group with the lower first rank come first.
  std::shared_ptr<rondo::Communicator> engine;
  std::shared_ptr<rondo::Communicator> after;  // of those that live, once a rank has failed and they agreed on that
  int acknowledged = 0;                        // of failed(), the first so many
  std::vector<int> members, remote;            // ranks of the world; remote: of an intercommunicator
  int rank = 0;
  bool inter = false;
  int first = 0, remote_first = 0;  // the engine's ranks of `members` and `remote` begin here
  std::shared_ptr<Comm> local;      // of an intercommunicator: of the own group
  Handler handler;
  Locked<std::string> name;
  Attributes attributes;
  std::shared_ptr<const Topology> topology;
  Info info;
  Buffer buffer;
  std::shared_ptr<Session> session;  // that it was made of, whose buffer it may use; or null

  int size() const { return static_cast<int>(members.size()); }
  // Ranks that messages go to and roots are among.
  int peers() const { return static_cast<int>(inter ? remote.size() : members.size()); }
  int engine_rank(int peer) const { return inter ? remote_first + peer : peer; }
  int peer_of(int engine_rank) const { return inter ? engine_rank - remote_first : engine_rank; }
};

// What a call that receives has to tell.
struct Outcome {
  int source = MPI_ANY_SOURCE, tag = MPI_ANY_TAG;
  MPI_Count bytes = 0;
  bool cancelled = false;
  int error = MPI_SUCCESS;
};

struct Request {
  enum class Kind { kSend, kReceive, kCollective, kGeneral };
  MPI_Request handle{};
  Kind kind = Kind::kCollective;
  std::shared_ptr<Comm> comm;
  rondo::Work work;               // empty: it is over
  std::vector<rondo::Work> also;  // the send of MPI_Isendrecv, whose `work` is the receive; sends that are flushed
  std::function<void()> finish;   // once, when `work` is over: unpacks, folds
  Outcome outcome;
  std::function<void(Request&)> start;           // of a persistent one
  std::shared_ptr<rondo::Communicator> channel;  // of a persistent collective or a partitioned message, its own
  bool persistent = false;
  bool active = true;
  bool unwanted = false;  // MPI_Cancel has asked for its end
  // For a partitioned send: `ready` sends the parts when all are ready; `unready` is one more than the parts that are
  // not.
  int partitions = 0;
  std::atomic<int> unready{0};
  std::function<void(Request&)> ready;
  // For a generalized request.
  MPI_Grequest_query_function* query = nullptr;
  MPI_Grequest_free_function* free = nullptr;
  MPI_Grequest_cancel_function* cancel = nullptr;
  void* state = nullptr;
  std::atomic<bool> complete{false};
  static constexpr int kCompleted = 1, kFreed = 2;
  std::atomic<int> calls{0};  // MPI_Grequest_complete and MPI_Request_free, once made: the later one calls `free`
  bool watched = false;       // Ends::watch() has seen it
};

struct Session {
  MPI_Session handle{};
  Handler handler;
  Buffer buffer;
};

// What MPI_Mprobe found.
struct MatchedMessage {
  MPI_Message handle{};
  std::shared_ptr<Comm> comm;
  uint64_t matched = 0;
};

}  // namespace rondo_mpi
