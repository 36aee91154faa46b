#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ring/base/log.h"
#include "ring/engine/collective/collective_operation.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/island/island_memory.h"
#include "ring/engine/route/plan_cache.h"
#include "ring/engine/route/route_table.h"
#include "ring/engine/route/router.h"
#include "ring/engine/run/bound_run.h"
#include "ring/engine/run/card_exchange.h"
#include "ring/engine/run/digest_exchange.h"
#include "ring/engine/run/gather.h"

namespace rondo {

// Executes one operation after another: decides its route, makes the exchanges that the decision needs, and
// drives the run that moves its bytes. Collectives owns it, and calls it under the lease.
//
// An operation passes stages. Each one is a Run: exchanges of times, cards or a trial read (three at most),
// then the run of the call itself, then exchanges of digests with RONDO_CHECK=digest. `running_` is the stage
// under way.
class CallExecution {
 public:
  // context and router must outlive it.
  CallExecution(CommunicatorContext& context, const Router& router);

  // Moves everything of the operation that can move now: the same operation up to end(). True if anything
  // moved. Throws Exception where the call cannot go on; kInvalid is thrown on all ranks alike.
  bool advance(CollectiveOperation& operation, Pass pass);
  bool done() const { return done_; }
  // What the operation runs; kAuto before that is decided.
  Algorithm algorithm() const { return route_ ? route_->algorithm : Algorithm::kAuto; }
  // Once it is done: kNotFinite, where an element of the result cannot be said in the call's wire format.
  std::optional<Error> not_finite() {
    return operation_->start.buffers.wire.format == WireFormat::kNone ? std::nullopt : not_finite_of_wire();
  }
  // Grows while it moves, over stages and slices. CallWatch compares it to find a stall.
  uint64_t moved();
  RunFailure failure() { return running_ != nullptr ? running_->failure() : RunFailure{}; }
  // Ends the stage under way: nothing touches the operation's memory from now on. end() must follow.
  void stop() {
    if (running_ != nullptr) std::exchange(running_, nullptr)->end();
  }
  // The operation is done or abandoned. Forgets it, and records its time if its algorithm is being tried.
  void end();
  // The communicator has failed, and no run goes on: takes this rank's buffers out of the others' reach. False:
  // a rank is still in an access to them; ask again.
  bool close_buffers(Clock::time_point now) { return island_.close_buffers(now); }
  // Gives back links and shared memory.
  void close();

  // The run of a communicator's first operation, in which each rank meets others before the first call.
  std::unique_ptr<Run> make_opening_run(const CheckedCall& call);

  // The route that such a call would take now, with all buffers registered or not. Any thread.
  Route route_of(const PreparedCall& call, bool registered) const;

 private:
  // Starts a stage. False: links or windows are missing.
  bool go_on();
  bool start_own_run();
  void decide();
  void go_on_as_kept(const PreparedCall& prepared);
  void show();
  std::optional<Error> not_finite_of_wire();
  void look_at_ops();
  void observe_route();
  bool exchange_cards();
  bool exchange_times();
  void end_exchange();
  void learn_times();
  void learn_pull();
  void pack();
  void prepare_run();
  void check_input() const;
  // RONDO_CHECK=digest: whether this call is compared, and the stages of the comparison.
  bool has_digest() const;
  void begin_digest();
  bool go_on_digest();
  bool end_digest();
  std::unique_ptr<Run> make_run(std::shared_ptr<const Plan> plan);
  std::unique_ptr<Run> make_link_run(const CheckedCall& call, std::shared_ptr<const Plan> plan);

  CommunicatorContext& context_;
  const Router& router_;
  PlanCache plans_;
  LinkTable links_;
  IslandMemory island_;
  std::optional<CardExchange> cards_;        // made at first use
  std::optional<Gather<TimeRecord>> times_;  // likewise
  const bool checks_finite_, checks_digest_;
  std::optional<DigestExchange> digest_;  // made at first use
  // The one prepared call whose run has scratch memory, which may be megabytes: another one's is given back
  // first. Shared with the kept calls.
  std::weak_ptr<PreparedCall> has_scratch_;
  Logger log_;
  const bool shows_routes_;  // in the log
  bool other_ops_ = false;   // the log has said that a rank's op was another
  bool streamed_ = false;    // the kind of stores that the island was set to last

  mutable std::mutex table_mutex_;  // route_of() reads under it, all writes are; the lease's holder reads without
  RouteTable table_;
  TimeRecord record_{};  // of the calls that table_.tuner() has pending

  // The operation under way:
  CollectiveOperation* operation_ = nullptr;  // Collectives keeps it alive up to end()
  std::optional<Route> route_;
  Answers answers_;
  Run* running_ = nullptr;  // nullptr: waits for links or windows
  uint64_t began_ns_ = 0;   // of a call whose ways are tried
  bool packed_ = false;
  bool done_ = false;
  bool digesting_ = false;  // the call itself is over
  WireNote note_;           // then: what it has met
  uint64_t stages_ = 0;     // passed so far, of all operations

  // The algorithm that was logged last, by collective and power of two of bytes.
  std::map<std::pair<Collective, int>, Algorithm> shown_;
};

}  // namespace rondo
