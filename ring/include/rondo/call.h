#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include <rondo/collective.h>
#include <rondo/dtype.h>
#include <rondo/error.h>
#include <rondo/op.h>
#include <rondo/wire_format.h>

namespace rondo {

// Any peer, any tag: for receives.
inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;

// Why a call is made. Ranks must agree: an exchange that a call is made of never matches a call of the program.
// Libraries that make calls out of others may take numbers from 256 on.
enum class Purpose : uint16_t {
  kProgram = 0,
  kSplit = 1,    // Communicator::split()
  kAttach = 2,   // attach_device(), allocate() of device memory
  kSparse = 3,   // sparse_all_reduce()
  kDistOpt = 4,  // DistOpt's steps and checkpoints
  // The opening of a new communicator: its members' first exchange.
  kJoin = 5,
  kNewGroup = 6,
  kDup = 7,
  // Calls of the Python package.
  kBroadcastObject = 8,
  kAllGatherObject = 9,
  kGatherObject = 10,
  kScatterObject = 11,
  kAllGatherV = 12,
  kGatherV = 13,
  kAllToAllV = 14,
  // The exchanges of Communicator::shrink() in the next epoch; commit(), grow(), newcomers().
  kShrink = 15,
  kCommit = 16,
  kGrow = 17,
  kNewcomers = 18,
};

// Options of one call.
struct CallOptions {
  Algorithm algorithm = Algorithm::kAuto;  // the same on all ranks
  std::chrono::milliseconds timeout{0};    // of the operation; 0: Config::timeout_ms; negative: kInvalid
  double scalar = 1.0;                     // Op::kPremulSum: this rank's factor
  // all_reduce, reduce_scatter and all_gather of floats of 16 and 32 bits, sum and average; kPacked: see there
  WireOptions wire = {};
  // A cudaStream_t: the buffers are memory of its device, and the call takes its place in this stream (docs/gpu.md).
  std::optional<void*> stream = {};
  Purpose purpose = Purpose::kProgram;
  // Op::kUser, in the calls that reduce but for lists. The call's dtype is not read: counts are elements of this.
  UserOp user = {};
  // Ranks may differ in the op alone, among those of the library but kPremulSum and kAverage: each folds by its own,
  // and the log warns once. The same on all ranks.
  bool any_op = false;
  bool synchronous = false;  // a send: it is over when its receive has met it
  // A receive: of a longer message its buffer gets the beginning, and it ends with kTruncated; else with kMismatch.
  bool truncate = false;
  // An all_reduce by itself, in host memory, without a wire format: if it fails, its input is as it was, also in place,
  // so that those that go on can do the step again (docs/recovery.md). In place it works in memory that the
  // communicator keeps, as large as the largest such call; copies there and back are its cost. A rank's own choice.
  bool recoverable = false;
};

// One collective, which Communicator::run() and start() take. The calls by name (calls.h) fill one in, and say the
// shapes of the buffers for each collective. Where a buffer has a block for each rank, block r is the r-th.
struct Call {
  Collective collective = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;  // broadcast: the buffer; `input` is the same
  // Elements of the buffers; where one has blocks, of each block. uneven: of this rank's own block, by gather and
  // scatter alone.
  uint64_t count = 0;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;  // of collectives that reduce
  int root = -1;     // a rank; of collectives that have one
  // The blocks differ in length, as those of all_gather_v() and the like: the counts below say how long they are.
  bool uneven = false;
  // Blocks of the buffers: size() entries, in elements, read during run() or start() only. Block r has counts[r]
  // elements, and begins displacements[r] elements into its buffer; no displacements: one block after the other.
  std::span<const uint64_t> input_counts{}, output_counts{};
  std::span<const uint64_t> input_displacements{}, output_displacements{};
  CallOptions options{};
};

// kProbe: waits for a message that a receive would take, and leaves it. kMatchedProbe: takes it out of what other calls
// see, for the one receive that names it.
enum class MessageKind : uint8_t { kSend = 0, kReceive = 1, kProbe = 2, kMatchedProbe = 3 };

inline constexpr const char* kMessageKindNames[] = {"send", "recv", "probe", "mprobe"};
constexpr const char* message_kind_name(MessageKind kind) {
  return kind <= MessageKind::kMatchedProbe ? kMessageKindNames[static_cast<int>(kind)] : "message?";
}

// One send, receive or probe, which Communicator::run() and start() take. The calls by name (calls.h) fill one in.
struct MessageCall {
  MessageKind kind = MessageKind::kSend;
  void* data = nullptr;  // a send only reads it; a probe has none
  uint64_t count = 0;    // elements; of a receive: of its buffer
  DType dtype = DType::kFloat32;
  int peer = -1;  // rank in the communicator; but for sends: or kAnySource
  int tag = 0;    // 0 .. 2^31-1; but for sends: or kAnyTag
  CallOptions options{};
  uint64_t matched = 0;  // a receive: Message::matched of a probe; peer and tag are not read then. 0: of none
};

// What a send or a receive has moved, or a probe has found.
struct Message {
  int peer = -1;
  int tag = -1;
  uint64_t bytes = 0;
  uint64_t matched = 0;  // of a matched probe: what its receive names
};

// One tensor of Communicator::all_reduce_many(); in place: input == output.
struct TensorRef {
  const void* input = nullptr;
  void* output = nullptr;
  uint64_t count = 0;  // elements
  DType dtype = DType::kFloat32;
};

// Called when an operation has ended (Work::on_end). error.ok(): it succeeded.
using EndFunction = std::function<void(const Error& error)>;

}  // namespace rondo
