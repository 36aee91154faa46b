#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "ring/engine/device/stream_call.h"
#include "ring/engine/message/messages.h"

namespace rondo {

// A send or a receive of device memory, in the order of a stream, through locked host memory of the message's size. The
// message begins when the stream has come to it. A send is copied there in pieces, and goes on its way with the first
// one; the stream does not wait until it is sent. The stream waits for each piece of a receive, and copies it back;
// where a message is shorter than the buffer, the rest of the buffer is not touched.
//
// waits == kHost: the calling thread waits for the pieces of a receive in the stream's place.
class StreamMessage final : public StreamOperation,
                            public MessageStage,
                            public std::enable_shared_from_this<StreamMessage> {
 public:
  struct Options {
    std::shared_ptr<StreamCalls> calls;
    std::shared_ptr<Messages> messages;
    DeviceStream stream = nullptr;
    int device = 0;  // of the stream
    StreamCall::Waits waits = StreamCall::Waits::kStream;
    P2pCall call;  // data: device memory
    bool to_itself = false;
    bool blocking = false;                      // the calling thread waits for it
    std::chrono::milliseconds limit{0};         // from the stream's coming to the deadline
    std::function<void(const Error&)> give_up;  // fails the communicator, after the stream has failed
  };
  // Takes memory. Throws Exception.
  explicit StreamMessage(Options options);
  ~StreamMessage() override;

  const P2pCall& call() const { return options_.call; }
  bool sends() const { return options_.call.sends(); }
  DeviceStream stream() const { return options_.stream; }
  int device() const { return options_.device; }
  const Message* moved_message() const override { return operation_->moved_message(); }

  // Puts into the stream what begins the message, and then what ends it; in between other work may come, which the
  // stream does not wait with. Both throw Exception: what failed; the message is ended then.
  void begin();
  void finish();
  // It is not begun, and will not be. Ends it with the error.
  void abandon(const Error& error);
  // Instead of finish(), after another call of a batch has failed the communicator; nothing where it is not under way.
  void leave();
  // After begin(): until the stream has come to it, and the message has come or gone. The other ranks are told if that
  // takes long.
  const MessageOperation& await_message();

  // Throws Exception(kInvalid) before finish().
  void wait_on(DeviceStream stream) override;

 private:
  // A function in the stream: some of what begins the message is behind it.
  struct Turn {
    StreamMessage* message;
    uint64_t ready;  // bytes of a send that have been copied by then
    uint32_t entries;
    bool submits;
  };
  uint64_t pieces() const { return (options_.call.bytes + piece_bytes_ - 1) / piece_bytes_; }
  uint64_t end_of(uint64_t piece) const { return std::min((piece + 1) * piece_bytes_, options_.call.bytes); }
  void take_room(uint32_t entries);
  bool has_come(uint64_t piece) const;
  void await_piece(uint64_t piece);
  void await_on_host(uint64_t piece);
  void copy_in(uint64_t piece);
  void copy_out(uint64_t piece);
  void copy(void* to, const void* from, uint64_t bytes);
  void copy_what_has_come(uint64_t first, uint64_t bytes);
  void* at_kernels(void* memory) const;
  void put_turn(Turn turn);
  void put_end(uint32_t entries);
  void stream_failed(const Error& error);
  void submit();
  void half_ended();
  void leave_stream() override;
  void give_back_memory();
  void came(uint64_t bytes) override;
  void ended(const MessageOperation& operation) override;
  static void reach(void* turn);
  static void end_of_stream(void* message);

  Options options_;
  const DeviceDriver& driver_;
  const uint64_t piece_bytes_;
  StagingPool::Region region_;
  bool holds_memory_ = true;
  uint32_t before_ = 0;  // the region's word before this message; a receive adds one a piece
  std::shared_ptr<MessageOperation> operation_;
  std::deque<Turn> turns_;  // a place that stays
  std::atomic<uint64_t> ready_{0};
  DeviceEvent event_ = nullptr;
  uint32_t end_entries_ = 0;
  bool finished_ = false;
  std::atomic<int> left_{2};             // the message and the stream
  std::shared_ptr<StreamMessage> self_;  // while the stream refers to it

  std::mutex mutex_;
  std::condition_variable reached_;
  bool submitted_ = false;  // or about to be: once
  std::atomic<bool> passed_{false};
};

}  // namespace rondo
