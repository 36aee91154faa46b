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

// One call whose ranks share device memory, in the order of a stream: for each piece the stream writes words into the
// inboxes of the other ranks, waits for theirs, and runs passes: one over the memory of all ranks, after which it meets
// the others again; or those of a ring, each of which reads what has come from the rank before and writes into the
// memory of the rank behind. A buffer that others touch and that is not from allocate() goes through the own window 0.
// For each piece the communicator has an operation, which sees to mismatches, stalls, deadlines and failures; it moves
// nothing.
//
// Either all of it is put into the stream at once; or (waits == kHost) the calling thread waits for the words in the
// stream's place.
class EnqueuedCall final : public StreamOperation, public std::enable_shared_from_this<EnqueuedCall> {
 public:
  struct Options {
    std::shared_ptr<StreamCalls> calls;  // in which it counts (begin)
    std::shared_ptr<DeviceIsland> island;
    const StreamPlans::Entry* plan = nullptr;  // outlives it
    DeviceStream stream = nullptr;
    StreamCall::Waits waits = StreamCall::Waits::kStream;
    std::vector<Piece> pieces;
    std::function<void(const Error&)> give_up;  // ends the operations, after the stream has failed
  };
  explicit EnqueuedCall(Options options);
  ~EnqueuedCall() override;

  // Entries of a stream that it takes at most.
  static uint32_t entries_of(const std::vector<Piece>& pieces, const StreamProgram& program);

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

 private:
  class PassRun;
  class PassGate;
  struct Turn {
    CheckedCall call;
    uint32_t number = 0;
    uint32_t messages = 0;  // before it
    uint64_t fingerprint = 0;
    std::shared_ptr<Operation> operation;
    PeerPlaces places = {};
  };
  struct Buffer {  // of a piece
    BlockPlace place;
    bool copied = false;  // through window 0
    BufferCard card = {};
  };

  void put_piece(size_t piece);
  Buffer buffer_of(const Piece& piece, bool input) const;
  void put_copies(const std::vector<Piece::Rows>& rows, Turn& turn, bool in);
  PassMemory memory_of(const Piece& piece, const Buffer& input, const Buffer& output) const;
  void put_pass(const BoundPass& pass, Turn& turn);
  void put_entry(const StreamEntry& entry, Turn& turn);
  void await_on_host(const StreamEntry& entry, const Turn& turn);
  static uint32_t value_of(const StreamEntry& entry, const Turn& turn);
  void add_word(uint32_t& word, uint32_t value, WordAction action);
  void flush();
  void put_end();
  void wait_for_card(uint32_t number);
  void piece_ended(const Error* error);
  void leave_stream() override {}  // its operations end it
  static void end_of_stream(void* call);

  Options options_;
  const DeviceDriver& driver_;
  const uint32_t entries_;
  bool enqueued_ = false;      // from then on its end in the stream gives the entries back
  std::vector<Turn> turns_;    // by piece
  std::vector<WordOp> words_;  // not in the stream yet
  DeviceEvent event_ = nullptr;
  std::shared_ptr<EnqueuedCall> self_;  // while the stream refers to it

  std::mutex end_mutex_;
  size_t ended_ = 0;  // pieces
  Error error_;       // of the first that failed
};

}  // namespace rondo
