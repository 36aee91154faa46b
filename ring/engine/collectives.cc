#include "ring/engine/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/base/hash.h"
#include "ring/engine/cut.h"

namespace rondo {
namespace {

// A slice of another operation arrived: the members are asked what they called, so that the error can show both calls.
// If that brings nothing for so long, the link's own words must do.
constexpr std::chrono::milliseconds kMismatchPatience{500};

// A result of so many bytes is not in cache any more when its first part is read; measured: staged all_reduce of 64
// MiB, world 2, on one AMD EPYC machine with 32 MiB of last-level cache (2026-11-21).
constexpr uint64_t kStreamBytes = 16 * 1024 * 1024;

// How long a rank's I/O thread may take to say what its rank does.
constexpr std::chrono::milliseconds kAnswerPatience{100};

uint64_t fingerprint_of(const GroupContext& context, uint64_t sequence, const CheckedCall& call, const Cut& cut) {
  // Where each pair knows only its own counts, they are compared slice by slice.
  const bool shared_count = !call.uneven || call.shared_counts != 0;
  return Hash64()
      .add(context.id)
      .add(sequence)
      .add(static_cast<uint64_t>(call.collective) | (static_cast<uint64_t>(call.uneven) << 8) |
           (static_cast<uint64_t>(call.dtype) << 16) | (static_cast<uint64_t>(call.op) << 24) |
           (static_cast<uint64_t>(call.algorithm) << 32))
      .add(static_cast<uint64_t>(call.root + 1))
      .add(call.shared_counts)
      .add(shared_count && !call.uneven ? call.count : 0)
      .add(cut.slice)
      .value();
}

}  // namespace

Collectives::Collectives(std::shared_ptr<GroupContext> context, std::shared_ptr<Doorbell> bell,
                         std::weak_ptr<Pool> pool, Patience patience)
    : Driver(std::move(bell), std::move(pool), patience), context_(std::move(context)) {
  links_.resize(size_t{context_->config.lanes} * context_->members.size());
}

void Collectives::submit(std::shared_ptr<CollectiveOperation> operation) {
  enqueue(std::move(operation), ++last_sequence_);
}

void Collectives::submit_meeting(std::shared_ptr<CollectiveOperation> operation) {
  enqueue(std::move(operation), kMeetingSequence);
}

void Collectives::enqueue(std::shared_ptr<CollectiveOperation> operation, uint64_t sequence) {
  operation->sequence = sequence;
  operation->plan_ = operation->plans.plan;
  operation->meeting_ = operation->plan_ == nullptr;
  const CheckedCall& call = operation->call;
  operation->bound_before_ = operation->plan_ && operation->bound_.is(operation->plan_, call);
  if (!operation->bound_before_) {
    operation->bound_ = {};  // until its lanes are bound
    operation->cut_ = operation->meeting_ ? Cut{} : choose_cut(call, *operation->plan_, context_->config);
  }
  operation->fingerprint_ = fingerprint_of(*context_, operation->sequence, operation->call, operation->cut_);
  operation->started_ = false;
  context_->log.called(operation->sequence, operation->fingerprint_, operation->call);
  added();
  std::lock_guard lock(queue_mutex_);
  queue_.push_back(std::move(operation));
}

void Collectives::peer_left(int peer, uint64_t last_sequence) {
  // One caller at a time (the fabric's thread). The first of those that left after the same call is the culprit: the
  // others may have left because of it.
  if (last_sequence < last_possible_.load()) {
    left_.store(peer);
    last_possible_.store(last_sequence);
  }
  notify();
}

bool Collectives::step(Pass pass) {
  if (const Error* error = context_->failure.get()) return fail_all(*error);
  if (!current_ && !take_next()) return false;
  if (current_->sequence > last_possible_.load()) {
    context_->failure.set(
        {ErrorCode::kPeerLeft,
         fmt::format("{} cannot complete on rank {}: {} has left the group (it destroyed its communicator)",
                     describe_call(current_->call), context_->rank, context_->name(left_.load())),
         {left_.load()}});
    return fail_all(*context_->failure.get());
  }
  try {
    if (!current_->started_) {
      if (!start()) return false;
      run_lanes(pass);
      return true;
    }
    const bool moved = run_lanes(pass);
    if (!moved && current_ && !reported_) report_link_failures();
    return moved;
  } catch (const Exception& e) {
    return refuse(e);
  }
}

// A call over windows cannot begin, or go on after the meeting: on all ranks alike if its arguments are why.
bool Collectives::refuse(const Exception& exception) {
  if (exception.code() == ErrorCode::kInvalid) {
    context_->log.finished(current_->sequence);
    current_->fail(exception.error());
    current_.reset();
    ended();
    return true;
  }
  context_->failure.set(exception.error());
  context_->fabric->abort(context_->id, exception.error());
  return fail_all(exception.error());
}

// False: links are on their way.
bool Collectives::start() {
  if (current_->meeting_) current_->plan_ = windows().meeting_plan();
  if (!take_links()) return false;
  start_lanes();
  return true;
}

bool Collectives::take_next() {
  std::lock_guard lock(queue_mutex_);
  if (queue_.empty()) return false;
  current_ = std::move(queue_.front());
  queue_.pop_front();
  moved_at_ = Clock::time_point{};
  seen_combined_ = 0;
  refused_at_ = {};
  reported_ = false;
  return true;
}

// True once every link of the plan is there.
bool Collectives::take_links() {
  bool complete = true;
  for (uint32_t lane = 0; lane < current_->plan_->lanes.size(); ++lane) {
    for (const int peer : current_->plan_->peers) {
      auto& slot = link(lane, peer);
      if (slot) continue;
      slot = context_->fabric->take_link({context_->id, context_->world_rank(peer), static_cast<int>(lane)},
                                         link_shape(context_->config));
      complete &= slot != nullptr;
    }
  }
  return complete;
}

Binding Collectives::bind() const {
  const CollectiveOperation& operation = *current_;
  const CheckedCall& call = operation.call;
  Binding binding;
  binding.plan = operation.plan_.get();
  binding.blocks = &operation.blocks_;
  binding.cut = operation.cut_;
  binding.combine = {call.dtype, call.op, call.scalar, static_cast<uint32_t>(context_->world())};
  binding.element_bytes = dtype_bytes(call.dtype);
  binding.input = call.input;
  binding.output = call.output;
  binding.sequence = operation.sequence;
  binding.fingerprint = operation.fingerprint_;
  binding.pairwise = call.uneven && call.shared_counts == 0;
  return binding;
}

void Collectives::start_lanes() {
  CollectiveOperation& operation = *current_;
  if (operation.packing) operation.packing->pack();
  if (operation.meeting_) {
    start_lanes(windows().meet(operation.call, operation.sequence, operation.fingerprint_));
  } else {
    if (!operation.bound_before_) operation.blocks_ = lay_out_blocks(operation.call, *operation.plan_, operation.cut_);
    start_lanes(bind());
  }
}

void Collectives::start_lanes(const Binding& binding) {
  CollectiveOperation& operation = *current_;
  operation.started_ = true;
  if (operation.bound_before_) {
    for (LaneRun& lane : operation.lanes_) lane.start_again(binding);
    return;
  }
  operation.lanes_.resize(operation.plan_->lanes.size());
  for (uint32_t lane = 0; lane < operation.lanes_.size(); ++lane) {
    lane_links_.clear();
    for (const int peer : operation.plan_->peers) lane_links_.push_back(link(lane, peer).get());
    operation.lanes_[lane].start(binding, lane, lane_links_);
  }
  const CheckedCall& call = operation.call;
  if (binding.windows == nullptr && !operation.meeting_ && !call.uneven) {
    operation.bound_ = {operation.plan_, call.count, call.scalar, call.dtype, call.op};
  }
}

// All have told where their buffers lie. False: a window or a link is on its way.
bool Collectives::start_body() {
  CollectiveOperation& operation = *current_;
  const Algorithm algorithm = windows().choose(operation.call);
  operation.plan_ = algorithm == Algorithm::kStaged ? operation.plans.staged
                    : algorithm == Algorithm::kPull ? operation.plans.pull
                                                    : operation.plans.registered;
  operation.cut_ = choose_window_cut(operation.call, *operation.plan_, context_->config);
  const WindowBinding* windows_bound = windows().bind(operation.call, *operation.plan_, operation.cut_);
  if (windows_bound == nullptr || !take_links()) return false;
  operation.meeting_ = false;
  operation.blocks_ = lay_out_blocks(operation.call, *operation.plan_, operation.cut_);
  Binding binding = bind();
  binding.windows = windows_bound;
  binding.streams = operation.call.total_bytes(context_->world()) >= kStreamBytes;
  start_lanes(binding);
  return true;
}

Windows& Collectives::windows() {
  if (!windows_) windows_.emplace(context_);
  return *windows_;
}

bool Collectives::run_lanes(Pass pass) {
  const auto landing = pass == Pass::kBeforeSleep ? LaneRun::Landing::kSlotNow : LaneRun::Landing::kWait;
  bool moved = false;
  bool done = true;
  for (LaneRun& lane : current_->lanes_) {
    if (lane.done()) continue;
    moved |= lane.progress(landing);
    done &= lane.done();
  }
  if (!done) return moved;
  // The lanes of the meeting are done, so a pass that finds no body to start comes here again.
  if (current_->meeting_) return start_body() || moved;
  finish_current();
  return true;
}

void Collectives::finish_current() {
  if (current_->packing) current_->packing->unpack();
  context_->log.finished(current_->sequence);
  current_->complete();
  current_.reset();
  ended();
}

// Ends everything that is pending; the links stay until shut_down(), since a pass further up may still hold them.
bool Collectives::fail_all(const Error& error) {
  bool any = false;
  while (current_ || take_next()) {
    current_->fail(error);
    current_.reset();
    ended();
    any = true;
  }
  return any;
}

void Collectives::report_link_failures() {
  for (const LaneRun& lane : current_->lanes_) {
    if (lane.failed_pull() >= 0) return report_failed_pull(lane.failed_pull());
    const int index = lane.failed_link();
    if (index < 0) continue;
    reported_ = true;
    const int peer = current_->plan_->peers[static_cast<size_t>(index)];
    const Error& error = *lane.link_error(index);
    if (error.code == ErrorCode::kMismatch) return refused(peer, error);
    context_->fabric->link_failed(context_->id, context_->world_rank(peer), error);
    return;
  }
}

void Collectives::report_failed_pull(int peer) {
  reported_ = true;
  context_->fabric->link_failed(
      context_->id, context_->world_rank(peer),
      {ErrorCode::kPeerLost,
       fmt::format("{} on rank {}: the memory of {} could not be read (it died, or this system forbids it: "
                   "RONDO_SINGLE_COPY=off does without)",
                   describe_call(current_->call), context_->rank, context_->name(peer)),
       {context_->world_rank(peer)}});
}

// The ranks are in different calls: ask what they are in. If they are in the same, they differ in a count that only the
// two know.
void Collectives::refused(int peer, const Error& error) {
  const CheckedCall& call = current_->call;
  const auto block = static_cast<size_t>(call.collective == Collective::kScatter ? context_->rank : peer);
  refusal_ = error;
  refusal_.ranks = {context_->world_rank(std::min(peer, context_->rank)),
                    context_->world_rank(std::max(peer, context_->rank))};
  refusal_.message =
      call.uneven && block < call.output_blocks.size()
          ? fmt::format("{} on rank {} expects {} elements from rank {}, which sends another number ({})",
                        describe_call(call), context_->rank, call.output_blocks[block].count, peer, error.message)
          : fmt::format("{} on rank {}: {}", describe_call(call), context_->rank, error.message);
  refused_at_ = Clock::now();
  ask_others(refused_at_);
}

void Collectives::tick(Clock::time_point now) {
  if (!current_ || context_->failure.get() != nullptr) return;
  if (refused_at_ != Clock::time_point{} && now - refused_at_ > kMismatchPatience) {
    refused_at_ = {};
    context_->fabric->abort(context_->id, refusal_);
    return;
  }
  check_stall(now);
  time_out(now);
}

void Collectives::check_stall(Clock::time_point now) {
  const std::chrono::milliseconds stall(context_->config.stall_ms);
  const uint64_t combined = slices_combined();
  if (moved_at_ == Clock::time_point{} || combined != seen_combined_) {
    seen_combined_ = combined;
    moved_at_ = now;
    return;
  }
  if (now - moved_at_ < stall || now - asked_at_ < stall) return;
  ask_others(now);
}

void Collectives::ask_others(Clock::time_point now) {
  asked_at_ = now;
  asked_sequence_ = current_->sequence;
  context_->fabric->stalled(context_->id, current_->sequence);
}

uint64_t Collectives::slices_combined() const {
  uint64_t sum = 1;
  if (current_->started_) {
    for (const LaneRun& lane : current_->lanes_) sum += lane.combined();
  }
  return sum;
}

void Collectives::time_out(Clock::time_point now) {
  const CollectiveOperation* late = now >= current_->deadline ? current_.get() : nullptr;
  if (late == nullptr) {
    std::lock_guard lock(queue_mutex_);
    const auto found = std::find_if(queue_.begin(), queue_.end(), [&](const auto& op) { return now >= op->deadline; });
    if (found != queue_.end()) late = found->get();
  }
  if (late == nullptr) return;
  // A deadline shorter than the stall time: nobody has been asked yet.
  if (asked_sequence_ != current_->sequence) {
    ask_others(now);
    return;
  }
  if (now - asked_at_ < kAnswerPatience) return;
  const std::vector<int> absent = context_->fabric->absent(context_->id, current_->sequence);
  std::string who;
  for (const int peer : absent) who += fmt::format("{}{}", who.empty() ? "" : ", ", context_->group_rank(peer));
  Error error{
      ErrorCode::kTimeout,
      fmt::format("{} did not complete on rank {} before its deadline; {}", describe_call(late->call), context_->rank,
                  who.empty() ? "every rank has made the call: one of them is too slow, or the deadline too short"
                              : "these ranks have not made the call: " + who),
      absent};
  context_->fabric->abort(context_->id, error);
}

void Collectives::shut_down() {
  with_lease([this] {
    if (const Error* error = context_->failure.get()) fail_all(*error);
    for (auto& slot : links_) slot.reset();
    windows_.reset();  // a Work may outlive the communicator, and need not keep its staging memory
  });
}

}  // namespace rondo
