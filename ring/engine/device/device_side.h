#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/launched_call.h"
#include "ring/engine/device/stream_call.h"

namespace rondo {

// The side of a communicator that knows GPUs: it takes calls with a stream and checks their memory. If all
// ranks share device memory, even collectives become kernels (LaunchedCall). All other calls are done on host
// memory, between two copies (StreamCall). CommunicatorState owns it. Any thread.
class DeviceSide {
 public:
  explicit DeviceSide(CommunicatorState& group) : group_(group) {}

  // Collective: opens the driver on all ranks, or throws Exception(kUnsupported) on all of them; then finds out
  // whether their devices share memory. The rank's device is the thread's current one. timeout: for the others
  // to come; 0: the configured one.
  void attach(std::chrono::milliseconds timeout) { attach_for(nullptr, timeout, nullptr); }
  // Collective: device memory, which all ranks map if their devices share memory. Throws Exception.
  void* allocate(size_t bytes);
  // False: the memory is not of allocate(). Throws Exception(kInvalid) while calls are under way.
  bool deallocate(void* data);

  // Checks calls that have a stream: one call, or a list of all_reduces of one stream, operation, algorithm and
  // timeout. Attaches if that has not been done. Throws what start() would throw for their arguments.
  void check(std::span<const BatchCall> calls) {
    prepare(calls);
    checked(calls, check_stream(call_name(calls), *calls.front().stream));
  }
  // check() of a message that has been made.
  void check(const StreamCall& message) const;
  // Puts the calls into their stream before it returns. Throws Exception.
  OperationRef<Operation> start(std::span<const BatchCall> calls);
  OperationRef<Operation> start(const Call& call);
  // start() without a Work. If the stream is being captured for a graph, the call becomes part of the graph;
  // only a call that is a kernel can.
  void run(const Call& call);

  // Messages. make() attaches, checks the arguments and takes memory; enqueue() puts the message into its
  // stream.
  enum class Blocking : bool { kNo, kYes };
  OperationRef<StreamCall> make(const MessageCall& call, Blocking blocking);
  void enqueue(StreamCall& message);
  // make() and enqueue(). The message is in the stream when this returns.
  OperationRef<StreamCall> start(const MessageCall& call, Blocking blocking = Blocking::kNo);
  // A send returns when it is in the stream, a receive when the message has come. The pair returns when both
  // have. What is received is copied in the order of the stream.
  Message run(const MessageCall& call);
  Message run(const MessageCall& sent, const MessageCall& received);
  // Waits until all sends have gone (not in an end function), and until what streams have passed has ended; or
  // until the communicator has failed.
  void wait_for_streams(Clock::time_point until);

  // Throws Exception(kInvalid) if a call without a stream has device memory; does nothing before attach(). Asks
  // the last call on a stream to ring at its end: this call waits behind it.
  void check_host(const Call& call) const;
  void check_host(const char* call, const void* data) const;

  // The communicator is over: waits for streams to pass the calls that are in them, and frees what these used.
  void close(Clock::time_point until);

 private:
  struct NamedBuffer {
    const char* name;  // "input"
    const void* data;
  };
  const DeviceDriver& driver() const { return *calls_->driver; }
  // They set calls_.
  void open(void* const* stream, DeviceFacts& facts);
  void exchange(std::chrono::milliseconds timeout, void* const* stream);
  bool island_wanted() const;
  template <class Attached>
  void look_at(const std::vector<Attached>& cards);
  void connect(std::chrono::milliseconds timeout);
  std::string connect(DeviceIsland& island, std::chrono::milliseconds timeout);
  DeviceIsland::AllSay all_say(std::chrono::milliseconds timeout);
  Clock::time_point deadline(std::chrono::milliseconds timeout) const;
  struct Checked {
    std::span<const BatchCall> calls;
    StreamFacts stream;
    std::shared_ptr<const TensorList> list;  // shared with the operations; null: one call
    Algorithm algorithm;                     // kRegistered, kDirect or kRing: kernels; kAuto: they are staged
    const CheckedCall& call() const { return calls.front().call; }  // of a list: its first tensor's
    bool staged() const { return algorithm == Algorithm::kAuto; }
  };
  static const char* call_name(std::span<const BatchCall> calls);
  void refuse_unsupported(const CheckedCall& call) const;
  void prepare(std::span<const BatchCall> calls);
  Checked checked(std::span<const BatchCall> calls, const StreamFacts& stream);
  Algorithm algorithm_of(std::span<const BatchCall> calls) const;
  std::vector<ListPiece> cut(const Checked& checked);
  BatchCall call_of(const CheckedCall& whole, const ListPiece& piece, std::byte* memory) const;
  std::vector<BatchCall> calls_of(const Checked& checked, const std::vector<ListPiece>& cut,
                                  const StreamOperation& made) const;
  OperationRef<Operation> put(const Checked& checked);
  OperationRef<Operation> submit(const Checked& checked);
  // Runs what follows the checks of a call. The other ranks make the call, too, so if the system fails it on
  // this one (kSystem), the communicator fails.
  template <class Part>
  auto or_fail(Part part) {
    try {
      return part();
    } catch (const Exception& failure) {
      if (failure.code() == ErrorCode::kSystem) group_.context().fail(failure.error());
      throw;
    }
  }
  OperationRef<StreamOperation> make(const Checked& checked, const std::vector<ListPiece>& cut);
  void capture(std::span<const BatchCall> calls, const StreamFacts& stream);
  const StreamPlans::Entry& plan_of(const CheckedCall& call, Algorithm algorithm);
  void check_own_stream(const char* call, const StreamFacts& stream) const;
  void follow_last(void* stream, uint64_t stream_id);
  // The first call with a stream decides the rank's device. A stream that it cannot use is refused before
  // anything happens. call: its name; nullptr: attach().
  void attach_for(const char* call, std::chrono::milliseconds timeout, void* const* stream);
  void check_first_stream(const char* call, void* stream) const;
  StreamFacts check_stream(const std::string& call, void* stream) const {
    return check_stream(*calls_->driver, call, stream);
  }
  StreamFacts check_stream(const DeviceDriver& driver, const std::string& call, void* stream) const;
  void fail_if_broken() const;
  void check_device(const std::string& call, const StreamFacts& stream, const NamedBuffer& memory) const;
  void check_buffers(const std::string& name, const BatchCall& call, const StreamFacts& stream) const;
  StreamOperation::Options in_stream(void* stream, int device, std::vector<Piece> pieces);
  void take_room(StreamOperation& call);
  StreamFacts check_message(const P2pCall& call, DeviceStream stream) const;

  CommunicatorState& group_;
  std::mutex attach_mutex_;
  std::shared_ptr<StreamCalls> calls_;  // shared with the calls under way; set by attach()
  std::atomic<bool> attached_{false};
  StreamOperation::Waits waits_ = StreamOperation::Waits::kStream;  // kHost: another rank is in this process
  int device_ = 0;
  uint32_t ranks_on_device_ = 0;          // of this rank, itself too
  std::string hindered_;                  // why the ranks can have no island; the same on all
  std::string queues_;                    // what may be why they do not meet
  std::shared_ptr<DeviceIsland> island_;  // shared with the calls under way; null: all calls are staged
  std::set<void*> plain_;                 // of allocate(), where there is no island
  mutable std::mutex order_mutex_;        // numbers operations in the order in which their calls come into streams
  std::atomic<uint64_t> captured_{0};     // calls, in graphs
  std::optional<StreamPlans> plans_;
  OperationRef<StreamOperation> last_;  // the last call
  uint64_t last_stream_ = 0;            // that it is in: StreamFacts::id
};

}  // namespace rondo
