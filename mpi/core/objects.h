#pragma once

#include <mpi.h>

#include <rondo/communicator.h>

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
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

// Nothing of it changes after it has a handle. Objects that have it share it, so MPI_Errhandler_free() leaves their
// errors handled.
struct Errhandler {
  // kFatal and kAbort both end the job. kFunction calls `function` and then returns what that has left in its code.
  enum class Kind { kFatal, kAbort, kReturn, kFunction };
  MPI_Errhandler handle{};
  Kind kind = Kind::kReturn;
  void (*function)(MPI_Comm*, int*, ...) = nullptr;  // or of a session, which has the same form
};

using Handler = Locked<std::shared_ptr<Errhandler>>;

// What has attributes: a keyval is for one kind of them.
enum class Holder : uint8_t { kComm, kType, kWin };
// The functions are the program's, void* since their types differ by holder. A null one: copies nothing, or has nothing
// to do at the end of a value. `freed` is guarded by the lock of the keyvals (calls/attributes.cc).
struct Keyval {
  Holder holder;
  void* copy = nullptr;
  void* remove = nullptr;
  void* state = nullptr;  // the program's extra_state, which both functions get
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
// Nothing of it changes after it has a handle.
struct Group {
  MPI_Group handle{};
  std::vector<int> ranks;            // ranks of the world; place i has rank i of the group
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

// A datatype. Types made of it, calls and requests share it: it lives as long as any of them after MPI_Type_free(), as
// MPI demands. Nothing of it changes after it has a handle, but for `committed`, `name`, `attributes` and
// `handle_uses`. Offsets and bounds are bytes, counted from the address that a buffer is given by.
struct Type : std::enable_shared_from_this<Type> {
  MPI_Datatype handle{};
  MPI_Count size = 0;  // bytes of the elements
  // The true bounds are those of the bytes that it has; lb and ub may be others, by MPI_Type_create_resized() or
  // padding.
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
  // How it was made, for MPI_Type_get_contents(): `large` has what functions with _c were given as MPI_Count.
  int combiner = MPI_COMBINER_NAMED;
  std::vector<int> integers;
  std::vector<MPI_Aint> addresses;
  std::vector<MPI_Count> large;
  std::vector<std::shared_ptr<const Type>> parts;
  Locked<std::string> name;
  Attributes attributes;
  // The handle stays after MPI_Type_free() while a reduction may give it to a function of the program (with_handle()).
  struct HandleUses {
    int reductions = 0;
    bool freed = false;
  };
  mutable Locked<HandleUses> handle_uses;

  MPI_Aint extent() const { return ub - lb; }
};

// `count` elements of a type at `data`. In-place calls say so by MPI_IN_PLACE as data. bytes() throws MPI_ERR_COUNT
// where 64 bits do not hold it.
struct Data {
  void* data = nullptr;
  MPI_Count count = 0;
  std::shared_ptr<const Type> type;

  MPI_Count bytes() const { return product(count, type->size); }
  bool in_place() const { return data == MPI_IN_PLACE; }
};

// A reduction. Exactly one of the two functions is set for one of the program's; else it is a named one. Requests that
// fold by it share it, so MPI_Op_free() may come before their end.
struct Op : std::enable_shared_from_this<Op> {
  MPI_Op handle{};
  std::optional<rondo::Op> engine;  // what the engine calls it
  uint8_t place = 0;                // among the named ones (predefined.h)
  bool commutative = true;
  MPI_User_function* function = nullptr;
  MPI_User_function_c* function_c = nullptr;
  bool user() const { return function != nullptr || function_c != nullptr; }
};

// Nothing of it changes after its communicator has a handle; duplicates share it. Ranks are those of the communicator.
struct Topology {
  int kind = MPI_UNDEFINED;
  std::vector<int> dims, periods;  // cartesian
  std::vector<int> index, edges;   // graph
  // Neighbors of this rank, in the order of their blocks in neighborhood collectives; MPI_PROC_NULL at the edge of a
  // cartesian topology. Weights are of a distributed graph.
  std::vector<int> sources, destinations, source_weights, destination_weights;
  bool weighted = false;
};

// The buffer that MPI_Bsend takes memory from. Copies of the messages lie in memory of their own: of the program's
// buffer only the size counts, and nothing is written there. buffer_mutex() of buffer.cc guards all of it.
struct Buffer {
  void* data = nullptr;
  MPI_Count bytes = 0;  // 0 where none is attached
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

// A communicator. Its table, requests, matched messages and intercommunicators share it; calls that wait hold a share
// (errors.h), since another thread may free the handle meanwhile. The end of the last share ends `engine` by
// engine_of() (communicators.h), which waits for no rank. Nothing changes after it has a handle, but for what has a
// lock of its own, `buffer`, and what recovery changes: `after` and `acknowledged`, in calls that the program must not
// make in two threads at once.
struct Comm : std::enable_shared_from_this<Comm> {
  MPI_Comm handle{};
  // An intercommunicator's has the ranks of both groups: those of the group with the lower first rank come first.
  // Buffered sends share it.
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
  // Partitioned messages of this rank to itself of which one side was made, in the order of the calls. The other side
  // takes the channel.
  struct HalfMessage {
    int tag;
    bool receives;
    std::shared_ptr<rondo::Communicator> channel;  // shared with the request
  };
  Locked<std::vector<HalfMessage>> half_messages;

  int size() const { return static_cast<int>(members.size()); }
  // Ranks that messages go to and roots are among.
  int peers() const { return static_cast<int>(inter ? remote.size() : members.size()); }
  int engine_rank(int peer) const { return inter ? remote_first + peer : peer; }
  int peer_of(int engine_rank) const { return inter ? engine_rank - remote_first : engine_rank; }
};

// What a call that receives has to tell. It becomes an MPI_Status. bytes: of the data as the type map has it, without
// gaps.
struct Outcome {
  int source = MPI_ANY_SOURCE, tag = MPI_ANY_TAG;
  MPI_Count bytes = 0;
  bool cancelled = false;
  int error = MPI_SUCCESS;
};

// An operation that is under way, or one that can be started. A thread that waits or tests has it alone, which MPI
// demands of programs; the exceptions are atomic or have a mutex: threads that ready parts, ask for parts, or complete
// a generalized request. Fields are set before the handle is given out. Waiting for it makes progress on the engine;
// else the engine's own thread does.
struct Request {
  enum class Kind { kSend, kReceive, kCollective, kGeneral };
  MPI_Request handle{};
  Kind kind = Kind::kCollective;
  std::shared_ptr<Comm> comm;     // whose handler gets its error; null: of a file, a window or the program
  rondo::Work work;               // empty: it is over
  std::vector<rondo::Work> also;  // the send of MPI_Isendrecv, whose `work` is the receive; sends that are flushed
  std::function<void()> finish;   // once, when `work` is over: unpacks, folds
  Outcome outcome;
  std::function<void(Request&)> start;           // of a persistent one, which has it from the beginning
  std::shared_ptr<rondo::Communicator> channel;  // of a persistent collective or a partitioned message, its own
  bool active = true;                            // false: inactive (persistent), or complete() has taken its end over
  bool unwanted = false;                         // MPI_Cancel has asked for its end
  // For a partitioned send: `ready` sends the parts when all are ready; `unready` is one more than the parts that are
  // not.
  int partitions = 0;  // 0: it is not partitioned
  std::atomic<int> unready{0};
  std::function<void(Request&)> ready;
  // For a partitioned request, about which MPI_Parrived() may ask beside the thread that waits: guards `work`,
  // `finish`, `outcome` and `watched` while the request is active, and `active`. Unpacking may run under it, and
  // nothing that makes progress.
  std::mutex arrival;
  uint64_t round = 0;  // counts its ends
  // For a generalized request.
  MPI_Grequest_query_function* query = nullptr;
  MPI_Grequest_free_function* free = nullptr;
  MPI_Grequest_cancel_function* cancel = nullptr;
  void* state = nullptr;  // the program's extra_state, which all three functions get
  std::atomic<bool> complete{false};
  // Bits of `calls`.
  static constexpr int kCompleted = 1, kFreed = 2;
  std::atomic<int> calls{0};  // MPI_Grequest_complete and MPI_Request_free, once made: the later one calls `free`
  bool watched = false;       // Ends::watch() has seen it

  bool persistent() const { return start != nullptr; }
};

// Groups that were made of it, and communicators of those, share it for its buffer.
struct Session {
  MPI_Session handle{};
  Handler handler;
  Buffer buffer;
};

// What MPI_Mprobe found. No other receive can get the message. Its handle ends with the one that does.
struct MatchedMessage {
  MPI_Message handle{};
  std::shared_ptr<Comm> comm;
  uint64_t matched = 0;  // rondo::Message::matched; 0: MPI_MESSAGE_NO_PROC
};

}  // namespace rondo_mpi
