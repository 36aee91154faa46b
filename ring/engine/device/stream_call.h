#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ring/engine/device/gate.h"
#include "ring/engine/device/stream_operation.h"
#include "ring/engine/message/messages.h"

namespace rondo {

// One call on device memory, in the order of a stream. Each piece is copied to host memory, done there as an
// operation of the communicator, and copied back. While one piece is done, the next ones are copied there and
// the one before it back: in two streams, if there are more than two pieces.
//
// A message is one piece. The stream does not wait until a send has gone. Of a receive as many bytes are copied
// back as have come, which a kernel reads beside them: what a shorter message leaves alone stays as it was.
//
// Either everything is put into the stream at once, and the stream waits for the operations. Or (waits ==
// kHost) the calling thread waits for each operation before it puts its copy back into the stream.
class StreamCall final : public StreamOperation {
 public:
  // A message: its call, whose data is device memory; the flow that gets it when the stream has reached it; the
  // time from then to the deadline; whether the calling thread waits for it.
  struct MessageOptions {
    P2pCall call;
    std::shared_ptr<Messages> messages;
    std::chrono::milliseconds limit;
    bool blocking;
  };
  // Takes memory. Throws Exception.
  explicit StreamCall(Options options, std::optional<MessageOptions> message = {});
  ~StreamCall() override { give_back_memory(); }

  const std::vector<Piece>& pieces() const { return options_.pieces; }
  const P2pCall& message() const { return asked_->call; }  // requires one
  bool sends() const { return asked_ && asked_->call.sends(); }
  const Message* moved_message() const override { return message_ ? message_->moved_message() : nullptr; }
  // The host memory of a piece; pieces take it in turn.
  std::byte* memory(size_t piece) const override { return slots_[piece % slots_.size()].data; }
  void add_part(size_t piece, CollectiveOperation& part) override;
  void enqueue() override;
  // Instead of enqueue(): ends a message with the error.
  void abandon(const Error& error);
  // After enqueue(): waits until the stream has reached the message, and it has come or gone. The other ranks
  // learn of a long wait.
  const MessageOperation& await_message();

 private:
  class PieceGate;
  struct Turn {
    std::shared_ptr<PieceGate> gate;
    StreamCall* call;
  };
  // The gate of a piece, with one operation more behind it.
  std::shared_ptr<Gate> add_gate(size_t piece);
  void copy_in(size_t piece);
  void finish(size_t piece);
  void copy_received();
  void note_length(const Error* error);
  void await_on_host(size_t piece);
  void put_pieces();
  void put_end();
  void begin(PieceGate& gate);
  void passed();
  void part_ended();
  uint32_t entries() const override;
  void leave_stream() override;
  void give_back_memory();
  static void reach(void* turn);
  static void end_of_stream(void* call);

  const std::optional<MessageOptions> asked_;
  std::atomic<bool> passed_{false};
  std::vector<StagingPool::Region> slots_;
  std::vector<uint32_t> values_;      // of the slots' words, given last
  std::deque<Turn> turns_;            // by piece; a place that stays
  std::optional<CopyStream> copies_;  // there, while the call is put into the stream; none: in the caller's stream
  OperationRef<StreamCall> self_;     // while the stream or an operation refers to it

  OperationRef<MessageOperation> message_;
  std::condition_variable reached_;
  bool submitted_ = false;  // the message, or about to be: once
};

}  // namespace rondo
