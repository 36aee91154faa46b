#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ring/engine/device/device_island.h"
#include "ring/engine/device/gate.h"
#include "ring/engine/device/pieces.h"
#include "ring/engine/device/stream_operation.h"
#include "ring/engine/device/stream_plans.h"
#include "ring/engine/run/run.h"

namespace rondo {

// One call whose ranks share device memory, in the order of a stream: a kernel (device_call.h). A buffer that others
// touch and that is not from allocate() goes through the own window 0, slice by slice, which the kernel copies. A list
// has pieces, a kernel each: the stream puts the tensors of a piece together in window 0 before it, and copies them
// back behind it. For each kernel the communicator has an operation, which sees to mismatches, stalls, deadlines and
// failures; it moves nothing.
//
// waits == kHost: the calling thread waits before each kernel until all ranks are there, and behind it until their
// kernels run.
class LaunchedCall final : public StreamOperation {
 public:
  // plan outlives it. limit: from the stream's coming to the deadline.
  LaunchedCall(Options options, std::shared_ptr<DeviceIsland> island, const StreamPlans::Entry& plan,
               std::chrono::milliseconds limit);

  std::byte* memory(size_t /*piece*/) const override { return island_->bounce(); }  // whatever it takes in the end
  void add_part(size_t piece, CollectiveOperation& part) override;
  // The fingerprint goes into the card.
  void add_operation(OperationRef<Operation> operation, uint64_t fingerprint) override;
  void enqueue() override;
  void capture(const CheckedCall& call, const CallBuffers& buffers, uint64_t fingerprint) override;
  void ring_at_end() override;

 private:
  class Kernel;
  struct Turn {
    CheckedCall call;
    CallBuffers buffers;  // of a piece: window 0
    uint32_t number = 0;
    uint64_t fingerprint = 0;
    OperationRef<Operation> operation;
  };

  void put_piece(size_t piece);
  BufferPlace place_of(const Turn& turn, bool input) const;
  uint64_t slice_of(const CheckedCall& call) const;
  uint32_t lanes_of(const CheckedCall& call) const;
  void await_hosts(const Turn& turn);
  void await_kernels(const Turn& turn);
  // How it ends in the stream.
  enum class Ending : uint8_t {
    kNotPut,      // not all of it is there
    kByWord,      // the last kernel's word says so, to those who look
    kByFunction,  // a function behind it rings, or is about to be put there
    kOver,        // that has run, or what it does has been done
  };
  void put_end(Ending how);
  // False: `from` is not how it ends.
  bool change_ending(Ending from, Ending to);
  bool put_ring();
  void piece_ended(const Error* error);
  void passed();
  uint32_t entries() const override;
  void leave_stream() override;
  static void end_of_stream(void* call);

  const std::shared_ptr<DeviceIsland> island_;  // shared with the communicator's device side
  const StreamPlans::Entry& plan_;
  const std::chrono::milliseconds limit_;
  bool copies_back_ = false;         // behind a kernel: then the stream ends the call, too
  Ending ending_ = Ending::kNotPut;  // under mutex_
  std::vector<Turn> turns_;          // by piece
  OperationRef<LaunchedCall> self_;  // while the stream refers to it
};

}  // namespace rondo
