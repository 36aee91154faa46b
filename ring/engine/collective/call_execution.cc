#include "ring/engine/collective/call_execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "kernels/finite.h"
#include "ring/base/check.h"
#include "ring/engine/run/one_shot.h"
#include "ring/engine/run/slicing.h"

namespace rondo {

namespace {

// The plan of a communicator's first operation over links: a signal to both neighbors on the ring,
// then a wait for theirs. So every link of a ring is connected before the first call.
Plan opening_plan(int rank, int world) {
  const auto next = static_cast<uint16_t>((rank + 1) % world);
  const auto previous = static_cast<uint16_t>((rank + world - 1) % world);
  std::vector<uint16_t> neighbors{next};
  if (previous != next) neighbors.push_back(previous);
  Plan plan;
  plan.collective = Collective::kBarrier;
  plan.rank = rank;
  plan.world = world;
  plan.max_peers = static_cast<uint32_t>(neighbors.size());
  plan.peers.assign(neighbors.begin(), neighbors.end());
  std::sort(plan.peers.begin(), plan.peers.end());
  const auto count = static_cast<uint8_t>(neighbors.size());
  for (int i = 0; i < 2; ++i) {
    for (const uint16_t peer : neighbors) plan.refs.push_back({Space::kMailbox, 0, peer, 0});
  }
  plan.steps.push_back({0, kNoStep, 0, count, 0});
  plan.steps.push_back({count, kNoStep, count, 0, 0});
  return plan;
}

}  // namespace

using Next = Route::Next;

CallExecution::CallExecution(CommunicatorContext& context, const Router& router)
    : context_(context),
      router_(router),
      plans_(context.rank, context.topology, context.config),
      links_(context),
      island_(context),
      checks_finite_(context.config.check_results.find("finite") != std::string::npos),
      checks_digest_(context.config.check_results.find("digest") != std::string::npos),
      log_(context.config.debug, context.world_rank(context.rank)),
      shows_routes_(context.rank == 0 && log_.shows(LogLevel::kInfo)) {}

// Drives stage after stage until one has to wait. The loop ends with the call, or at a run that is not done.
bool CallExecution::advance(CollectiveOperation& operation, Pass pass) {
  operation_ = &operation;
  bool moved = false;
  while (true) {
    if (running_ == nullptr) {
      if (!go_on()) return moved;
      moved = true;
    }
    moved |= running_->progress(pass);
    if (!running_->done()) return moved;
    ++stages_;
    if (operation_->call->any_op && !other_ops_) look_at_ops();
    if (digesting_) {
      if (end_digest()) break;
    } else if (route_->next != Next::kRun) {
      end_exchange();
    } else if (!has_digest()) {
      break;
    } else {
      begin_digest();
    }
  }
  if (operation_->packing) operation_->packing->unpack();
  done_ = true;
  return true;
}

// Starts the operation's next stage. False: links or windows are not there yet; the doorbell rings when they
// come.
//
// A repeated call takes its kept route, as long as the table of routes has not changed: no decision, no
// exchange.
bool CallExecution::go_on() {
  if (digesting_) return go_on_digest();
  if (operation_->run) return start_own_run();
  PreparedCall& prepared = *operation_->call;
  if (!route_) {
    // The log and the observer get the route of each call.
    const bool shown = shows_routes_ || context_.observed.on();
    if (!shown && table_.goes_on(prepared)) {
      route_ = prepared.route;
      if (prepared.tuned_kind != nullptr || prepared.unasked != nullptr) go_on_as_kept(prepared);
    } else {
      decide();
    }
  }
  if (route_->next == Next::kExchangeTimes) return exchange_times();
  if (route_->next != Next::kRun) return exchange_cards();
  context_.log.took(operation_->start.sequence, route_->algorithm, table_.version());
  // Links of the island's ranks are shared with other communicators, whose calls set the stores likewise.
  if (route_->tuned || route_->streamed != streamed_) {
    streamed_ = route_->streamed;
    island_.set_stores(streamed_ ? Stores::kStreamed : Stores::kCached);
  }
  if (!prepared.run || prepared.run_algorithm != route_->algorithm) prepare_run();
  if (!prepared.run->ready()) return false;
  if (operation_->packing) pack();
  if (checks_finite_) check_input();
  running_ = prepared.run.get();
  running_->start(operation_->start);
  return true;
}

// A call whose bytes a stream of a device moves, by one plan on all ranks: it takes no route. The run only
// watches it.
bool CallExecution::start_own_run() {
  const bool ring = operation_->call->algorithm == Algorithm::kRing;
  route_ = ring ? Route{.algorithm = Algorithm::kRing, .reason = RouteReason::kCheapest}
                : Route{.algorithm = Algorithm::kRegistered, .reason = RouteReason::kAllRegistered};
  context_.log.took(operation_->start.sequence, route_->algorithm, table_.version());
  running_ = operation_->run.get();
  running_->start(operation_->start);
  return true;
}

void CallExecution::go_on_as_kept(const PreparedCall& prepared) {
  std::lock_guard lock(table_mutex_);
  table_.went_on(prepared);
}

// Decides the route, or the exchange that the decision needs next. All ranks come to the same: router_.decide()
// is a pure function of facts that they share, and they call it at the same operation.
void CallExecution::decide() {
  PreparedCall& prepared = *operation_->call;
  route_ = router_.decide(prepared, table_, answers_);
  const bool timed = route_->timed || route_->next != Next::kRun;  // or may be, after the exchange
  if (!answers_.buffers && prepared.tuned() && timed) began_ns_ = Observer::now();
  if (route_->next == Next::kRefuse) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", describe_call(prepared), context_.rank,
                                                     refusal_text(*route_, *answers_.buffers)));
  }
  if (route_->next != Next::kRun) return;
  if (context_.observed.on()) observe_route();
  if (shows_routes_) show();
  if (RouteTable::learns_from(*route_)) {
    std::lock_guard lock(table_mutex_);
    table_.began(prepared, router_.terms(), *route_);
  }
  table_.keep(prepared, *route_, answers_);
}

// The cost model is asked again only if the algorithm differs from the last call's.
void CallExecution::observe_route() {
  PreparedCall& prepared = *operation_->call;
  const Observed& observed = context_.observed;
  if (std::exchange(prepared.predicted, route_->algorithm) != route_->algorithm) {
    prepared.predicted_ns = router_.predicted_ns(prepared, route_->algorithm);
  }
  observed.observer->routed(observed.communicator, operation_->start.sequence,
                            observed_call(prepared, context_.world(), route_->algorithm),
                            {static_cast<uint8_t>(route_->reason), reason_text(route_->reason)},
                            static_cast<uint8_t>(route_->medium()), prepared.predicted_ns);
}

// Logs the route for calls of about this size, where it differs from the last one. A trial is no choice yet:
// what is chosen after it is logged again.
void CallExecution::show() {
  const PreparedCall& call = *operation_->call;
  const std::pair key{call.collective, static_cast<int>(std::bit_width(call.bytes))};
  if (route_->reason == RouteReason::kTrial) {
    shown_.erase(key);
    return;
  }
  const auto [shown, first] = shown_.try_emplace(key, route_->algorithm);
  if (!first && std::exchange(shown->second, route_->algorithm) == route_->algorithm) return;
  log_.info(router_.describe(call, *route_));
}

// kTryPull is a second exchange of the same call, after the trial read: its result is a card, too.
bool CallExecution::exchange_cards() {
  if (!cards_) cards_.emplace(context_, plans_.gather(Algorithm::kOneShot), island_);
  if (!cards_->run().ready()) return false;
  if (operation_->packing) pack();  // the others may read it as soon as they have heard from this rank
  const CheckedCall& call = *operation_->call;
  if (route_->next == Next::kTryPull) {
    cards_->start_trial(call, operation_->start);
  } else {
    cards_->start(call, operation_->start);
  }
  running_ = &cards_->run();
  return true;
}

// Exchanges the times of the tried calls: by posts in an island, else around the ring.
bool CallExecution::exchange_times() {
  if (!times_) {
    times_.emplace(context_, [this](const CheckedCall& call) -> std::unique_ptr<Run> {
      if (!context_.topology.one_island()) return make_link_run(call, plans_.gather(Algorithm::kRing));
      return std::make_unique<BoardRun>(call, plans_.gather(Algorithm::kOneShot), island_);
    });
  }
  if (!times_->run().ready()) return false;
  times_->own() = record_;
  times_->start(operation_->start);
  running_ = &times_->run();
  return true;
}

// An exchange has brought its answer: the route is decided anew with it. An exchange always gives one, so a
// call makes each of the three once at most.
void CallExecution::end_exchange() {
  stop();
  if (route_->next == Next::kExchangeTimes) {
    learn_times();
  } else if (route_->next == Next::kExchangeCards) {
    answers_.buffers = cards_->facts(*operation_->call);
  } else {
    learn_pull();
  }
  RONDO_CHECK(answers_.has(route_->next), "an exchange gives an answer");
  decide();
}

// All ranks learn from the same records, so all tables change alike.
void CallExecution::learn_times() {
  std::vector<std::string> choices;
  {
    std::lock_guard lock(table_mutex_);
    choices = table_.learn_times(times_->records(), router_.clocks());
  }
  record_ = {};
  if (shows_routes_) {
    for (const std::string& choice : choices) log_.info(choice);
  }
  answers_.times = true;
}

// Whether single copy works between these buffers. If one rank cannot read, no call uses it any more unless it
// asks for it, and rank 0 logs that.
void CallExecution::learn_pull() {
  const PreparedCall& prepared = *operation_->call;
  const bool pulled = cards_->pulled(prepared);
  answers_.pulled = pulled;
  bool refused = false;
  {
    std::lock_guard lock(table_mutex_);
    refused = table_.tried_pull(prepared, pulled);
  }
  if (context_.rank == 0 && refused) {
    log_.warn(
        fmt::format("{}: {} may not read the memory of the other ranks; no call pulls any "
                    "more, unless it asks for that",
                    describe_call(prepared), context_.name(cards_->unreadable_by())));
  }
}

// Warns once if the ranks reduce by different ops in a call that allows it. That is a fault of the program
// which other MPIs do not notice.
void CallExecution::look_at_ops() {
  const Run::OtherOp other = running_->other_op();
  if (other.peer < 0) return;
  other_ops_ = true;
  log_.warn(fmt::format(
      "{} on rank {}, and by {} on {}: each rank folds by its own op, and results may be wrong; said once a "
      "communicator (RONDO_MPI_STRICT=1: an error)",
      describe_call(*operation_->call), context_.rank, op_name(other.op), context_.name(other.peer)));
}

// Copies the tensors of the operation together, once: before an exchange of cards, after which others may read
// the memory, else before the run.
void CallExecution::pack() {
  if (!std::exchange(packed_, true)) operation_->packing->pack();
}

// Makes the run of the decided algorithm for this kind of call. It is kept for the next call of the kind. The
// run before is freed first: both together could need twice the memory.
void CallExecution::prepare_run() {
  PreparedCall& prepared = *operation_->call;
  prepared.run.reset();  // its memory, before the next one's
  std::shared_ptr<const Plan> plan = plans_.get(prepared, route_->algorithm);
  if (plan->scratch_slots > 0) {
    if (const auto other = has_scratch_.lock()) other->run.reset();
    has_scratch_ = operation_->call;
  }
  prepared.run = make_run(std::move(plan));
  prepared.run_algorithm = route_->algorithm;
}

std::unique_ptr<Run> CallExecution::make_run(std::shared_ptr<const Plan> plan) {
  const CheckedCall& call = *operation_->call;
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

// Between few ranks of an island by posts, so that only memory is made which every call there needs; else over
// the links to both ring neighbors.
std::unique_ptr<Run> CallExecution::make_opening_run(const CheckedCall& call) {
  if (context_.topology.one_island() && context_.world() <= IslandMemory::kFewRanks) {
    return std::make_unique<BoardRun>(call, plans_.get(call, Algorithm::kOneShot), island_);
  }
  return make_link_run(call, std::make_shared<const Plan>(opening_plan(context_.rank, context_.world())));
}

std::unique_ptr<Run> CallExecution::make_link_run(const CheckedCall& call, std::shared_ptr<const Plan> plan) {
  return std::make_unique<LinkRun>(call, std::move(plan), context_, links_);
}

// RONDO_CHECK=finite. The other ranks make this call, too, so it cannot just be refused here: the communicator
// fails on all of them.
void CallExecution::check_input() const {
  const CheckedCall& call = *operation_->call;
  const std::byte* input = operation_->start.buffers.input;
  const bool from_root = facts_of(call.collective).input.rooted;
  if (input == nullptr || call.uneven || call.user_bytes > 0 || (from_root && call.root != context_.rank)) return;
  const uint64_t count = buffer_bytes(call, context_.world()).input / dtype_bytes(call.dtype);
  const auto index = first_not_finite(input, count, call.dtype);
  if (!index) return;
  throw Exception(context_.failure.located(
      {ErrorCode::kNotFinite,
       fmt::format("{} on rank {}: element {} of the input of {} is NaN or infinite (RONDO_CHECK=finite)",
                   describe_call(call), context_.rank, *index, context_.name(context_.rank)),
       {context_.rank}}));
}

// Whether the call's results are equal on all ranks, so that digests can be compared. Not for uneven calls,
// whose blocks may lie apart.
bool CallExecution::has_digest() const {
  const CheckedCall& call = *operation_->call;
  const bool equal = call.collective == Collective::kAllReduce || call.collective == Collective::kAllGather ||
                     call.collective == Collective::kBroadcast;
  return checks_digest_ && equal && !call.uneven && call.count > 0 && context_.world() > 1;
}

// The call's own run has ended. Its note is kept: an element that is not finite is reported after the digests.
void CallExecution::begin_digest() {
  note_ = running_->not_finite();
  stop();
  digesting_ = true;
  if (!digest_) digest_.emplace(context_, plans_.gather(Algorithm::kRing), links_);
  const CheckedCall& call = *operation_->call;
  const size_t element_bytes = call.element_bytes();
  digest_->begin(
      operation_->start.buffers.output != nullptr ? operation_->start.buffers.output : operation_->start.buffers.input,
      buffer_bytes(call, context_.world()).output / element_bytes, element_bytes);
}

// False: the links of the exchange are not there yet.
bool CallExecution::go_on_digest() {
  if (!digest_->run().ready()) return false;
  digest_->start(operation_->start);
  running_ = &digest_->run();
  return true;
}

// True: the results are equal. False: another exchange narrows the difference down. Throws when the element is
// found.
bool CallExecution::end_digest() {
  stop();
  const DigestExchange::Verdict verdict = digest_->look();
  if (verdict != DigestExchange::Verdict::kDiffers) return verdict == DigestExchange::Verdict::kEqual;
  std::string who;
  for (const int rank : digest_->ranks()) who += (who.empty() ? "" : ", ") + context_.name(rank);
  throw Exception({ErrorCode::kCorrupt,
                   fmt::format("the result of {} differs between the ranks from element {} on: that of {} is not that "
                               "of the others (RONDO_CHECK=digest)",
                               describe_call(*operation_->call), digest_->index(), who),
                   digest_->ranks()});
}

// The upper bits count stages, the lower 40 slices: a new stage makes the number larger though its run counts
// from 0.
uint64_t CallExecution::moved() { return (stages_ << 40) + (running_ != nullptr ? 1 + running_->moved() : 0); }

// The note is the same on all ranks, so all of them end the call alike, and the communicator goes on.
std::optional<Error> CallExecution::not_finite_of_wire() {
  WireNote note = digesting_ ? note_ : WireNote{};
  if (running_ != nullptr) note = running_->not_finite();
  if (operation_->start.buffers.wire.allow_not_finite || !note.found()) return std::nullopt;
  const char* what = note.kind == WireNote::Kind::kNan        ? "is NaN"
                     : note.kind == WireNote::Kind::kInfinity ? "is infinite"
                                                              : "is too large for the wire format";
  return context_.failure.located(
      {ErrorCode::kNotFinite,
       fmt::format("{} on rank {}: element {} {} on {}; the result is not finite there. Scale or clip the "
                   "input, or ask for allow_not_finite",
                   describe_call(*operation_->call), context_.rank, note.index, what, context_.name(note.rank)),
       {note.rank}});
}

// The time of a call that had waited behind another says nothing about its algorithm: an empty record takes its
// place, so that all ranks have equally many.
void CallExecution::end() {
  stop();
  if (route_ && route_->timed && done_) {
    const bool counts = !operation_->waited_behind;
    record_[table_.tuner().pending() - 1] = counts ? TimedCall{began_ns_, Observer::now()} : TimedCall{};
  }
  route_.reset();
  answers_ = {};
  packed_ = done_ = digesting_ = false;
}

// Gives links and shared memory back, and the exchanges, whose runs refer to these. By destroy(): nothing runs
// any more.
void CallExecution::close() {
  links_.close();
  cards_.reset();
  times_.reset();
  digest_.reset();
  island_.release();
}

Route CallExecution::route_of(const PreparedCall& call, bool registered) const {
  Answers answers;
  answers.times = true;
  answers.buffers = BufferFacts{registered ? -1 : 0, true};
  std::lock_guard lock(table_mutex_);
  return router_.decide(call, table_, answers);
}

}  // namespace rondo
