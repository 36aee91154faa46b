#include "ring/engine/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"

namespace rondo {
namespace {

// A deadline is counted from the first look at the clock: a message that is there at once costs none.
constexpr Clock::time_point kNoDeadlineYet{};
// Between two looks of a thread that waits for long. Longer than the time between two questions to the program whether
// the wait is to end (ProgressEngine), which begins anew with each look.
constexpr std::chrono::milliseconds kBetweenLooks{250};

uint64_t steady_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

P2pOptions p2p_options(const CommunicatorContext& context) {
  P2pOptions options;
  options.communicator = context.id;
  options.eager_bytes = context.config.eager_bytes;
  options.checked = [&context](int peer) { return context.fabric->checksums(context.world_rank(peer)); };
  // A lambda: of a pointer to a function librondo.a would show the type.
  if (context.config.shared_stores == "auto") options.now_ns = [] { return steady_ns(); };
  options.peer_name = [&context](int peer) { return context.fabric->peer_name(context.world_rank(peer)); };
  return options;
}

std::string describe(const char* verb, uint64_t bytes, const char* preposition, int peer, int tag) {
  return fmt::format("{}({} bytes {} {}, tag {})", verb, bytes, preposition,
                     peer < 0 ? "any rank" : fmt::format("rank {}", peer), tag < 0 ? "any" : fmt::format("{}", tag));
}

// Without memory for it none: nothing passes a wait for what uses the caller's memory.
std::string text_of(const MessageOperation& operation) {
  try {
    return operation.text();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace

void MessageOperation::end(const Error* error) {
  Messages& messages = *messages_;
  const auto keep = std::move(self_);
  const bool on_stack = on_stack_;
  const bool counted = counted_;
  const std::shared_ptr<MessageStage> told = std::move(stage);
  if (listed_) messages.active_.remove(*this);
  listed_ = false;
  if (background) messages.background_.fetch_sub(1);
  if (began_at != 0) messages.observe_end(*this, error, dynamic_cast<SendOperation*>(this) != nullptr);
  if (error != nullptr) {
    fail(*error);
  } else {
    Operation::complete();
  }
  if (told) told->ended(*this);
  if (!on_stack) announce_end();  // else it may be gone
  if (counted) messages.ended();
}

SendOperation::SendOperation(const std::byte* memory, uint64_t size, DType type, int to, int with_tag) {
  SendRequest::data = memory;
  SendRequest::bytes = message_bytes = size;
  SendRequest::dtype = type;
  SendRequest::peer = Operation::peer = to;
  SendRequest::tag = Operation::tag = with_tag;
}

std::string SendOperation::text() const {
  return describe("send", SendRequest::bytes, "to", SendRequest::peer, SendRequest::tag);
}

void SendOperation::complete(const Error* error) { end(error); }

RecvOperation::RecvOperation(std::byte* memory, uint64_t size, DType type, int from, int with_tag) {
  RecvRequest::data = memory;
  RecvRequest::bytes = size;
  RecvRequest::dtype = type;
  RecvRequest::peer = from;
  RecvRequest::tag = with_tag;
}

std::string RecvOperation::text() const {
  return describe("recv", RecvRequest::bytes, "from", RecvRequest::peer, RecvRequest::tag);
}

void RecvOperation::complete(const Error* error) {
  Operation::peer = message.peer;
  Operation::tag = message.tag;
  message_bytes = message.bytes;
  end(error);
}

Messages::Messages(std::shared_ptr<CommunicatorContext> context, std::shared_ptr<Doorbell> bell,
                   std::weak_ptr<ProgressThread> progress_thread, WaitPolicy policy)
    : ProgressEngine(std::move(bell), std::move(progress_thread), policy, {context, &context->mark}),
      context_(std::move(context)) {
  p2p_ =
      std::make_unique<P2p>(context_->rank, context_->world(), p2p_options(*context_), static_cast<P2pStreams&>(*this));
}

void Messages::submit(std::shared_ptr<MessageOperation> operation) {
  std::lock_guard lock(submitted_mutex_);
  submitted_.push_back(operation);  // first: without memory nothing has happened. Nobody sees it under the lock
  if (context_->observed.on()) operation->began_at = Observer::now();
  adopt(operation);
  news_.store(true);
}

// It is under way from now on.
void Messages::adopt(const std::shared_ptr<MessageOperation>& operation) {
  operation->messages_ = this;
  operation->self_ = operation;
  operation->deadline = kNoDeadlineYet;
  operation->counted_ = true;
  if (operation->background) background_.fetch_add(1);
  added();
}

void Messages::submit_from_stream(std::shared_ptr<MessageOperation> operation) {
  submit_or_end(std::move(operation));
  notify();
}

void Messages::submit_or_end(std::shared_ptr<MessageOperation> operation) {
  if (context_->failure.get() == nullptr && attempt([&] { submit(operation); })) return;
  operation->messages_ = this;
  operation->background = false;
  operation->end(context_->failure.get());
}

template <typename Action>
bool Messages::attempt(const Action& action) noexcept {
  try {
    action();
    return true;
  } catch (...) {
    context_->fail(caught());
    return false;
  }
}

Messages::AtOnce Messages::run_at_once(const P2pOut* out, P2pIn* in) {
  AtOnce result;
  if (context_->observed.on()) return result;
  alone([this, out, in, &result] {
    if (ended_ || news_.load()) return;
    try {
      if (out != nullptr) result.sent = p2p_->send_now(*out);
      if (in != nullptr && (out == nullptr || result.sent)) result.received = take_now(*in);
    } catch (...) {  // the queued way ends them with the failure
      context_->fail(caught());
    }
    moved_bytes_.store(p2p_->moved_bytes(), std::memory_order_relaxed);
  });
  return result;
}

// Under the lease. Polls the streams of the receive's peers alone.
bool Messages::take_now(P2pIn& in) {
  for (int pass = 0; pass < passes_without_clock(); ++pass) {
    const P2pFound found = p2p_->recv_now(in);
    if (found != P2pFound::kNothing) return found == P2pFound::kMessage;
    pause_core();
  }
  return false;
}

// now(), under the lease: whether it is over. make(): the operation of what is not. Messages that were submitted before
// go first.
template <typename Now, typename Make>
std::shared_ptr<MessageOperation> Messages::start_or_submit(const Now& now, const Make& make) {
  std::shared_ptr<MessageOperation> operation;
  bool over = false, waits = false;
  const auto begin_at_once = [&] {
    if (ended_ || news_.load() || context_->failure.get() != nullptr) return;
    try {
      over = now();
      if (!over) {
        operation = make();
        adopt(operation);
        waits = begin(*operation);
        if (!waits) p2p_->push();
        if (!waits) report();
      }
    } catch (...) {  // as attempt(), in fewer steps
      context_->fail(caught());
    }
    moved_bytes_.store(p2p_->moved_bytes(), std::memory_order_relaxed);
  };
  if (!context_->observed.on()) if_free(begin_at_once);
  if (over) return nullptr;
  if (operation == nullptr) {
    submit(operation = make());
    notify();
  } else if (waits) {
    ask_unless_served();
  } else {
    ask_progress_thread();
  }
  return operation;
}

std::shared_ptr<MessageOperation> Messages::in_background(std::shared_ptr<MessageOperation> made,
                                                          std::chrono::milliseconds limit) {
  made->engine = shared_from_this();
  made->background = true;
  made->limit = limit;
  return made;
}

std::shared_ptr<MessageOperation> Messages::start(const P2pOut& out, std::chrono::milliseconds limit) {
  const auto now = [&] { return p2p_->send_now(out); };
  return start_or_submit(now, [&] {
    return in_background(std::make_shared<SendOperation>(out.data, out.bytes, out.dtype, out.peer, out.tag), limit);
  });
}

std::shared_ptr<MessageOperation> Messages::start(P2pIn& in, std::chrono::milliseconds limit) {
  const auto now = [&] { return p2p_->recv_now(in) == P2pFound::kMessage; };
  return start_or_submit(now, [&] {
    return in_background(std::make_shared<RecvOperation>(in.data, in.bytes, in.dtype, in.peer, in.tag), limit);
  });
}

void Messages::run(SendOperation* send, RecvOperation* recv) {
  const auto done = [send, recv] { return (!send || send->done()) && (!recv || recv->done()); };
  const bool held = poll_if_free(
      [this, send, recv] {
        take_submitted();
        begin_now(send);
        begin_now(recv);
      },
      done,
      [this, send, recv] {
        count_if_pending(send);
        count_if_pending(recv);
      });
  if (!held) {
    submit_on_stack(send);
    submit_on_stack(recv);
  }
  if (send) {
    wait_blocking(*send);
    if (send->failed() && recv && !recv->done()) take_back(*recv);
  }
  if (recv) wait_blocking(*recv);
}

// Under the lease.
void Messages::begin_now(MessageOperation* operation) {
  if (operation == nullptr) return;
  operation->messages_ = this;
  operation->on_stack_ = true;
  operation->deadline = kNoDeadlineYet;
  if (context_->observed.on()) operation->began_at = Observer::now();
  if (ended_) return operation->end(context_->failure.get());
  begin(*operation);
}

void Messages::count_if_pending(MessageOperation* operation) {
  if (operation == nullptr || operation->done()) return;
  operation->counted_ = true;
  added();
}

void Messages::submit_on_stack(MessageOperation* operation) {
  if (operation == nullptr) return;
  operation->on_stack_ = true;
  submit_or_end({std::shared_ptr<void>(), operation});
}

void Messages::observe_end(const MessageOperation& operation, const Error* error, bool sends) {
  TraceRecord record;
  record.begin = operation.began_at;
  record.peer = operation.peer;
  record.number = static_cast<uint64_t>(std::max(operation.tag, 0));
  record.bytes = operation.message_bytes;
  record.a = static_cast<uint8_t>(sends ? TraceDirection::kOut : TraceDirection::kIn);
  const Observed& observed = context_->observed;
  observed.observer->message(observed.communicator, record, error != nullptr ? error->code : ErrorCode::kOk);
}

void Messages::wait_blocking(const MessageOperation& operation) {
  if (operation.done()) return;
  const auto policy = std::chrono::milliseconds(context_->config.stall_ms);
  if (wait(operation, Clock::now() + policy)) return;
  const P2pRequest& request = const_cast<MessageOperation&>(operation).request();
  const int peer = request.peer < 0 ? -1 : context_->world_rank(request.peer);
  context_->log.sleeps_in_p2p(peer, text_of(operation));
  while (!wait(operation, Clock::now() + kBetweenLooks)) context_->log.looked_in_p2p();
  context_->log.woke_from_p2p();
}

void Messages::take_back(RecvOperation& operation) {
  with_lease([&] {
    if (ended_) return void(end_late());
    take_submitted();
    if (!operation.done()) attempt([&] { p2p_->take_back(operation.recv()); });
  });
}

void Messages::peer_left(int peer) {
  {
    std::lock_guard lock(submitted_mutex_);
    left_.push_back(peer);
    news_.store(true);
  }
  notify();
}

bool Messages::step(Pass pass) {
  if (ended_) return end_late();
  try {
    return move(pass);
  } catch (...) {  // as attempt(), in fewer steps
    context_->fail(caught());
  }
  end_pending(*context_->failure.get());
  return true;
}

// Submitted while another thread destroyed the communicator.
bool Messages::end_late() {
  std::vector<std::shared_ptr<MessageOperation>> late;
  {
    std::lock_guard lock(submitted_mutex_);
    std::swap(late, submitted_);
  }
  for (const auto& operation : late) operation->end(context_->failure.get());
  return !late.empty();
}

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

// Destroyed in good order: what was sent must still arrive, so the streams stay open until shut_down().
void Messages::end_pending(const Error& error) {
  if (error.code != ErrorCode::kClosed) {
    p2p_->fail(error);
  } else if (!std::exchange(finishing_, true)) {
    p2p_->finish(error);
  }
}

bool Messages::take_submitted() {
  if (!news_.load()) return false;
  std::vector<int> left;
  {
    std::lock_guard lock(submitted_mutex_);
    news_.store(false);
    std::swap(taken_, submitted_);
    std::swap(left, left_);
  }
  for (auto& operation : taken_) begin(*operation);
  taken_.clear();
  // A peer that leaves after the group has failed is no cause of its own.
  const Error* error = context_->failure.get();
  if (!left.empty() && error != nullptr) end_pending(*error);
  for (const int peer : left) attempt([&] { p2p_->peer_left(peer); });
  return true;
}

// As MessageOperation::start().
bool Messages::begin(MessageOperation& operation) {
  active_.push_back(operation);
  operation.listed_ = true;
  try {
    return operation.start(*p2p_);
  } catch (...) {  // as attempt(), in fewer steps
    context_->fail(caught());
    operation.end(context_->failure.get());
  }
  return false;
}

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

void Messages::tick(Clock::time_point now) {
  if (ended_ || context_->failure.get() != nullptr) return;
  for (MessageOperation* operation = active_.front(); operation != nullptr; operation = operation->next) {
    if (operation->deadline == kNoDeadlineYet) operation->deadline = deadline_after(now, operation->limit);
    if (now >= operation->deadline) return time_out(*operation);
  }
}

void Messages::time_out(const MessageOperation& operation) {
  const int peer = const_cast<MessageOperation&>(operation).request().peer;
  Error error{ErrorCode::kTimeout,
              fmt::format("{} on rank {} did not complete before its deadline: {}", operation.text(), context_->rank,
                          peer < 0 ? "no rank sent a message that matches" : "the peer has not made the matching call"),
              {}};
  if (peer >= 0) error.ranks.push_back(context_->world_rank(peer));
  context_->fabric->abort(context_->id, error);
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

void Messages::finish(Clock::time_point deadline) {
  with_lease([this, deadline] {
    take_submitted();
    end_pending(*context_->failure.get());
    while (!p2p_->idle() && Clock::now() < deadline) {
      bell().arm();
      bool moved = true;
      attempt([&] { moved = p2p_->progress(); });
      if (!moved && !bell().wait(std::min(deadline, Clock::now() + std::chrono::milliseconds(20))).ok()) break;
      bell().disarm();
    }
  });
}

void Messages::shut_down() {
  with_lease([this] {
    if (ended_) return;
    take_submitted();
    p2p_->fail(*context_->failure.get());
    p2p_->progress();
    ended_ = true;
    p2p_.reset();
  });
}

}  // namespace rondo
