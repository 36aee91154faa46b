#include "ring/engine/collective_calls.h"

#include <algorithm>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

// Whether a recoverable call runs in the communicator's own memory (TensorLists) instead of the caller's. Out
// of place it does not: its input is never written. A collective other than all_reduce goes there, too, and is
// refused.
bool runs_in_own_memory(const Call& call) {
  return call.input == call.output || call.collective != Collective::kAllReduce;
}

// Whether the call has arguments beyond CallFields and its two buffers, valid or not. The key of a prepared
// call does not contain them, so such a call is checked every time.
bool has_more_than_fields(const Call& call) {
  const WireOptions& wire = call.options.wire;
  return wire.format != WireFormat::kNone || wire.stochastic || wire.residual != nullptr || call.op == Op::kUser ||
         call.options.user.function != nullptr || !call.input_displacements.empty() ||
         !call.output_displacements.empty();
}

}  // namespace

// These fields alone decide, so the call needs no buffers and is not checked. A root that is not given is rank 0.
Algorithm CollectiveCalls::algorithm_for(const Call& call, bool registered) const {
  CheckedCall checked;
  checked.collective = call.collective;
  checked.count = call.count;
  checked.dtype = call.dtype;
  checked.op = call.op;
  checked.asked = call.options.algorithm;
  if (collective_has_root(call.collective)) checked.root = std::max(call.root, 0);
  return flow_->algorithm_for(checked, registered);
}

// Checks the call and returns what equal calls share. Under the submission lock; if it throws, nothing has
// happened.
//
// A repeated call costs one comparison of CallFields. check_call() runs again only if a buffer differs from the
// last one that passed. Uneven calls are never kept: their counts lie in the caller's memory, not in the key.
std::shared_ptr<PreparedCall> CollectiveCalls::prepare(const Call& call) {
  if (call.uneven) return flow_->prepare(check_call(call, context_.rank, context_.world()));
  const CallFields key = fields_of(call);
  if (const std::shared_ptr<PreparedCall>* kept = prepared_.find(key)) {
    PreparedCall& known = **kept;
    if (call.input != known.good_input || call.output != known.good_output || has_more_than_fields(call)) {
      check_call(call, context_.rank, context_.world());
      known.good_input = call.input;
      known.good_output = call.output;
    }
    return *kept;
  }
  return prepared_.keep(key, flow_->prepare(check_call(call, context_.rank, context_.world())));
}

OperationRef<CollectiveOperation> CollectiveCalls::make(std::shared_ptr<PreparedCall> call,
                                                        const CallBuffers& buffers) const {
  auto operation = Operation::make<CollectiveOperation>(std::move(call), buffers);
  operation->flow = flow_;
  return operation;
}

OperationRef<CollectiveOperation> CollectiveCalls::make(const CheckedCall& call, const CallBuffers& buffers) {
  std::lock_guard lock(submit_mutex_);
  return make(prepare(call), buffers);
}

void CollectiveCalls::submit_all(std::span<const OperationRef<CollectiveOperation>> operations) {
  context_.check_usable();
  context_.log.note_thread();
  std::lock_guard lock(submit_mutex_);
  for (const auto& operation : operations) flow_->submit(*operation);
}

std::shared_ptr<PreparedCall> CollectiveCalls::prepare(const CheckedCall& call) {
  if (call.uneven) return flow_->prepare(call);
  if (const std::shared_ptr<PreparedCall>* kept = prepared_.find(call)) return *kept;
  return prepared_.keep(call, flow_->prepare(call));
}

// The blocking form. The operation lies on this stack, without an allocation. Collectives::run() returns when
// the operation is done: no thread refers to this frame afterwards.
//
// Without memory the communicator fails. The other ranks make this call, too, and would wait for this rank
// until their deadline.
void CollectiveCalls::run(const Call& call) try {
  context_.check_usable();
  if (call.options.stream) return group_.device().run(call);
  group_.check_on_host(call);
  if (call.options.recoverable && runs_in_own_memory(call)) {
    const auto operation = submit_recoverable(call);
    flow_->wait(*operation, Clock::time_point::max());
    if (operation->failed()) throw Exception(operation->error());
    return;
  }
  context_.log.note_thread();
  std::unique_lock lock(submit_mutex_);
  CollectiveOperation operation(prepare(call), buffers_of(call));
  flow_->run(operation, lock);
  if (operation.failed()) throw Exception(operation.error());
} catch (const std::bad_alloc&) {
  context_.fail_for_memory();
}

// A recoverable call that runs in the communicator's memory. If that cannot be allocated, the communicator
// fails: the other ranks make the call.
OperationRef<CollectiveOperation> CollectiveCalls::submit_recoverable(const Call& call) try {
  auto operation = lists_.recoverable(call);
  submit_all({&operation, 1});
  return operation;
} catch (const Exception& failure) {
  if (failure.code() != ErrorCode::kSystem) throw;
  context_.fail(failure.error());
  throw Exception(*context_.failure.get());
}

// The asynchronous form. The worker's thread is started before the submission: otherwise an operation could be
// queued that no thread moves. notify() makes passes here, so a small call may be complete when this returns.
OperationRef<Operation> CollectiveCalls::start(const Call& call) try {
  group_.ready_worker();
  if (call.options.stream) return group_.device().start(call);
  group_.check_on_host(call);
  OperationRef<CollectiveOperation> operation;
  if (call.options.recoverable && runs_in_own_memory(call)) {
    operation = submit_recoverable(call);
  } else {
    context_.log.note_thread();
    std::lock_guard lock(submit_mutex_);
    operation = make(prepare(call), buffers_of(call));
    flow_->submit(*operation);
  }
  flow_->notify();
  return operation;
} catch (const std::bad_alloc&) {
  context_.fail_for_memory();
}

// A byte is an element, so records of any type can be gathered. The purpose keeps it apart from calls of the
// program.
void CollectiveCalls::gather(const void* own, void* all, size_t bytes, Purpose purpose,
                             std::chrono::milliseconds timeout) {
  Call call;
  call.collective = Collective::kAllGather;
  call.input = own;
  call.output = all;
  call.count = bytes;
  call.dtype = DType::kUint8;
  call.options.purpose = purpose;
  call.options.timeout = timeout;
  run(call);
}

void CollectiveCalls::meet_neighbors(Purpose by, Clock::time_point until) {
  if (context_.world() == 1) return;
  OperationRef<CollectiveOperation> operation;
  {
    std::lock_guard lock(submit_mutex_);
    operation = flow_->submit_opening(by, until);
  }
  // Asleep, not polling: the I/O thread makes the connections, and may need this core.
  flow_->wait_asleep(*operation);
  if (operation->failed() && group_.failed_in() == Stage::kMaking) throw Exception(operation->error());
}

OperationRef<Operation> CollectiveCalls::start_opening(Purpose by) {
  context_.with_memory([&] {
    std::lock_guard lock(submit_mutex_);
    opening_ = flow_->submit_opening(by, group_.deadline({}));
  });
  // A weak reference: the operation must not keep the communicator alive that it opens.
  opening_->on_end([made = group_.weak_from_this()](const Error&) {
    if (const auto living = made.lock()) living->made();
  });
  flow_->notify();
  return opening_;
}

}  // namespace rondo
