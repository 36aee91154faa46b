#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ring/engine/call/collective_call.h"
#include "ring/engine/communicator_state.h"
#include "ring/engine/device/stream_call.h"

namespace rondo {

// The side of a communicator that knows GPUs: it takes calls with a stream, checks their memory, and has them done as
// operations on host memory. Any thread.
class DeviceSide {
 public:
  explicit DeviceSide(CommunicatorState& group) : group_(group) {}

  // Collective: opens the library on all ranks, or throws Exception(kUnsupported) on all of them. timeout: for the
  // others to come; 0: the configured one.
  void attach(std::chrono::milliseconds timeout);

  // Of a call with a stream: it is in the stream when they return. Throw Exception.
  void run(const CollectiveCall& call) { start(call); }
  std::shared_ptr<Operation> start(const CollectiveCall& call);
  // A list of all_reduces. list_parts: the operations of such a list on host memory (Batch::list_parts).
  using ListParts = std::function<std::vector<CommunicatorState::Part>(std::span<const TensorRef> tensors, Op op,
                                                                       const CallOptions& options)>;
  std::shared_ptr<Operation> start_list(std::span<const TensorRef> tensors, Op op, const CallOptions& options,
                                        const ListParts& list_parts);

  // A send, a receive or both (nullptr: none). The calling thread waits until the stream has come to them and the
  // message has gone and come; what has come is copied in the order of the stream.
  Work::Message run_messages(const CommunicatorState::Outgoing* out, const CommunicatorState::Incoming* in, DType dtype,
                             int tag, const CallOptions& options);

  // Throws Exception(kInvalid) where a call without a stream has device memory; nothing before attach().
  void check_host(const CollectiveCall& call) const;
  void check_host(const char* call, const void* data) const;

  // The communicator is over: waits for streams to pass the calls that are in them, and frees what they used.
  void close(Clock::time_point until);

 private:
  struct Memory {
    const char* name;  // "input"
    const void* data;
  };
  const DeviceTable& table() const { return calls_->library->table(); }
  std::shared_ptr<const DeviceLibrary> open();
  std::shared_ptr<const DeviceLibrary> exchange(std::chrono::milliseconds timeout);
  StreamFacts check_stream(const std::string& call, void* stream) const;
  void check_device(const std::string& call, const StreamFacts& stream, const Memory& memory) const;
  std::shared_ptr<StreamCall> make(std::vector<Piece> pieces, void* stream, int device);
  void submit(StreamCall& call, std::vector<CommunicatorState::Part> parts);
  void copy(void* to, const void* from, uint64_t bytes, void* stream) const;
  std::vector<CommunicatorState::Part> parts_of(const CollectiveCall& call, StreamCall& stream_call) const;

  CommunicatorState& group_;
  std::mutex attach_mutex_;
  std::shared_ptr<StreamCalls> calls_;  // shared with the calls under way; set by attach()
  std::atomic<bool> attached_{false};
  StreamCall::Waits waits_ = StreamCall::Waits::kStream;
  std::mutex order_mutex_;  // operations are numbered in the order in which their calls come into a stream
};

}  // namespace rondo
