#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/device/device_driver.h"
#include "ring/engine/collective/collective_operation.h"
#include "ring/engine/device/pieces.h"
#include "ring/engine/device/stream_calls.h"
#include "ring/engine/progress/operation.h"

namespace rondo {

// A call in the order of a stream, in pieces: base of StreamCall and LaunchedCall. A stream of a device that
// has failed never says that the call has ended, so a thread that waits or polls looks for such a failure once
// a second.
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
  // Before it is put into the stream: waits until streams have room for its entries. False: stop() was true,
  // which is asked every 20 ms at least.
  bool take_room(const std::function<bool()>& stop);
  // The memory on which the operation of a piece works.
  virtual std::byte* memory(size_t piece) const = 0;
  // Gives the next operation of this piece its gate, and what moves it. Under the lock that orders calls on
  // streams.
  virtual void add_part(size_t piece, CollectiveOperation& part) = 0;
  // The next of these operations has been submitted.
  virtual void add_operation(OperationRef<Operation> /*operation*/, uint64_t /*fingerprint*/) {}
  // Instead of all these, for calls that are kernels of a graph: the next piece, which has no operation.
  virtual void capture(const CheckedCall& /*call*/, const CallBuffers& /*buffers*/, uint64_t /*fingerprint*/) {}
  // Before its operations are submitted and it is put into the stream: either may end it at once, if the
  // communicator has failed.
  void submitted() { become(State::kRunning); }
  // Puts it into the stream, which ends the call. Its operations have been submitted, and `flow` is set. Throws
  // Exception with what failed; the call ends then.
  virtual void enqueue() = 0;
  // Makes another stream wait until the call has ended. Throws Exception(kInvalid) before the call is in its
  // own stream.
  void wait_on(DeviceStream stream) override;
  bool poll() override;
  bool wait(Clock::time_point until) override;
  void on_end(EndFunction function) override;
  // A thread may sleep until the call ends: the stream then rings the flow, if nothing else does.
  virtual void ring_at_end() {}

 protected:
  explicit StreamOperation(Options options) : options_(std::move(options)), driver_(*options_.calls->driver) {}
  // The most entries that it takes in streams.
  virtual uint32_t entries() const = 0;
  // Nothing of it is in streams any more. Calls no runtime.
  void give_back_room();
  // Its entries leave the streams with its kernels; the last one has this number.
  void give_back_room_with(const uint32_t* passed, uint32_t number);
  // Puts copies between device memory and the region into the stream.
  void copy(const std::vector<Piece::Rows>& parts, std::byte* region, bool in, DeviceStream stream);
  // Behind all of it: what comes into another stream waits for this. False: nothing can, and the call and the
  // communicator have failed.
  bool record_end();
  // Counts parts under way, each of which ends once. end_part() is true for the last one; end_whole() must
  // follow.
  void add_end() { left_.fetch_add(1); }
  // The first one becomes the operation's; one of the stream that comes after the end is the communicator's alone.
  void note_error(const Error& error);
  bool end_part() { return left_.fetch_sub(1) == 1; }
  void end_whole();
  // Nothing where the devices are well.
  void look_at_device();
  // True: one of this rank's devices has failed, and the communicator with it.
  bool device_has_failed();
  // The same for a thread that waits in a stream's place. The program may end its wait: the communicator fails then.
  bool device_has_failed_meanwhile();
  // The communicator has failed, and the stream runs nothing more: does what the call's end in the stream would
  // do, unless that has been done.
  virtual void leave_stream() = 0;

  const Options options_;
  const DeviceDriver& driver_;
  DeviceEvent event_ = nullptr;  // from take_room() on
  std::mutex mutex_;

 private:
  uint32_t entries_ = 0;      // of streams, which it counts for
  bool interrupted_ = false;  // the program has ended the wait in a stream's place
  std::atomic<size_t> left_{0};
  Error error_;  // under mutex_: kernels may have ended the call before its end is in the stream
};

}  // namespace rondo
