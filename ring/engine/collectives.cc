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

// Smaller operations are over before a helper is awake (some 50 us).
constexpr uint64_t kCrewBytes = 1024 * 1024;

// How long a rank's I/O thread may take to say what its rank does.
constexpr std::chrono::milliseconds kAnswerPatience{100};

// Everything that ranks must agree on in a call, but for its place among the others.
uint64_t kind_of(const GroupContext& context, const CheckedCall& call, const Cut& cut) {
  // Where each pair knows only its own counts, they are compared slice by slice.
  const bool shared_count = !call.uneven || call.shared_counts != 0;
  return Hash64()
      .add(context.id)
      .add(static_cast<uint64_t>(call.collective) | (static_cast<uint64_t>(call.uneven) << 8) |
           (static_cast<uint64_t>(call.dtype) << 16) | (static_cast<uint64_t>(call.op) << 24) |
           (static_cast<uint64_t>(call.algorithm) << 32))
      .add(static_cast<uint64_t>(call.root + 1))
      .add(call.shared_counts)
      .add(call.part)
      .add(shared_count && !call.uneven ? call.count : 0)
      .add(cut.slice)
      .value();
}

// Of calls that begin at once and are over soon (begin_again): the clock is read when they are not.
constexpr Clock::time_point kNoDeadlineYet{};

}  // namespace

Collectives::Collectives(std::shared_ptr<GroupContext> context, std::shared_ptr<Doorbell> bell,
                         std::weak_ptr<Pool> pool, Patience patience, uint32_t lane_threads)
    : Driver(std::move(bell), std::move(pool), patience, {context, &context->mark}),
      context_(std::move(context)),
      lane_threads_(std::min(lane_threads, context_->config.lanes - 1)) {
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
  operation->phase_ = Phase::kNew;
  const CheckedCall& call = operation->call;
  operation->bound_before_ = operation->bound_.is(operation->plans, call);
  if (!operation->bound_before_) {
    operation->bound_ = {};  // until it is bound
    if (!operation->in_island()) {
      operation->cut_ = choose_cut(call, *operation->plans.plan, context_->config, context_->topology);
    }
  }
  // Inside an island the cut follows from the call, once its plan is settled.
  operation->kind_ = kind_of(*context_, call, operation->in_island() ? Cut{} : operation->cut_);
  operation->fingerprint_ = fingerprint_of(operation->kind_, sequence);
  operation->counted_ = true;
  context_->log.called(sequence, operation->kind_, call);
  added();
  std::lock_guard lock(queue_mutex_);
  queue_.push_back(std::move(operation));
}

bool Collectives::begin_again(CollectiveOperation& operation) {
  if (!hold()) return false;
  operation.reuse();
  operation.deadline = kNoDeadlineYet;
  operation.sequence = ++last_sequence_;
  operation.fingerprint_ = fingerprint_of(operation.kind_, operation.sequence);
  operation.phase_ = Phase::kNew;
  operation.bound_before_ = operation.bound_.plan != nullptr;
  operation.counted_ = false;
  context_->log.called(operation.sequence, operation.kind_, operation.call);
  begin(operation);
  return true;
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
  if (current_ == nullptr && !take_next()) return false;
  if (current_->sequence > last_possible_.load()) {
    context_->failure.set(
        {ErrorCode::kPeerLeft,
         fmt::format("{} cannot complete on rank {}: {} has left the group (it destroyed its communicator)",
                     describe_call(current_->call), context_->rank, context_->name(left_.load())),
         {left_.load()}});
    return fail_all(*context_->failure.get());
  }
  try {
    const bool started = current_->phase_ == Phase::kNew;
    if (started && !go_on()) return false;
    const bool moved = run(pass) || started;
    if (!moved && current_ != nullptr && !reported_) without_crew([this] { report_failures(); });
    return moved;
  } catch (const Exception& e) {
    return refuse(e);
  }
}

// A call over windows cannot begin, or go on after the meeting: on all ranks alike if its arguments are why.
bool Collectives::refuse(const Exception& exception) {
  if (exception.code() == ErrorCode::kInvalid) {
    context_->log.finished(current_->sequence);
    end_current(&exception.error());
    return true;
  }
  context_->fail(exception.error());
  return fail_all(*context_->failure.get());
}

bool Collectives::take_next() {
  std::lock_guard lock(queue_mutex_);
  if (queue_.empty()) return false;
  owner_ = std::move(queue_.front());
  queue_.pop_front();
  begin(*owner_);
  return true;
}

void Collectives::begin(CollectiveOperation& operation) {
  current_ = &operation;
  operation.met_ = false;
  moved_at_ = Clock::time_point{};
  seen_combined_ = 0;
  refused_at_ = {};
  reported_ = false;
}

// Completes or fails it. From then on whoever keeps the operation may use it again: nothing here reads it any more.
void Collectives::end_current(const Error* error) {
  if (crew_) crew_->end();
  CollectiveOperation& operation = *std::exchange(current_, nullptr);
  const bool counted = operation.counted_;
  if (error != nullptr) {
    operation.bound_ = {};
    operation.fail(*error);
  } else {
    operation.complete();
  }
  owner_.reset();
  if (counted) ended();
}

// Begins what comes next in the current operation. False: links or windows are on their way.
bool Collectives::go_on() {
  const CollectiveOperation& operation = *current_;
  if (operation.phase_ == Phase::kNew && operation.in_island() && !windows().introduced()) return introduce();
  if (operation.phase_ == Phase::kIntroduction && !windows().attach()) return false;
  if (!operation.meets() || operation.met_) return start_body();
  const bool known_plain = operation.plans.links && windows().known_plain(operation.call);
  return known_plain ? start_body() : meet();
}

bool Collectives::introduce() {
  CollectiveOperation& operation = *current_;
  const std::shared_ptr<const Plan>& plan = windows().introduction_plan();
  if (!take_links(*plan)) return false;
  operation.bound_before_ = false;
  start_lanes(windows().introduce(operation.sequence, operation.fingerprint_), plan);
  operation.phase_ = Phase::kIntroduction;
  return true;
}

bool Collectives::meet() {
  CollectiveOperation& operation = *current_;
  if (operation.packing) operation.packing->pack();  // the others may read it as soon as they have heard from this rank
  windows().meet(operation.call, operation.fingerprint_);
  operation.phase_ = Phase::kMeeting;
  operation.met_ = true;
  return true;
}

bool Collectives::start_body() {
  CollectiveOperation& operation = *current_;
  if (operation.packing && !operation.met_) operation.packing->pack();
  const Plans::Set& plans = operation.plans;
  const bool started = operation.met_         ? start_met()
                       : operation.one_shot() ? start_one_shot(plans.plan)
                                              : start_links(plans.plan ? plans.plan : plans.links);
  if (!started) return false;
  if (operation.meets() && !operation.met_) windows().did_not_ask(operation.call);
  operation.phase_ = Phase::kBody;
  const CheckedCall& call = operation.call;
  if (operation.bound_before_ || call.uneven) return true;
  operation.bound_ = {plans.first(), call.count, call.scalar,
                      call.dtype,    call.op,    operation.runs_over_windows() ? windows().bound() : 0};
  return true;
}

bool Collectives::start_one_shot(const std::shared_ptr<const Plan>& plan) {
  CollectiveOperation& operation = *current_;
  operation.bound_before_ = operation.bound_before_ && operation.runs_one_shot();
  if (operation.bound_before_) {
    operation.one_shot_.start_again(operation.call.input, operation.call.output, operation.fingerprint_);
    return true;
  }
  operation.plan_ = plan;
  operation.cut_ = OneShotRun::cut(*plan, operation.call.count, dtype_bytes(operation.call.dtype));
  operation.blocks_ = lay_out_blocks(operation.call, *operation.plan_, operation.cut_);
  operation.one_shot_.start(bind(*operation.plan_), windows().noticeboard());
  return true;
}

bool Collectives::start_links(const std::shared_ptr<const Plan>& plan) {
  CollectiveOperation& operation = *current_;
  operation.bound_before_ = operation.bound_before_ && operation.plan_ == plan;
  if (!operation.bound_before_) {
    if (!take_links(*plan)) return false;
    if (operation.meets()) operation.cut_ = choose_cut(operation.call, *plan, context_->config, context_->topology);
    operation.blocks_ = lay_out_blocks(operation.call, *plan, operation.cut_);
  }
  start_lanes(bind(*plan), plan);
  call_crew();
  return true;
}

// Threads that help with the lanes of an operation over links.
void Collectives::call_crew() {
  if (lane_threads_ == 0 || current_->call.total_bytes(context_->world()) < kCrewBytes) return;
  if (!crew_) crew_.emplace(context_->config.lanes, lane_threads_, patience(), shared_bell());
  crew_->begin(current_->lanes_);
}

// All have told where their buffers lie.
bool Collectives::start_met() {
  CollectiveOperation& operation = *current_;
  // As the last time, and nothing else was bound meanwhile: all ranks see that alike.
  const bool as_before = operation.bound_before_ && operation.bound_.windows != 0 &&
                         operation.bound_.windows == windows().bound() && windows().take_bound();
  std::shared_ptr<const Plan> plan = operation.plan_;
  if (!as_before) {
    const Algorithm algorithm = windows().choose(operation.call);
    if (algorithm == Algorithm::kOneShot) return start_one_shot(operation.plans.one_shot);
    if (!over_windows(algorithm)) return start_links(operation.plans.links);
    plan = algorithm == Algorithm::kStaged ? operation.plans.staged
           : algorithm == Algorithm::kPull ? operation.plans.pull
                                           : operation.plans.registered;
    operation.cut_ = choose_window_cut(operation.call, *plan, context_->config);
    operation.windows_ = windows().bind(operation.call, *plan, operation.cut_);
    if (operation.windows_ == nullptr) return false;
    operation.blocks_ = lay_out_blocks(operation.call, *plan, operation.cut_);
  }
  operation.bound_before_ = as_before;
  Binding binding = bind(*plan);
  binding.windows = operation.windows_;
  binding.streams = operation.call.total_bytes(context_->world()) >= kStreamBytes;
  start_lanes(binding, std::move(plan));
  return true;
}

void Collectives::start_lanes(const Binding& binding, std::shared_ptr<const Plan> plan) {
  CollectiveOperation& operation = *current_;
  if (operation.bound_before_) {
    for (LaneRun& lane : operation.lanes_) lane.start_again(binding);
    return;
  }
  operation.plan_ = std::move(plan);
  operation.lanes_.resize(operation.plan_->lanes.size());
  for (uint32_t lane = 0; lane < operation.lanes_.size(); ++lane) {
    lane_links_.clear();
    for (const int peer : operation.plan_->peers) {
      if (binding.windows == nullptr) lane_links_.push_back(link(lane, peer).get());
    }
    operation.lanes_[lane].start(binding, lane, lane_links_);
  }
}

// True once every link of the plan is there.
bool Collectives::take_links(const Plan& plan) {
  bool complete = true;
  for (uint32_t lane = 0; lane < plan.lanes.size(); ++lane) {
    for (const int peer : plan.peers) {
      auto& slot = link(lane, peer);
      if (slot) continue;
      slot = context_->fabric->take_link({context_->id, context_->world_rank(peer), static_cast<int>(lane)},
                                         link_shape(context_->config));
      complete &= slot != nullptr;
    }
  }
  return complete;
}

Binding Collectives::bind(const Plan& plan) const {
  const CollectiveOperation& operation = *current_;
  const CheckedCall& call = operation.call;
  Binding binding;
  binding.plan = &plan;
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

Windows& Collectives::windows() {
  if (!windows_) windows_.emplace(context_);
  return *windows_;
}

bool Collectives::run(Pass pass) {
  CollectiveOperation& operation = *current_;
  bool done = false;
  const bool moved = operation.phase_ == Phase::kMeeting ? run_one_shot(windows().meeting(), done)
                     : operation.phase_ == Phase::kBody && operation.runs_one_shot()
                         ? run_one_shot(operation.one_shot_, done)
                         : run_lanes(pass, done);
  if (!done) return moved;
  // A pass that finds no way to go on comes here again.
  if (operation.phase_ != Phase::kBody) return go_on() || moved;
  finish_current();
  return true;
}

bool Collectives::run_lanes(Pass pass, bool& done) {
  const auto landing = pass == Pass::kBeforeSleep ? LaneRun::Landing::kSlotNow : LaneRun::Landing::kWait;
  if (crew_ && crew_->active()) {
    const LaneCrew::Progress progress = crew_->pass(landing);
    done = progress.done;
    return progress.moved;
  }
  bool moved = false;
  done = true;
  for (LaneRun& lane : current_->lanes_) {
    if (lane.done()) continue;
    moved |= lane.progress(landing);
    done &= lane.done();
  }
  return moved;
}

bool Collectives::run_one_shot(OneShotRun& one_shot, bool& done) {
  const bool moved = !one_shot.done() && one_shot.progress();
  done = one_shot.done();
  return moved;
}

void Collectives::finish_current() {
  if (current_->met_) windows().finished();
  if (current_->packing) current_->packing->unpack();
  context_->log.finished(current_->sequence);
  end_current(nullptr);
}

// Nobody reads the callers' memory once their operations have failed, not even the kernel.
void Collectives::stop_links() {
  for (auto& slot : links_) {
    if (slot) slot->stop();
  }
}

// Ends everything that is pending; the links stay until shut_down(), since a pass further up may still hold them.
bool Collectives::fail_all(const Error& error) {
  bool any = false;
  if (crew_) crew_->end();
  if (current_ != nullptr) stop_links();
  while (current_ != nullptr || take_next()) {
    end_current(&error);
    any = true;
  }
  return any;
}

void Collectives::report_failures() {
  const Phase phase = current_->phase_;
  if (phase == Phase::kMeeting) return report_refused_post(windows().meeting());
  if (phase == Phase::kBody && current_->runs_one_shot()) return report_refused_post(current_->one_shot_);
  if (phase == Phase::kNew) return;
  for (const LaneRun& lane : current_->lanes_) {
    if (lane.failed_pull() >= 0) return report_failed_pull(lane.failed_pull());
    if (lane.failed_meeting() >= 0) return report_corrupt(lane.failed_meeting(), "a meeting that cannot be");
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

void Collectives::report_refused_post(const OneShotRun& one_shot) {
  const int peer = one_shot.refused();
  if (peer < 0) return;
  reported_ = true;
  if (one_shot.mismatched()) {
    return refused(peer, {ErrorCode::kMismatch,
                          fmt::format("{} is in another operation (fingerprint {:016x}; {:016x} was expected)",
                                      context_->name(peer), one_shot.fingerprint_seen(), current_->fingerprint_),
                          {}});
  }
  report_corrupt(peer, "a post that is none");
}

void Collectives::report_corrupt(int peer, const char* what) {
  reported_ = true;
  context_->fabric->link_failed(
      context_->id, context_->world_rank(peer),
      {ErrorCode::kProtocol, fmt::format("the memory shared with {} is corrupt: {}", context_->name(peer), what), {}});
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
  if (current_ == nullptr || context_->failure.get() != nullptr) return;
  if (current_->deadline == kNoDeadlineYet) {
    const auto asked = current_->call.timeout;
    current_->deadline =
        deadline_after(now, asked.count() > 0 ? asked : std::chrono::milliseconds(context_->config.timeout_ms));
  }
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

uint64_t Collectives::slices_combined() {
  uint64_t sum = 1 + static_cast<uint64_t>(current_->phase_);
  if (current_->phase_ == Phase::kNew) return sum;
  sum += current_->one_shot_.moved() + (windows_ ? windows_->met() : 0);
  return without_crew([&] {
    for (const LaneRun& lane : current_->lanes_) sum += lane.combined();
    return sum;
  });
}

void Collectives::time_out(Clock::time_point now) {
  const CollectiveOperation* late = now >= current_->deadline ? current_ : nullptr;
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
    crew_.reset();
    for (auto& slot : links_) slot.reset();
    windows_.reset();  // a Work may outlive the communicator, and need not keep its staging memory
  });
}

}  // namespace rondo
