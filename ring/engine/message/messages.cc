#include "ring/engine/message/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/interrupt.h"
#include "ring/engine/progress/worker.h"
#include "transport/armed_sleep.h"

namespace rondo {
namespace {

// The time between two looks of a thread that waits for long. Longer than the time between two questions to the
// program's interrupt function (Flow), which begins anew with each look.
constexpr std::chrono::milliseconds kBetweenLooks{250};
// Operations that are kept for use again: as many as programs have in flight, 500 bytes each.
constexpr int kMostKept = 1024;

// The options of the state machine. Their functions refer to the context, which Messages shares, and so do not outlive
// it.
P2pOptions p2p_options(const CommunicatorContext& context) {
  P2pOptions options;
  options.communicator = context.id;
  options.eager_bytes = context.config.eager_bytes;
  options.checked = [&context](int peer) { return context.fabric->checksums(context.world_rank(peer)); };
  // A lambda: of a pointer to a function librondo.a would show the type.
  if (context.config.shared_stores == "auto") options.now_ns = [] { return Observer::now(); };
  SharedMemory* const memory = context.fabric->shared_memory();
  // Not between threads: what one that has failed lets go of may be unmapped by then.
  const bool reads = memory != nullptr && memory->can_pull() && memory->stops_alone();
  if (reads && context.config.single_copy != "off") {
    options.read = [&context, memory](int peer, uint64_t address, std::byte* to, size_t bytes) {
      return memory->pull(context.world_rank(peer), address, to, bytes);
    };
    options.readable = [&context](int peer) { return context.topology.share_memory(context.rank, peer); };
    options.always_read = context.config.single_copy == "on";
  }
  options.peer_name = [&context](int peer) { return context.fabric->peer_name(context.world_rank(peer)); };
  return options;
}

// The operation in words; empty, where there is no memory: nothing may be thrown out of a wait for what uses
// the caller's memory.
std::string text_of(const MessageOperation& operation) {
  try {
    return operation.text();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace

// Only asynchronous messages use an operation again, so it moves in the background whatever it was before.
void MessageOperation::renew(const P2pCall& call, std::chrono::milliseconds limit) {
  Operation::renew();
  P2pRequest::renew(call);
  message = sends() ? Message{peer, tag, bytes} : Message{};
  background = true;
  limit_ = limit;
  overdue_at_ = {};
}

// Ends the operation: under the lease, or where it was never under way (submit()). The order matters: it leaves the
// list first, then ends, since an operation on a stack may be gone then. One that counted references is kept for the
// next asynchronous message.
void MessageOperation::finish(const Error* error) {
  Messages& messages = messages_;
  auto own = OperationRef<MessageOperation>::take(on_stack() ? nullptr : this);
  const std::shared_ptr<Gate> own_gate = std::move(gate);
  const bool counted = state() == State::kRunning;
  if (counted) messages.forget(*this);
  if (began_at_ != 0 && !probes()) messages.observe_end(*this, error);
  if (error == nullptr) {
    end(nullptr);
  } else {
    const Error located = messages.context_->failure.located(*error);
    end(&located);
  }
  if (own_gate) own_gate->ended(error);
  if (own && counted && messages.kept_operations_ < kMostKept) {
    ++messages.kept_operations_;
    messages.kept_.push_back(*own.leave());
  }
  messages.wake_sleepers();
}

std::string MessageOperation::text() const {
  const std::string length = probes() ? "" : fmt::format("{} bytes ", bytes);
  if (matched != 0) return fmt::format("recv({}of a matched probe)", length);
  return fmt::format("{}({}{} {}, tag {})", message_kind_name(kind), length, sends() ? "to" : "from",
                     peer < 0 ? "any rank" : fmt::format("rank {}", peer), tag < 0 ? "any" : fmt::format("{}", tag));
}

bool MessageOperation::wait(Clock::time_point until) {
  if (done()) return true;
  check_submitted("wait()");
  return messages_.wait_and_tell(*this, until);
}

bool MessageOperation::cancel() {
  if (done()) return false;
  check_submitted("cancel()");
  messages_.check_process();
  return messages_.take_back(*this, {ErrorCode::kCancelled, text() + " was taken back", {}});
}

Messages::Messages(std::shared_ptr<CommunicatorContext> context, std::shared_ptr<Doorbell> bell,
                   std::shared_ptr<Worker> worker, WaitPolicy policy)
    : Flow(std::move(bell), std::move(worker), policy, {context, &context->mark}), context_(std::move(context)) {
  p2p_ =
      std::make_unique<P2p>(context_->rank, context_->world(), p2p_options(*context_), static_cast<P2pStreams&>(*this));
}

OperationRef<MessageOperation> Messages::make(const P2pCall& call, std::chrono::milliseconds limit) {
  auto made = Operation::make<MessageOperation>(*this, call, limit);
  made->flow = shared_from_this();
  return made;
}

// The clock is read for the observer alone. The deadline is set by the first tick (kNoDeadlineYet).
void Messages::queued(MessageOperation& operation) {
  operation.deadline = kNoDeadlineYet;
  operation.began_at_ = context_->observed.on() ? Observer::now() : 0;
  operation.become(MessageOperation::State::kQueued);
}

// It is under way as soon as submitted() is true, though no thread has taken it from the queue. After shut_down() no
// thread would, so it ends here.
void Messages::submit(MessageOperation& operation) {
  queued(operation);
  if (!operation.on_stack()) operation.retain();  // until finish()
  {
    std::lock_guard lock(submitted_mutex_);
    if (!ended_) {
      submitted_.push_back(operation);
      return state().submitted(true);
    }
  }
  operation.finish(context_->failure.get());
}

// Called by a function in a stream, which has no lease and must not wait.
void Messages::submit_from_stream(MessageOperation& operation) {
  submit(operation);
  notify();
}

template <typename Action>
bool Messages::attempt(const Action& action) noexcept {
  try {
    action();
    return true;
  } catch (...) {
    fail_caught();
    return false;
  }
}

// The short way first: at most passes_without_clock() looks under the lease. What is not over then becomes
// operations.
Message Messages::run(std::span<const P2pCall> calls, std::chrono::milliseconds limit) {
  Message moved;
  size_t over = 0;
  if_free([&] {
    over = at_once(calls, passes_without_clock(), moved);
    count_polled();
  });
  if (over < calls.size()) return run_operations(calls.subspan(over), limit);
  pass_beside(Moved::kOwnPart);
  return moved;
}

// Runs calls that were not over at once. They lie on this stack. If the lease is free they begin here, else its
// holder takes them.
Message Messages::run_operations(std::span<const P2pCall> calls, std::chrono::milliseconds limit) {
  std::array<std::optional<MessageOperation>, 2> made;
  for (size_t i = 0; i < calls.size(); ++i) made[i].emplace(*this, calls[i], limit);
  const auto operations = std::span(made).first(calls.size());
  const bool held = if_free([&] {
    take_submitted();
    for (auto& operation : operations) {
      queued(*operation);
      begin(*operation);
    }
  });
  for (size_t i = 0; i < operations.size() && !held; ++i) submit(*operations[i]);
  MessageOperation& last = *operations.back();
  for (const auto& operation : operations) {
    wait_blocking(*operation);
    if (operation->failed() && !last.done()) {
      take_back(last, {ErrorCode::kCancelled, "the send beside it has failed", {}});
    }
  }
  for (const auto& operation : operations) {
    if (operation->failed()) throw Exception(operation->error());
  }
  return last.message;
}

// The short way, under the lease. Returns how many of the calls, from the first one on, are over after so many
// looks at the streams of their peers alone. A call that is not over has not begun. No call goes this way while
// earlier messages wait in the queue: messages must not pass each other.
size_t Messages::at_once(std::span<const P2pCall> calls, int looks, Message& moved) {
  size_t over = 0;
  if (context_->observed.on() || ended_ || state().submitted() || context_->failure.get() != nullptr) return over;
  try {
    while (over < calls.size()) {
      const P2pAtOnce found = p2p_->at_once(calls[over], moved);
      if (found == P2pAtOnce::kOver) {
        ++over;
      } else if (found == P2pAtOnce::kNothingYet && --looks > 0) {
        pause_core();
      } else {
        break;
      }
    }
  } catch (...) {  // operations end with the failure
    fail_caught();
  }
  moved_bytes_.store(p2p_->moved_bytes(), std::memory_order_relaxed);
  return over;
}

// If another thread has the lease, the operation is queued for that one. Otherwise it begins here.
OperationRef<Operation> Messages::start(const P2pCall& call, std::chrono::milliseconds limit,
                                        ReferenceStock<Operation>& over, Message& moved) {
  OperationRef<Operation> started;
  bool is_over = false;
  Left left = Left::kWaits;
  if_free([&] {
    is_over = at_once({&call, 1}, 1, moved) == 1;
    if (is_over) {
      started = over.take();
    } else if (!ended_) {
      started = begin_here(call, limit, left);
    }
  });
  if (!is_over) moved = {};  // a short way that has failed may have said something
  if (!started) return leave_to_holder(call, limit);
  pass_beside(Moved::kOwnPart);
  if (!is_over) leave(left);
  return started;
}

// Under the lease. Two pushes that both wrote mean that more can be written at once, and no peer rings for that.
OperationRef<MessageOperation> Messages::begin_here(const P2pCall& call, std::chrono::milliseconds limit, Left& left) {
  OperationRef<MessageOperation> operation;
  take_submitted();
  attempt([&] {
    operation = used_again(call, limit);
    queued(*operation);
    operation->retain_alone();  // until finish()
    if (!begin(*operation)) {
      if (p2p_->push() && p2p_->push()) left = Left::kMovable;
      report();
    }
  });
  return operation;
}

OperationRef<MessageOperation> Messages::leave_to_holder(const P2pCall& call, std::chrono::milliseconds limit) {
  auto operation = make(call, limit);
  operation->background = true;
  submit(*operation);
  notify();
  return operation;
}

// Under the lease: an operation that was used before, so that no memory is allocated; else a new one.
OperationRef<MessageOperation> Messages::used_again(const P2pCall& call, std::chrono::milliseconds limit) {
  MessageOperation* const oldest = kept_.front();
  if (oldest != nullptr && oldest->unshared()) {
    kept_.pop_front();
    --kept_operations_;
    oldest->renew(call, limit);
    return OperationRef<MessageOperation>::take(oldest);
  }
  if (oldest != nullptr) kept_.push_back(*kept_.pop_front());  // its Work is held, perhaps for long
  auto made = make(call, limit);
  made->background = true;
  return made;
}

// Under the lease: the operation is not under way any more.
void Messages::forget(MessageOperation& operation) {
  active_.remove(operation);
  if (operation.background) count_background(-1);
  state().count(-1);
}

// A receive that has failed may have no message, and is recorded with the peer and tag of an empty one.
void Messages::observe_end(const MessageOperation& operation, const Error* error) {
  const Message& message = operation.message;
  TraceRecord record;
  record.begin = operation.began_at_;
  record.peer = message.peer;
  record.number = static_cast<uint64_t>(std::max(message.tag, 0));
  record.bytes = message.bytes;
  record.a = static_cast<uint8_t>(operation.sends() ? TraceDirection::kOut : TraceDirection::kIn);
  const Observed& observed = context_->observed;
  observed.observer->message(observed.communicator, record, error != nullptr ? error->code : ErrorCode::kOk);
}

// The first stall_ms are a plain wait. Then the log shows what this thread waits for, and each look counts, so
// that others see whether this thread runs.
bool Messages::wait_and_tell(const MessageOperation& operation, Clock::time_point until) {
  if (operation.done()) return true;
  const std::chrono::milliseconds patience(context_->config.stall_ms);
  if (wait(operation, until, patience)) return true;
  const auto began = Clock::now() - patience;
  if (Clock::now() >= until) return operation.done();
  const int peer = operation.peer < 0 ? -1 : context_->world_rank(operation.peer);
  CallLog::MessageWait told(context_->log, peer, text_of(operation), began);
  auto tell_after = 2 * std::chrono::milliseconds(context_->config.heartbeat_ms);
  for (auto now = Clock::now(); !wait(operation, std::min(until, now + kBetweenLooks)) && now < until;) {
    told.looked();
    now = Clock::now();
    if (tell_after.count() == 0 || now - began < tell_after) continue;
    attempt([&] { context_->fabric->stalled(context_->id, kMessagesSequence); });
    tell_after *= 2;
  }
  return operation.done();
}

// P2p::take_back() by any thread. The holder of the lease does it, who may be asleep in a wait, and is rung.
bool Messages::take_back(MessageOperation& operation, const Error& error) {
  bool taken = false;
  ask_holder([&] {
    if (ended_) return void(end_late());
    take_submitted();
    if (!operation.done()) attempt([&] { taken = p2p_->take_back(operation, error); });
  });
  return taken;
}

// The request lies on this stack: it is done at the end, or withdrawn.
std::optional<Message> Messages::look(const P2pCall& probe) {
  struct Look : P2pRequest {
    explicit Look(const P2pCall& call) : P2pRequest(call) {}
    void complete(const Error* error) override {
      over = true;
      if (error != nullptr) keep_error(*error, failure);
    }
    bool over = false;
    Error failure;
  } looks(probe);
  ask_holder([&] {
    if (ended_) return;
    attempt([&] {
      take_submitted();
      if (p2p_->submit(looks)) move(Pass::kPolling);
    });
    if (!looks.over) p2p_->withdraw(looks);
  });
  pass_beside(Moved::kOwnPart);
  leave(Left::kWaits);
  if (!looks.failure.ok()) throw Exception(context_->failure.located(looks.failure));
  if (!looks.over && failure() != nullptr) throw Exception(*failure());
  if (!looks.over) worker().found_nothing();
  return looks.over ? std::optional<Message>(looks.message) : std::nullopt;
}

void Messages::peer_left(int peer) {
  {
    std::lock_guard lock(submitted_mutex_);
    left_.push_back(peer);
    state().submitted(true);
  }
  notify();
}

// An exception in the state machine fails the communicator, and everything pending ends in the same pass.
bool Messages::step(Pass pass) {
  if (ended_) return end_late();
  try {
    return move(pass);
  } catch (...) {
    fail_caught();
  }
  end_pending(*context_->failure.get());
  return true;
}

// Ends operations that another thread has submitted while this communicator was being destroyed.
bool Messages::end_late() {
  NodeList<MessageOperation> late;
  {
    std::lock_guard lock(submitted_mutex_);
    state().submitted(false);
    std::swap(late, submitted_);
    left_.clear();
  }
  const bool any = !late.empty();
  while (MessageOperation* operation = late.pop_front()) operation->finish(context_->failure.get());
  return any;
}

// One pass: what was submitted, then the streams. After a failure only the end of what is pending.
bool Messages::move(Pass pass) {
  bool moved = take_submitted();
  if (const Error* error = context_->failure.get()) {
    end_pending(*error);
    return p2p_->progress() || moved;
  }
  moved |= p2p_->progress(pass == Pass::kBeforeSleep ? P2pSweep::kAll : P2pSweep::kAwaited);
  moved_bytes_.store(p2p_->moved_bytes(), std::memory_order_relaxed);
  report();
  return moved;
}

// Ends what is pending. After a failure the streams close. If the communicator is destroyed in good order
// (kClosed), what was sent must still arrive, so they stay open until shut_down().
void Messages::end_pending(const Error& error) {
  if (error.code != ErrorCode::kClosed) {
    p2p_->fail(error);
  } else if (!std::exchange(finishing_, true)) {
    p2p_->finish(error);
  }
}

// Takes the queue over. It counts as one operation until its own are counted, so under_way() never says no in
// between.
bool Messages::take_submitted() {
  if (!state().submitted()) return false;
  NodeList<MessageOperation> taken;
  std::vector<int> left;
  {
    std::lock_guard lock(submitted_mutex_);
    state().count(1);  // until they are counted
    state().submitted(false);
    std::swap(taken, submitted_);
    std::swap(left, left_);
  }
  while (MessageOperation* operation = taken.pop_front()) begin(*operation);
  // A peer that leaves after the group has failed is no cause of its own.
  const Error* error = context_->failure.get();
  if (!left.empty() && error != nullptr) end_pending(*error);
  for (const int peer : left) attempt([&] { p2p_->peer_left(peer); });
  state().count(-1);
  return true;
}

// Hands the operation to the state machine, under the lease. Returns what P2p::submit() returns.
bool Messages::begin(MessageOperation& operation) {
  if (ended_) {
    operation.finish(context_->failure.get());
    return false;
  }
  active_.push_back(operation);
  operation.become(MessageOperation::State::kRunning);
  state().count(1);
  if (operation.background) count_background(1);
  try {
    return p2p_->submit(operation);
  } catch (...) {
    fail_caught();
    operation.finish(context_->failure.get());
  }
  return false;
}

// Passes on what the state machine has found: a mismatch or a breach of the protocol fails the communicator; a
// broken stream goes to the fabric, which looks for the reason.
void Messages::report() {
  if (const auto& failure = p2p_->failure()) {
    Error error = *failure;
    for (int& rank : error.ranks) rank = context_->world_rank(rank);
    context_->fabric->abort(context_->id, error);
    return;
  }
  while (const auto failed = p2p_->take_link_failure()) {
    context_->fabric->link_failed(context_->id, context_->world_rank(failed->first), failed->second);
  }
}

// Operations without a deadline are the last ones of the list. due_ is no later than any deadline, so most
// ticks look at no operation.
void Messages::tick(Clock::time_point now) {
  if (ended_ || context_->failure.get() != nullptr) return;
  const auto at = worker().clock().look(now);
  for (MessageOperation* last = active_.back(); last != nullptr && last->deadline == kNoDeadlineYet;
       last = last->previous) {
    last->deadline = deadline_after(at, last->limit_);
    due_ = std::min(due_, last->deadline);
  }
  if (at < due_) return;
  due_ = Clock::time_point::max();
  for (MessageOperation* operation = active_.front(); operation != nullptr; operation = operation->next) {
    due_ = std::min(due_, operation->deadline);
    if (at >= operation->deadline) return time_out(now, *operation);
  }
}

// The deadline has passed. A probe ends alone, since no other rank knows of it. For a send or receive the
// members are asked what they wait for, and have a moment to answer; then the communicator fails.
void Messages::time_out(Clock::time_point now, MessageOperation& operation) {
  const int peer = operation.peer;
  std::string wait;
  if (!operation.probes()) {
    if (operation.overdue_at_ == Clock::time_point{}) {
      operation.overdue_at_ = now;
      return context_->fabric->stalled(context_->id, kMessagesSequence, Ask::kAll);
    }
    if (now - operation.overdue_at_ < kAnswerPatience) return;
    wait = context_->fabric->blame(context_->id, kMessagesSequence);
  }
  Error error{ErrorCode::kTimeout,
              fmt::format("{} on rank {} did not complete before its deadline: {}", operation.text(), context_->rank,
                          !wait.empty() ? wait
                          : peer < 0    ? "no rank sent a message that matches"
                                        : "the peer has not made the matching call"),
              {}};
  if (peer >= 0) error.ranks.push_back(operation.probes() ? peer : context_->world_rank(peer));
  if (operation.probes()) {
    p2p_->take_back(operation, error);
  } else {
    context_->fabric->abort(context_->id, error);
  }
}

std::unique_ptr<ByteStream> Messages::take_stream_to(int peer) {
  return context_->fabric->take_stream_to(context_->id, context_->world_rank(peer));
}

std::optional<std::pair<int, std::unique_ptr<ByteStream>>> Messages::take_stream_from() {
  auto taken = context_->fabric->take_stream_from(context_->id);
  if (!taken) return taken;
  const int peer = context_->group_rank(taken->first);
  if (peer < 0) {  // no member: it has no business here
    context_->fabric->link_failed(
        context_->id, taken->first,
        {ErrorCode::kProtocol,
         fmt::format("{} sends on a communicator that it is no member of", context_->fabric->peer_name(taken->first)),
         {taken->first}});
    return std::nullopt;
  }
  taken->first = peer;
  return taken;
}

// Writes what is left, and sleeps in between with its own doorbell armed. It gives the lease back each time:
// threads that wait for messages must hear of the end.
bool Messages::finish(Clock::time_point deadline) {
  bool idle = false;
  with_lease([&] {
    take_submitted();
    end_pending(*context_->failure.get());
    linger(!(idle = p2p_->idle()));
  });
  while (!idle && Clock::now() < deadline && !wait_interrupted()) {
    with_lease([&] {
      ArmedSleep sleep(*bell(), *context_->fabric->sleepers());
      bool moved = true;
      attempt([&] { moved = p2p_->progress(); });
      const auto rest = std::min(deadline, Clock::now() + std::chrono::milliseconds(20));
      const bool broken = !moved && !sleep.wait(rest).ok();
      linger(!(idle = broken || p2p_->idle()));
    });
  }
  if (!idle) leave(Left::kMovable);
  return idle;
}

// Under the lease: what is left to be written counts as an operation, so that other threads and the worker go
// on with it.
void Messages::linger(bool lingers) {
  if (std::exchange(lingers_, lingers) != lingers) state().count(lingers ? 1 : -1);
}

// In good order the streams close only here: before, peers may still read what this rank has sent. The kept
// operations lose the flow's reference; those that a Work refers to live on.
void Messages::shut_down() {
  with_lease([this] {
    if (ended_) return;
    take_submitted();
    p2p_->fail(*context_->failure.get());
    p2p_->progress();
    {
      std::lock_guard lock(submitted_mutex_);
      ended_ = true;
    }
    end_late();  // submitted meanwhile, by threads that could not have the lease
    p2p_.reset();
    linger(false);
    while (MessageOperation* operation = kept_.pop_front()) operation->release();
  });
  worker().forget(*this);
}

}  // namespace rondo
