#include "ring/engine/communicator_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <new>
#include <utility>

#include "ring/base/caught.h"
#include "ring/engine/communicator_status.h"
#include "ring/engine/device/device_side.h"
#include "ring/engine/observe/metrics_output.h"

namespace rondo {
namespace {

// One step of leaving. A step that has no memory is left out, and the next ones are taken all the same:
// whatever stays open would call an object that is gone.
template <typename Step>
void attempt(const Step& step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
  }
}

WaitPolicy patience_for(const Config& config, const Fabric& fabric) {
  const Place& place = fabric.place();
  const bool crowded = rondo::crowded(fabric.topology(), place.rank, place.local_world);
  return {std::chrono::microseconds(config.spin_us), crowded, place.local_rank};
}

// The members' entries of a list by world rank, numbered anew from 0 in the order of their first appearance; -1
// stays.
std::vector<int> renumbered(const std::vector<int>& by_rank, const std::vector<int>& members) {
  std::vector<int> numbers;
  std::map<int, int> seen;
  for (const int member : members) {
    const int number = by_rank[static_cast<size_t>(member)];
    numbers.push_back(number < 0 ? -1 : seen.emplace(number, static_cast<int>(seen.size())).first->second);
  }
  return numbers;
}

Topology topology_of(const Fabric& fabric, const std::vector<int>& members) {
  const Topology& all = fabric.topology();
  Topology topology;
  topology.host = renumbered(all.host, members);
  if (!all.island.empty()) topology.island = renumbered(all.island, members);
  if (all.cores.empty()) return topology;
  for (const int member : members) topology.cores.push_back(all.cores[static_cast<size_t>(member)]);
  return topology;
}

std::shared_ptr<CommunicatorContext> make_context(CommunicatorState::Options& options) {
  auto context = std::make_shared<CommunicatorContext>(options.mark ? *options.mark : ForkMark());
  context->fabric = std::move(options.fabric);
  context->id = options.id;
  context->epoch = options.epoch;
  context->members = std::move(options.members);
  context->log.of_world(context->world());
  context->rank = context->group_rank(context->fabric->place().rank);
  context->topology = topology_of(*context->fabric, context->members);
  context->config = std::move(options.config);
  context->observed.observer = std::move(options.observer);
  context->observed_ranks = std::move(options.observed_ranks);
  // The observer knows ranks by their numbers at its start, which a fabric made since does not use.
  std::vector<int> observed = context->members;
  if (!context->observed_ranks.empty()) {
    for (int& member : observed) member = context->observed_ranks[static_cast<size_t>(member)];
  }
  context->observed.communicator = context->observed.observer->communicator(context->id, observed);
  return context;
}

// Flows get the worker's own reference, which keeps the object but not its thread (Worker::make).
template <typename MadeFlow>
std::shared_ptr<MadeFlow> make_flow(const std::shared_ptr<CommunicatorContext>& context, Worker& worker) {
  auto bell = std::make_shared<Doorbell>(context->fabric->sleepers());
  return std::make_shared<MadeFlow>(context, std::move(bell), worker.shared_from_this(),  // which keeps no thread
                                    patience_for(context->config, *context->fabric));
}

}  // namespace

WaitPolicy CommunicatorState::worker_policy(const Config& config, const Fabric& fabric) {
  WaitPolicy policy = patience_for(config, fabric);
  policy.home = -1;  // the thread that makes the calls is there
  return policy;
}

// The last step opens the communicator in the fabric: events may come before this returns, and find all members
// made.
CommunicatorState::CommunicatorState(Options options)
    : context_(make_context(options)),
      worker_(std::move(options.worker)),
      signal_abort_{ErrorCode::kAborted,
                    fmt::format("rank {} aborted the group in a signal handler", context_->rank),
                    {context_->rank},
                    {context_->world_rank(context_->rank)},
                    {context_->pid}},
      allocations_(options.allocations
                       ? std::move(options.allocations)
                       : std::make_shared<Allocations>(context_->fabric->shared_memory(), context_->rank,
                                                       std::move(options.memory_before))),
      lineage_(options.lineage ? std::move(options.lineage) : std::make_shared<Lineage>()),
      calls_(*this, *context_, make_flow<Collectives>(context_, *worker_)),
      message_calls_(*this, *context_, make_flow<Messages>(context_, *worker_)) {
  worker_->add_inbox(message_calls_.flow());
  context_->fabric->open(context_->id, context_->members, this, calls_.flow()->bell(), message_calls_.flow()->bell());
}

CommunicatorState::~CommunicatorState() {
  try {
    destroy();
  } catch (const std::exception&) {
    // Leaving is all that is left to do; the others find out by the end of the connections.
  }
}

Clock::time_point CommunicatorState::deadline(std::chrono::milliseconds timeout) const {
  return deadline_after(worker_->clock().look(Clock::now()), context_->limit_of(timeout));
}

// If the system has no thread to give, the other ranks have made the call, too, so the communicator fails.
void CommunicatorState::ready_worker() {
  context_->check_usable();
  try {
    worker_->start();
  } catch (...) {
    context_->fail(caught());
    context_->check_usable();
  }
}

// What this rank does at that call, for the question of another rank. A rank with messages under way beside may
// still end what the other waits for, so it counts as having several threads.
CallState CommunicatorState::state_at(uint64_t sequence) const {
  CallState state = context_->log.state(sequence);
  state.threads |= message_calls_.flow()->in_background();
  state.p2p_moved = message_calls_.flow()->moved_bytes();
  return state;
}

// A member asks, which waits in this communicator. If this rank is in shrink() of the communicator that this
// one was made of, and is not in the call, it fails this one: the member would wait here for ever, while
// shrink() waits for the member.
CallState CommunicatorState::call_state(uint64_t sequence) {
  CallState state = state_at(sequence);
  if (!state.takes_part(sequence) && context_->failure.get() == nullptr && lineage_->ancestor_shrinks())
    end_for_shrink();
  return state;
}

void CommunicatorState::end_for_shrink() const {
  const int world_rank = context_->world_rank(rank());
  context_->fabric->abort(context_->id,
                          {ErrorCode::kAborted,
                           context_->name(rank()) + " has gone to shrink() of the communicator that this one was made "
                                                    "of, and makes no call here meanwhile: go there, too",
                           {world_rank}});
}

// After a failure nothing is waited for, though the log has a call that has not ended.
std::string CommunicatorState::waits_in() {
  return context_->failure.get() == nullptr ? context_->log.waits_in() : std::string();
}

std::string CommunicatorState::status_json(const AskWhom& whom) {
  CommunicatorStatus status;
  status.id = context_->id;
  status.epoch = context_->epoch;
  status.rank = rank();
  status.size = size();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && context_->topology.share_memory(rank(), peer)) ++status.in_shared_memory;
  }
  status.destroyed = destroyed_.load();
  if (const Error* failure = context_->failure.get()) status.failure = *failure;
  context_->log.describe(status);
  status.call = state_at(status.sequence);
  status.messages = state_at(kMessagesSequence);
  status.message_bytes = status.messages.p2p_moved;
  status.waits = whom(status.call.finished ? kMessagesSequence : status.sequence, status.messages);
  return rondo::status_json(status);
}

// Starts to count at the first question, also without RONDO_METRICS.
std::string CommunicatorState::metrics_text() {
  Observer& observer = *context_->observed.observer;
  return prometheus_text(observer.start_metrics(), observer.about().rank);
}

// Made under the lock, then published by device_, which calls on host memory read without it.
DeviceSide& CommunicatorState::device() {
  context_->check_usable();
  std::lock_guard lock(device_mutex_);
  if (!device_owner_) {
    device_owner_ = std::make_unique<DeviceSide>(*this);
    device_.store(device_owner_.get(), std::memory_order_release);
  }
  return *device_owner_;
}

void CommunicatorState::check_on_host(const Call& call) const {
  if (DeviceSide* const device = attached()) device->check_host(call);
}

void CommunicatorState::check_on_host(const char* call, const void* data) const {
  if (DeviceSide* const device = attached()) device->check_host(call, data);
}

const std::shared_ptr<Allocations>& CommunicatorState::allocations() const {
  if (!context_->mark.same_process()) context_->refuse_use();
  return allocations_;
}

// The device side is asked first: the list of host memory throws for what it does not know.
void CommunicatorState::deallocate(void* data) {
  DeviceSide* const device = attached();
  if (data == nullptr || device == nullptr || !device->deallocate(data)) allocations()->deallocate(data);
}

// By the fabric's I/O thread, or by abort(). Keeps the reason, then wakes both flows, whose next pass ends
// everything that is pending. The error's world ranks become ranks of this communicator; others are left out.
void CommunicatorState::on_failure(const Error& error, Stage stage) {
  Error own{error.code, error.message, {}};
  std::vector<int> ranks;
  for (const int world_rank : error.ranks) {
    if (const int r = context_->group_rank(world_rank); r >= 0) ranks.push_back(r);
  }
  own.ranks = std::move(ranks);
  if (context_->failure.get() == nullptr) failed_in_.store(stage);
  context_->failure.set(own);
  if (context_->observed.on()) context_->observed.observer->failed(context_->observed.communicator, own);
  calls_.flow()->notify();
  message_calls_.flow()->notify();
}

// A peer has said goodbye. Collectives after its last one cannot complete; receives from it fail when what it
// had sent has come.
void CommunicatorState::on_peer_left(int peer, uint64_t last_sequence) {
  const int left = context_->group_rank(peer);
  calls_.flow()->peer_left(left, last_sequence);
  message_calls_.flow()->peer_left(left);
}

void CommunicatorState::abort(const std::string& reason) {
  if (!context_->mark.same_process() || destroyed_.load()) return;
  abort_with({ErrorCode::kAborted,
              fmt::format("rank {} aborted the group{}{}", rank(), reason.empty() ? "" : ": ", reason),
              {context_->world_rank(rank())}});
}

// The fabric tells the others, and this rank later by its own thread. Calls after this one must fail at once,
// so this rank is failed here, too.
void CommunicatorState::abort_with(const Error& error) {
  context_->fabric->abort(context_->id, error);
  on_failure(error, Stage::kUse);
}

// Only what a signal handler may do: no lock, no allocation. The error was made with the communicator. errno is
// the interrupted thread's, so it is put back.
void CommunicatorState::abort_from_signal() noexcept {
  if (!context_->mark.same_process() || destroyed_.load()) return;
  context_->failure.set_constant(signal_abort_);
  const int before = errno;
  const uint64_t one = 1;
  static_cast<void>(!::write(context_->fabric->wake_event(), &one, sizeof one));
  errno = before;
}

// The second half of abort_from_signal(), on the fabric's thread.
void CommunicatorState::on_wake() {
  if (context_->failure.get() != &signal_abort_ || signal_abort_told_.exchange(true)) return;
  Error error = signal_abort_;
  error.ranks = {context_->world_rank(rank())};
  abort_with(error);
}

// Making this error needs no memory: its text is short, and it names no rank.
void CommunicatorState::on_broken() noexcept { context_->failure.set({ErrorCode::kSystem, "out of memory", {}}); }

class CommunicatorState::LeavingTurn {
 public:
  enum class Busy : uint8_t { kWait, kGiveUp };
  // Not taken where this thread has the turn: then the program's function calls, in a wait of destroy().
  LeavingTurn(CommunicatorState& group, Busy busy) : group_(group) {
    const auto own = std::this_thread::get_id();
    std::unique_lock lock(group_.leaver_mutex_);
    const auto free = [&] { return group_.leaver_ == std::thread::id(); };
    if (busy == Busy::kWait && group_.leaver_ != own) group_.leaver_gone_.wait(lock, free);
    taken_ = free();
    if (taken_) group_.leaver_ = own;
  }
  LeavingTurn(const LeavingTurn&) = delete;
  ~LeavingTurn() {
    if (!taken_) return;
    std::lock_guard lock(group_.leaver_mutex_);
    group_.leaver_ = {};
    group_.leaver_gone_.notify_all();
  }
  bool taken() const { return taken_; }

 private:
  CommunicatorState& group_;
  bool taken_ = false;
};

// In this thread's turn.
void CommunicatorState::begin_to_leave() {
  if (destroyed_.exchange(true)) return;
  attempt([&] { on_wake(); });  // an abort that the others have not heard of goes before the goodbye
  leave_by_ = Clock::now() + std::chrono::milliseconds(context_->config.destroy_timeout_ms);
  // A send in a stream has returned before it has gone, and a stream passes a call before its operation has ended.
  if (DeviceSide* const device = attached()) attempt([&] { device->wait_for_streams(leave_by_); });
  last_finished_ = context_->log.last_finished();
  context_->failure.close(rank());
  attempt([&] { calls_.flow()->notify(); });
}

// In this thread's turn, after what was sent has gone.
void CommunicatorState::end_leaving() {
  attempt([&] { context_->fabric->close(context_->id, last_finished_, leave_by_); });
  attempt([&] {
    calls_.flow()->shut_down();
    calls_.lists().release();
  });
  attempt([&] { message_calls_.flow()->shut_down(); });
  if (DeviceSide* const device = attached()) attempt([&] { device->close(leave_by_); });
  context_->failure.end(rank());
  if (!in_end_function()) worker_->finish_calls();
  left_ = true;
}

// An opening that is still under way is waited for: if this rank left now, it would fail for the others. Not in
// an end function, whose thread would have to move it.
void CommunicatorState::destroy() {
  if (!context_->mark.same_process()) return;  // the parent's; the child must not speak for it
  const LeavingTurn turn(*this, LeavingTurn::Busy::kWait);
  if (!turn.taken() || left_) return;
  if (calls_.opening() && !in_end_function()) {
    const auto limit = std::chrono::milliseconds(context_->config.destroy_timeout_ms);
    attempt([&] { calls_.flow()->wait(*calls_.opening(), Clock::now() + limit); });
  }
  begin_to_leave();
  attempt([&] { message_calls_.flow()->finish(leave_by_); });
  end_leaving();
}

// destroy() in steps that do not wait: false until nothing is left to wait for.
bool CommunicatorState::try_destroy() {
  if (!context_->mark.same_process()) return true;
  const LeavingTurn turn(*this, LeavingTurn::Busy::kGiveUp);
  if (!turn.taken()) return false;  // the thread that leaves may wait for the end function that is here
  if (left_) return true;
  if (calls_.opening() && !calls_.opening()->done()) return false;
  begin_to_leave();
  bool alone = false;
  attempt([&] {
    alone = message_calls_.flow()->finish(Clock::now()) && context_->fabric->leave(context_->id, last_finished_);
  });
  if (alone) end_leaving();
  return alone;
}

}  // namespace rondo
