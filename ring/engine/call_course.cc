#include "ring/engine/call_course.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "ring/engine/run/board_run.h"
#include "ring/engine/run/window_run.h"

namespace rondo {

using Next = Route::Next;

CallCourse::CallCourse(CommunicatorContext& context, const Router& router)
    : context_(context),
      router_(router),
      plans_(context.rank, context.topology, context.config),
      links_(context),
      island_(context),
      log_(context.config.debug, context.world_rank(context.rank)) {}

bool CallCourse::advance(Pass pass) {
  bool moved = false;
  while (true) {
    if (running_ == nullptr) {
      if (!go_on()) return moved;
      moved = true;
    }
    moved |= running_->progress(pass);
    if (!running_->done()) return moved;
    ++stages_;
    if (route_->next == Next::kRun) break;
    end_exchange();
  }
  if (operation_->packing) operation_->packing->unpack();
  done_ = true;
  return true;
}

// False: links or windows are on their way.
bool CallCourse::go_on() {
  if (!route_) decide(nullptr);
  if (route_->next != Next::kRun) return start_exchange();
  PreparedCall::Body& body = operation_->call->body;
  if (!body.run || body.algorithm != route_->algorithm) prepare_body();
  if (!body.run->ready()) return false;
  if (operation_->packing) pack();
  body.run->start(operation_->start());
  running_ = body.run.get();
  return true;
}

void CallCourse::decide(const BufferFacts* buffers) {
  const RouteQuestion& question = operation_->call->question;
  route_ = router_.decide(question, table_, buffers);
  if (route_->next == Next::kRefuse) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", describe_call(operation_->call->call),
                                                     context_.rank, refusal_text(*route_, *buffers)));
  }
  if (route_->timed && !timed_since_) timed_since_ = Clock::now();
  if (route_->next != Next::kRun) return;
  context_.log.took(operation_->sequence, route_->algorithm, table_.version());
  if (context_.observed.on()) observe_route();
  if (RouteTable::learns_from(*route_)) {
    std::lock_guard lock(table_mutex_);
    table_.began(question, *route_);
  }
  if (context_.rank == 0 && log_.shows(LogLevel::kInfo)) show();
}

void CallCourse::observe_route() {
  PreparedCall& prepared = *operation_->call;
  const Observed& observed = context_.observed;
  if (prepared.prediction.algorithm != route_->algorithm) {
    prepared.prediction = {route_->algorithm, router_.predicted_ns(prepared.question, route_->algorithm)};
  }
  observed.observer->routed(observed.communicator, operation_->sequence,
                            observed_call(prepared, context_.world(), route_->algorithm),
                            {static_cast<uint8_t>(route_->reason), reason_text(route_->reason)},
                            static_cast<uint8_t>(route_->medium()), prepared.prediction.nanoseconds);
}

// When it is another than the last time, for calls of about this size. Trials are no choice yet.
void CallCourse::show() {
  if (route_->reason == RouteReason::kTrial) return;
  const RouteQuestion& question = operation_->call->question;
  const auto [shown, first] =
      shown_.try_emplace({question.collective, std::bit_width(question.bytes)}, route_->algorithm);
  if (!first && std::exchange(shown->second, route_->algorithm) == route_->algorithm) return;
  log_.info(router_.describe(question, *route_));
}

bool CallCourse::start_exchange() {
  if (!island_.attach()) return false;
  if (!cards_) cards_.emplace(context_, island_);
  if (operation_->packing) pack();  // the others may read it as soon as they have heard from this rank
  const CheckedCall& call = operation_->call->call;
  if (route_->next == Next::kTryPull) {
    cards_->start_trial(call, operation_->start());
  } else {
    cards_->start(call, operation_->start(), took_ns_);
  }
  running_ = &cards_->run();
  return true;
}

// All have told where their buffers lie, or whether they could read the others'.
void CallCourse::end_exchange() {
  running_ = nullptr;
  const PreparedCall& prepared = *operation_->call;
  const BufferFacts facts = cards_->facts(prepared.call);
  std::string chosen;
  bool refused = false;
  {
    std::lock_guard lock(table_mutex_);
    if (route_->next == Next::kTryPull) {
      refused = table_.tried_pull(prepared.question, facts);
    } else {
      chosen = table_.exchanged(cards_->slowest_ns());
      took_ns_ = 0;
    }
  }
  if (context_.rank == 0 && !chosen.empty() && log_.shows(LogLevel::kInfo)) log_.info(chosen);
  if (context_.rank == 0 && refused) {
    log_.warn(
        fmt::format("{}: {} may not read the memory of the other ranks; buffers that are not registered are "
                    "staged from now on",
                    describe_call(prepared.call), context_.name(cards_->unreadable_by())));
  }
  decide(&facts);
}

void CallCourse::pack() {
  if (!std::exchange(packed_, true)) operation_->packing->pack();
}

void CallCourse::prepare_body() {
  PreparedCall& prepared = *operation_->call;
  PreparedCall::Body& body = prepared.body;
  body.run.reset();  // its memory, before the next one's
  std::shared_ptr<const Plan> plan = plans_.get(prepared.question, route_->algorithm, prepared.call.root);
  if (plan->scratch_slots > 0) {
    if (const auto other = has_scratch_.lock()) other->body = {};
    has_scratch_ = prepared.weak_from_this();
  }
  body.run = make_run(std::move(plan));
  body.algorithm = route_->algorithm;
}

std::unique_ptr<Run> CallCourse::make_run(std::shared_ptr<const Plan> plan) {
  const CheckedCall& call = operation_->call->call;
  switch (route_->medium()) {
    case Medium::kBoard:
      return std::make_unique<BoardRun>(call, std::move(plan), island_);
    case Medium::kWindows:
      return std::make_unique<WindowRun>(call, std::move(plan),
                                         round_bytes(route_->algorithm, context_.config.staging_bytes), context_,
                                         island_, cards_->cards());
    case Medium::kLinks:
      break;
  }
  return make_link_run(call, std::move(plan));
}

std::unique_ptr<Run> CallCourse::make_link_run(const CheckedCall& call, std::shared_ptr<const Plan> plan) {
  return std::make_unique<LinkRun>(call, std::move(plan), context_, links_);
}

uint64_t CallCourse::moved() { return (stages_ << 40) + (running_ != nullptr ? 1 + running_->moved() : 0); }

std::optional<Error> CallCourse::not_finite_of_wire() {
  const WireNote note = running_ != nullptr ? running_->not_finite() : WireNote{};
  if (operation_->wire.allow_not_finite || !note.found()) return std::nullopt;
  const char* what = note.kind == WireNote::Kind::kNan        ? "is NaN"
                     : note.kind == WireNote::Kind::kInfinity ? "is infinite"
                                                              : "is too large for the wire format";
  return Error{
      ErrorCode::kNotFinite,
      fmt::format("{} on rank {}: element {} {} on {}; the result is not finite there. Scale or clip the "
                  "input, or ask for allow_not_finite",
                  describe_call(operation_->call->call), context_.rank, note.index, what, context_.name(note.rank)),
      {note.rank}};
}

void CallCourse::end() {
  if (running_ != nullptr) std::exchange(running_, nullptr)->end();
  operation_ = nullptr;
  if (!timed_since_) return;
  const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - *timed_since_);
  took_ns_ = static_cast<uint64_t>(std::max<int64_t>(took.count(), 1));
  timed_since_.reset();
}

void CallCourse::close() {
  links_.close();
  cards_.reset();
  island_.release();
}

Route CallCourse::route_of(const RouteQuestion& question, bool registered) const {
  BufferFacts buffers;
  buffers.plain = registered ? -1 : 0;
  buffers.readable = true;
  std::lock_guard lock(table_mutex_);
  return router_.decide(question, table_, &buffers);
}

}  // namespace rondo
