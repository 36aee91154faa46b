#include "ring/engine/collective/collectives.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"
#include "ring/engine/progress/worker.h"

namespace rondo {
namespace {

// A longer gap between two looks at the clock is shown as a stop of the process. A rank that drives an
// operation looks every 20 ms at least (flow.cc).
constexpr uint64_t kStoppedNs = 50'000'000;

bool can_pull(const CommunicatorContext& context) {
  const SharedMemory* memory = context.fabric->shared_memory();
  return memory != nullptr && memory->can_pull();
}

}  // namespace

Collectives::Collectives(std::shared_ptr<CommunicatorContext> context, std::shared_ptr<Doorbell> bell,
                         std::shared_ptr<Worker> worker, WaitPolicy policy)
    : Flow(std::move(bell), std::move(worker), policy, {context, &context->mark}),
      context_(std::move(context)),
      router_(context_->rank, context_->topology, context_->config, can_pull(*context_)),
      execution_(*context_, router_),
      watch_(*context_) {}

std::shared_ptr<PreparedCall> Collectives::prepare(CheckedCall call) const {
  auto prepared = std::make_shared<PreparedCall>(std::move(call), context_->world());
  router_.ask(*prepared);
  prepared->kind = kind_of(context_->id, *prepared);
  return prepared;
}

Algorithm Collectives::algorithm_for(const CheckedCall& call, bool registered) const {
  PreparedCall prepared(call, context_->world());
  router_.ask(prepared);
  return execution_.route_of(prepared, registered).algorithm;
}

void Collectives::submit(CollectiveOperation& operation) noexcept {
  // The time of a call on a stream begins when the stream has come to it (tick).
  operation.deadline =
      operation.gate ? Clock::time_point::max()
                     : deadline_after(worker().clock().look(Clock::now()), context_->limit_of(operation.call->timeout));
  number(operation, ++last_sequence_);
  enqueue(operation);
}

// It has the first number, and brings its run. Its route is kAuto, the algorithm of that run, so no other run
// is made.
OperationRef<CollectiveOperation> Collectives::submit_opening(Purpose by, Clock::time_point deadline) {
  auto prepared = std::make_shared<PreparedCall>();
  prepared->purpose = by;
  prepared->kind = kind_of(context_->id, *prepared);
  prepared->run = execution_.make_opening_run(*prepared);
  auto operation = Operation::make<CollectiveOperation>(std::move(prepared), CallBuffers{});
  operation->flow = shared_from_this();
  operation->deadline = deadline;
  number(*operation, kMeetingSequence);
  enqueue(*operation);
  return operation;
}

// The fast path of a blocking call. The caller has the submission lock, so no other operation can be submitted
// between the look and the lease: with both, nothing is under way, and the operation becomes the current one
// without the queue.
void Collectives::run(CollectiveOperation& operation, std::unique_lock<std::mutex>& order) {
  const bool held = !under_way() && state().try_acquire();  // then it begins at once
  if (held) {
    operation.deadline = kNoDeadlineYet;
    number(operation, ++last_sequence_);
    begin(operation);
  } else {
    submit(operation);
  }
  order.unlock();
  Flow::run(operation, held);
}

// The sequence makes the fingerprint, which every slice and post carries. The log keeps the call for questions
// of other ranks, which compare fingerprints by sequence.
void Collectives::number(CollectiveOperation& operation, uint64_t sequence) {
  operation.start.sequence = sequence;
  operation.start.fingerprint = fingerprint_of(operation.call->kind, sequence);
  context_->log.called(sequence, operation.call->kind, *operation.call);
}

void Collectives::enqueue(CollectiveOperation& operation) {
  operation.waited_behind = context_->log.last_finished() + 1 < operation.start.sequence;
  operation.become(CollectiveOperation::State::kQueued);
  if (!operation.on_stack()) operation.retain();  // until end_current()
  std::lock_guard lock(queue_mutex_);
  queue_.push_back(operation);
  state().submitted(true);
}

// left_ is stored before last_possible_, and step() loads them in the other order: it never names the rank -1.
void Collectives::peer_left(int peer, uint64_t last_sequence) {
  // One caller at a time (the fabric's thread). The first of those that left after the same call is the culprit: the
  // others may have left because of it.
  if (last_sequence < last_possible_.load()) {
    left_.store(peer);
    last_possible_.store(last_sequence);
  }
  notify();
}

// Makes the first operation of the queue the current one. begin() counts it before submitted() can become
// false, so under_way() never misses it.
bool Collectives::take_next() {
  if (!state().submitted()) return false;
  std::lock_guard lock(queue_mutex_);
  begin(*queue_.pop_front());
  state().submitted(!queue_.empty());
  return true;
}

// One pass over the current operation. A failure of the communicator comes first: it ends everything. Then
// comes a peer that has left, without which the operation cannot complete.
bool Collectives::step(Pass pass) {
  if (const Error* error = context_->failure.get()) return fail_all(*error);
  if (current_ == nullptr && !take_next()) return false;
  if (current_->start.sequence > last_possible_.load()) {
    context_->failure.set(
        {ErrorCode::kPeerLeft,
         fmt::format("{} cannot complete on rank {}: {} has left the group (it destroyed its communicator)",
                     describe_call(*current_->call), context_->rank, context_->name(left_.load())),
         {left_.load()}});
    return fail_all(*context_->failure.get());
  }
  if (current_->held_back()) return false;
  try {
    const bool moved = execution_.advance(*current_, pass);
    if (execution_.done()) {
      // Before the end: the caller may destroy the communicator at once, and the goodbye carries the number of
      // the last finished call.
      context_->log.finished(current_->start.sequence);
      const std::optional<Error> error = execution_.not_finite();
      end_current(error ? &*error : nullptr);
    } else if (!moved) {
      watch_.report(*current_, execution_.failure());
    }
    return moved;
  } catch (...) {  // nothing may pass a blocking call whose operation lies on its stack
    return refuse(caught());
  }
}

// The current call cannot begin, or cannot go on after an exchange. kInvalid comes from what all ranks know, so
// all of them end this call alike, and the communicator goes on. Any other error fails the communicator.
bool Collectives::refuse(const Error& reason) {
  if (const Error* error = context_->failure.get()) return fail_all(*error);  // which may be why it cannot
  if (reason.code == ErrorCode::kInvalid) {
    context_->log.finished(current_->start.sequence);
    end_current(&reason);
    return true;
  }
  context_->fail(reason);
  return fail_all(*context_->failure.get());
}

// Completes or fails the current operation. A thread that waits for it may return as soon as it has ended, and
// an operation on its stack is gone then: so everything that is needed of it is read before.
void Collectives::end_current(const Error* error) {
  if (context_->observed.on()) observe_end(error);
  execution_.end();
  CollectiveOperation& operation = *std::exchange(current_, nullptr);
  const auto own = OperationRef<CollectiveOperation>::take(operation.on_stack() ? nullptr : &operation);
  const std::shared_ptr<Gate> gate = operation.gate;
  // Before the end: the waiting thread may make its next call at once, and finds nothing under way.
  state().count(-1);
  operation.end(error);
  if (gate) gate->ended(error);
  wake_sleepers();
}

void Collectives::observe_begin() {
  began_at_ = looked_at_ = Observer::now();
  const Observed& observed = context_->observed;
  observed.begun_at = began_at_;
  observed.ended_at = 0;
  observed.observer->began(observed.communicator, current_->start.sequence, began_at_,
                           observed_call(*current_->call, context_->world(), Algorithm::kAuto));
}

void Collectives::observe_end(const Error* error) {
  if (current_ == nullptr || began_at_ == 0) return;
  const Observed& observed = context_->observed;
  // The run's end is not the end of a call that failed, or whose tensors were copied back since.
  const uint64_t known = std::exchange(observed.ended_at, 0);
  observe_look(known != 0 && error == nullptr && !current_->packing ? known : Observer::now());  // sets looked_at_
  observed.observer->ended(observed.communicator, current_->start.sequence, {began_at_, looked_at_},
                           observed_call(*current_->call, context_->world(), execution_.algorithm()),
                           error != nullptr ? error->code : ErrorCode::kOk);
  // A call that ended by itself with an error (kNotFinite, kInvalid) is no failure of the communicator.
  const Error* failure = error != nullptr ? context_->failure.get() : nullptr;
  if (failure != nullptr) observed.observer->failed(observed.communicator, *failure);
  began_at_ = 0;
}

void Collectives::observe_look(uint64_t at) {
  if (began_at_ != 0 && at > looked_at_ + kStoppedNs) {
    context_->observed.observer->stopped(context_->observed.communicator, current_->start.sequence, {looked_at_, at});
  }
  looked_at_ = at;
}

// Ends everything that is pending with the communicator's failure. Operations end only when no other rank and
// no stream is at work on this rank's memory: from their end on it is the caller's. True if anything ended;
// false: come back.
bool Collectives::fail_all(const Error& error) {
  bool any = false;
  if (current_ != nullptr) execution_.stop();
  if (!close_buffers(Clock::now())) return false;
  while (current_ != nullptr || take_next()) {
    end_current(&error);
    any = true;
  }
  return any;
}

// Whether no other rank and no stream is at work on this rank's memory any more.
bool Collectives::close_buffers(Clock::time_point now) {
  const bool let_go = !streams_let_go_ || let_streams_go(now);
  return execution_.close_buffers(now) && let_go;
}

// Streams that still have entries count as an operation under way, so that a thread comes back until they are
// drained.
bool Collectives::let_streams_go(Clock::time_point now) {
  const StreamsEnd end = streams_let_go_(now);
  const bool lingers = end != StreamsEnd::kDrained;
  if (std::exchange(streams_linger_, lingers) != lingers) state().count(lingers ? 1 : -1);
  return end != StreamsEnd::kAtWork;
}

void Collectives::set_streams(LetGo let_go) {
  with_lease([&] { streams_let_go_ = std::move(let_go); });
}

// Deadlines and stalls. A blocking call that began at once gets its deadline at the first look: if it ends
// before, it costs no clock read. The time of a call on a stream begins when its stream has reached it.
void Collectives::tick(Clock::time_point now) {
  if (current_ == nullptr || context_->failure.get() != nullptr) return;
  if (context_->observed.on()) observe_look(static_cast<uint64_t>(now.time_since_epoch().count()));
  if (current_->held_back()) return;
  const auto at = worker().clock().look(now);
  if (current_->deadline == kNoDeadlineYet || (current_->gate && current_->deadline == Clock::time_point::max())) {
    current_->deadline = deadline_after(at, context_->limit_of(current_->call->timeout));
  }
  watch_.tick(now, *current_, execution_.moved());
  if (const CollectiveOperation* late_one = late(at)) {
    watch_.time_out(now, *current_, *late_one, at - late_one->deadline);
  }
}

// The current operation, or one queued behind it, whose deadline has passed: operations end in order, so a late
// one behind fails the communicator, too.
const CollectiveOperation* Collectives::late(Clock::time_point at) {
  if (at >= current_->deadline) return current_;
  if (!state().submitted()) return nullptr;
  std::lock_guard lock(queue_mutex_);
  const CollectiveOperation* queued = queue_.front();
  while (queued != nullptr && at < queued->deadline) queued = queued->next;
  return queued;
}

// Yields until the grace period is over, at most a second: the others are in the middle of a slice.
void Collectives::shut_down() {
  with_lease([this] {
    while (!close_buffers(Clock::now())) sched_yield();
    if (const Error* error = context_->failure.get()) fail_all(*error);
    if (std::exchange(streams_linger_, false)) state().count(-1);  // destroy() goes on with them
    execution_.close();
  });
  worker().forget(*this);
}

}  // namespace rondo
