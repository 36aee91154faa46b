#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "kernels/device/device_driver.h"
#include "ring/engine/collective/collective_operation.h"
#include "ring/engine/device/gate.h"
#include "ring/engine/device/pieces.h"
#include "ring/engine/device/staging_pool.h"
#include "ring/engine/message/messages.h"
#include "ring/engine/progress/operation.h"

namespace rondo {

// What calls on streams of one communicator share, and what outlives it until the last of them has ended.
class StreamCalls {
 public:
  StreamCalls(std::shared_ptr<const DeviceDriver> opened, int device, SharedMemory* memory, int rank)
      : driver(opened), pool(std::move(opened), device, memory, rank) {}
  const std::shared_ptr<const DeviceDriver> driver;
  StagingPool pool;

  // Events, made once and used again. take_event() calls the runtime.
  DeviceEvent take_event(int device);
  void give_back(int device, DeviceEvent event);
  // Before the first call on the device: kernels are loaded, and streams made, while none waits. Throws Exception.
  void prepare(int device);
  // For copies to the host beside what callers' streams do: a device has a copy engine for each direction, and a stream
  // uses one at a time. Calls the runtime. Throws Exception.
  DeviceStream copy_stream(int device);
  // Counts entries of calls under way, so that streams hold a bounded number of them; waits while there are too many,
  // until `stop()`, which is asked every 20 ms. True: there is room, and the call counts.
  bool begin(uint32_t entries, const std::function<bool()>& stop);
  void end(uint32_t entries);
  // Waits until no call is under way; false: not by then.
  bool wait_for_all(Clock::time_point until);
  // Sends that have begun. They outlast their call: the stream does not wait until they have gone.
  void begin_send();
  void end_send();
  // Waits until all of them have gone, or `stop()`, which is asked every 20 ms.
  void wait_for_sends(Clock::time_point until, const std::function<bool()>& stop);
  // That of a device, after which its streams run nothing more; looked for once a second, or now.
  enum class Look : uint8_t { kAtTimes, kNow };
  std::optional<Error> broken(Look look = Look::kAtTimes);
  // Streams of all prepared devices can wait for a word of host memory: some drivers lack that (WSL2, shares of a GPU).
  bool streams_wait() const { return streams_wait_.load(std::memory_order_relaxed); }
  // Gives everything back to the device's runtime, if no call is under way.
  void free_all();

 private:
  bool can_wait(int device, DeviceStream stream) const;

  std::atomic<bool> streams_wait_{true};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t entries_ = 0;
  uint32_t sends_ = 0;
  std::set<int> prepared_;  // devices
  Clock::time_point next_look_{};
  std::optional<Error> broken_;
  // By device.
  std::multimap<int, DeviceEvent> events_;
  std::map<int, DeviceStream> copy_streams_;
};

// Copies to the host in a stream beside the caller's. What comes into it after begin() comes after what the caller's
// stream has had until then; what comes into the caller's stream after join() comes after what this one has had.
class CopyStream {
 public:
  // calls outlives it. Throws Exception.
  CopyStream(StreamCalls& calls, DeviceStream caller, DeviceStream copies, int device);
  ~CopyStream() { join(); }
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  DeviceStream get() const { return copies_; }
  // Throw Exception.
  void begin();
  // What comes after await() waits for what the caller's stream had at the last note().
  void note();
  void await();
  // The second time it does nothing.
  void join();

 private:
  StreamCalls& calls_;
  const DeviceDriver& driver_;
  const DeviceStream caller_, copies_;
  const int device_;
  DeviceEvent event_;
};

// A call in the order of a stream, in pieces. Its end there is never told once the device has failed: who waits for it,
// or polls, looks for that once a second.
class StreamOperation : public Operation {
 public:
  enum class Waits : uint8_t { kStream, kHost };
  struct Options {
    std::shared_ptr<StreamCalls> calls;  // in which it counts (begin)
    DeviceStream stream = nullptr;
    int device = 0;  // of the stream
    Waits waits = Waits::kStream;
    std::vector<Piece> pieces;
    std::function<void(const Error&)> give_up;  // fails the communicator, which ends the operations
  };
  ~StreamOperation() override;

  DeviceStream stream() const { return options_.stream; }
  // Before it is put into the stream: waits until streams have room for it. False: `stop()`, which is asked every 20
  // ms.
  bool take_room(const std::function<bool()>& stop);
  // What the call of a piece works on.
  virtual std::byte* memory(size_t piece) const = 0;
  // The next operation, of this piece: sets its gate, and what moves it. Under the lock that gives calls their order.
  virtual void add_part(size_t piece, CollectiveOperation& part) = 0;
  // The next one of them has been submitted.
  virtual void add_operation(OperationRef<Operation> /*operation*/, uint64_t /*fingerprint*/) {}
  // Instead of all these, where calls are kernels, for a graph: the next piece, which has no operation.
  virtual void capture(const CheckedCall& /*call*/, uint64_t /*fingerprint*/) {}
  // Puts it into the stream, which ends the call. The operations of collectives have been submitted, and `flow` is
  // set. Throws Exception: what failed; the call ends then.
  virtual void enqueue() = 0;
  // The other stream goes on when the call has ended. Throws Exception(kInvalid) before it is put into its own.
  void wait_on(DeviceStream stream) override;
  bool poll() override;
  bool wait(Clock::time_point until) override;

 protected:
  explicit StreamOperation(Options options) : options_(std::move(options)), driver_(*options_.calls->driver) {}
  // Entries of a stream that it takes at most.
  virtual uint32_t entries() const = 0;
  // Nothing in streams is its any more. Calls no runtime.
  void give_back_room();
  // Between device memory and the region's, in the stream.
  void copy(const std::vector<Piece::Rows>& parts, std::byte* region, bool in, DeviceStream stream);
  // Parts under way, each of which ends once. The last one: true, and end_whole() must follow.
  void add_end() { left_.fetch_add(1); }
  void note_error(const Error& error);  // the first one is told
  bool end_part() { return left_.fetch_sub(1) == 1; }
  void end_whole() { end(error_.ok() ? nullptr : &error_); }
  // Nothing where the device is well.
  void look_at_device();
  // True: the communicator has failed by it.
  bool device_has_failed();
  // The communicator has failed, and the stream runs nothing more: does what the call's end in it does, unless that has
  // been done.
  virtual void leave_stream() = 0;

  const Options options_;
  const DeviceDriver& driver_;
  DeviceEvent event_ = nullptr;  // from take_room() on
  std::mutex mutex_;

 private:
  uint32_t entries_ = 0;  // of streams, which it counts for
  std::atomic<size_t> left_{0};
  Error error_;
};

// One call on device memory, in the order of a stream: its pieces are copied to host memory, done there as operations
// of the communicator, and copied back. While one is done, the next ones are copied there and the one before it back,
// in two streams where there are more than two pieces.
//
// A message is one piece. The stream does not wait until it is sent. Of a receive the whole buffer is copied to the
// host first, so that what a shorter message leaves alone comes back as it was.
//
// Either all of it is put into the stream at once, and the stream waits for the operations; or (waits == kHost) the
// calling thread waits for each operation before it puts its copy back into the stream.
class StreamCall final : public StreamOperation {
 public:
  // A message: its call, whose data is device memory; what it is submitted to, when the stream has come to it; the time
  // from then to the deadline; and whether the calling thread waits for it.
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
  // The host's memory, in turns.
  std::byte* memory(size_t piece) const override { return slots_[piece % slots_.size()].data; }
  void add_part(size_t piece, CollectiveOperation& part) override;
  void enqueue() override;
  // Instead of it: ends a message with the error.
  void abandon(const Error& error);
  // After enqueue() of a message: until the stream has come to it, and it has come or gone. The other ranks are told if
  // that takes long.
  const MessageOperation& await_message();

 private:
  class PieceGate;
  struct Turn {
    std::shared_ptr<PieceGate> gate;
    StreamCall* call;
  };
  // That the operations of the piece begin and end at: one more of them.
  std::shared_ptr<Gate> add_gate(size_t piece);
  void copy_in(size_t piece);
  void finish(size_t piece);
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
