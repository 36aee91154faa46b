#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "ring/engine/device/device_island.h"
#include "ring/engine/device/gate.h"
#include "ring/engine/device/pieces.h"
#include "ring/engine/device/stream_call.h"
#include "ring/engine/device/stream_plans.h"
#include "ring/engine/run/run.h"

namespace rondo {

// One call whose ranks share device memory, in the order of a stream: a kernel a piece (device_call.h). A buffer that
// others touch and that is not from allocate() is copied to the own window 0 before, and back behind. For each piece
// the communicator has an operation, which sees to mismatches, stalls, deadlines and failures; it moves nothing.
//
// waits == kHost: the calling thread waits before each kernel until all ranks are there, and behind it until their
// kernels run.
class LaunchedCall final : public StreamOperation, public std::enable_shared_from_this<LaunchedCall> {
 public:
  struct Options {
    std::shared_ptr<StreamCalls> calls;  // in which it counts (begin)
    std::shared_ptr<DeviceIsland> island;
    const StreamPlans::Entry* plan = nullptr;  // outlives it
    DeviceStream stream = nullptr;
    StreamCall::Waits waits = StreamCall::Waits::kStream;
    std::vector<Piece> pieces;
    std::function<void(const Error&)> give_up;  // ends the operations, after the stream has failed
    std::chrono::milliseconds limit{0};         // from the stream's coming to the deadline
  };
  explicit LaunchedCall(Options options);
  ~LaunchedCall() override;

  // Entries of a stream that it takes at most.
  static uint32_t entries_of(const std::vector<Piece>& pieces);

  // What moves the operation of the next piece, and is its gate. Under the lock that gives calls their order.
  struct Part {
    std::shared_ptr<Run> run;
    std::shared_ptr<Gate> gate;
  };
  Part add_part(const CheckedCall& call);
  // The operation of a piece; its fingerprint goes into the card.
  void add_operation(std::shared_ptr<Operation> operation, uint64_t fingerprint);

  // Puts it into the stream. Throws Exception: what failed; the call is ended then.
  void enqueue();
  void wait_on(DeviceStream stream) override;
  // Instead of both, for a graph: the next piece, which has no operation.
  void capture(const CheckedCall& call, uint64_t fingerprint);

 private:
  class PassRun;
  class PassGate;
  struct Turn {
    CheckedCall call;
    uint32_t number = 0;
    uint64_t fingerprint = 0;
    std::shared_ptr<Operation> operation;
  };
  struct Buffer {  // of a piece
    BlockPlace place;
    bool copied = false;  // through window 0
    BufferCard card = {};
  };

  void put_piece(size_t piece);
  Buffer buffer_of(const Piece& piece, bool input) const;
  void put_copies(const std::vector<Piece::Rows>& rows, bool in);
  uint32_t lanes_of(const Piece& piece, const CheckedCall& call) const;
  void await_hosts(const Turn& turn);
  void await_kernels(const Turn& turn);
  void put_end();
  void piece_ended(const Error* error);
  void leave_stream() override {}  // its operations end it
  static void end_of_stream(void* call);

  Options options_;
  const DeviceDriver& driver_;
  const uint32_t entries_;
  bool enqueued_ = false;    // from then on its end in the stream gives the entries back
  std::vector<Turn> turns_;  // by piece
  DeviceEvent event_ = nullptr;
  std::shared_ptr<LaunchedCall> self_;  // while the stream refers to it

  std::mutex end_mutex_;
  size_t ended_ = 0;  // pieces
  Error error_;       // of the first that failed
};

}  // namespace rondo
