// Communicators of some of a communicator's ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/hash.h"
#include "ring/base/log.h"
#include "ring/engine/communicator_state.h"

namespace rondo {
// All members throw the error, which would else wait for this rank until their deadline.
void CommunicatorState::decline(const Members& made, const Error& why) {
  const int world_rank = context_->world_rank(rank());
  const Error error{why.code, context_->fabric->peer_name(world_rank) + ": " + why.message, {world_rank}};
  context_->fabric->decline(made.id, made.world_ranks, error);
  const auto own = std::find(made.world_ranks.begin(), made.world_ranks.end(), world_rank);
  throw Exception(
      Error{error.code, error.message, {static_cast<int>(own - made.world_ranks.begin())}, {world_rank}, {getpid()}});
}

std::shared_ptr<CommunicatorState> CommunicatorState::make(const Members& made, std::shared_ptr<Lineage> lineage,
                                                           std::shared_ptr<Allocations> allocations) {
  try {
    Options options;
    options.fabric = context_->fabric;
    options.id = made.id;
    options.epoch = made.epoch;
    options.members = made.world_ranks;
    options.config = context_->config;
    options.worker = worker_;
    options.observer = context_->observed.observer;
    options.observed_ranks = context_->observed_ranks;
    options.mark = context_->mark;
    options.allocations = std::move(allocations);
    options.lineage = lineage ? std::move(lineage) : std::make_shared<Lineage>(lineage_);
    return std::make_shared<CommunicatorState>(std::move(options));
  } catch (...) {
    decline(made, caught());
  }
}

std::shared_ptr<CommunicatorState> CommunicatorState::subgroup(const Members& made, Purpose by) {
  std::shared_ptr<CommunicatorState> group = make(made);
  const auto until = deadline(std::chrono::milliseconds(context_->config.start_timeout_ms));
  group->with_memory([&] { group->meet_neighbors(by, until); });
  group->made();
  return group;
}

void CommunicatorState::gather(const void* own, void* all, size_t bytes, Purpose purpose,
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

uint64_t CommunicatorState::next_split() {
  std::lock_guard lock(submit_mutex_);
  return ++splits_;
}

std::shared_ptr<CommunicatorState> CommunicatorState::split(OutsideBatch, int color, int key) {
  struct Choice {
    int32_t color, key;
  };
  Members made;
  with_memory([&] { made.world_ranks.reserve(static_cast<size_t>(size())); });
  const std::vector<Choice> all = gather(Choice{color, key}, Purpose::kSplit);
  const uint64_t number = next_split();
  if (color < 0) return nullptr;
  std::vector<int>& ranks = made.world_ranks;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<size_t>(r)].color == color) ranks.push_back(r);
  }
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return std::pair(all[static_cast<size_t>(a)].key, a) < std::pair(all[static_cast<size_t>(b)].key, b);
  });
  for (int& r : ranks) r = context_->world_rank(r);
  made.id = Hash64().add("split").add(context_->id).add(number).add(static_cast<uint64_t>(color)).value();
  return subgroup(made, Purpose::kSplit);
}

// Counts how often this list was made. Nothing has happened if it throws.
CommunicatorState::Members CommunicatorState::numbered(std::span<const int> ranks, uint64_t series) {
  Members made;
  for (const int r : ranks) made.world_ranks.push_back(context_->world_rank(r));
  std::lock_guard lock(submit_mutex_);
  const uint64_t number = ++groups_made_[{series, made.world_ranks}];
  Hash64 id;
  id.add("group").add(context_->id).add_all(std::span<const int>(made.world_ranks)).add(series).add(number);
  made.id = id.value();
  return made;
}

CommunicatorState::Members CommunicatorState::members_of(std::span<const int> ranks, uint64_t series) {
  check_usable();
  const auto refuse = [this](const std::string& why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("new_group on rank {}: {}", rank(), why));
  };
  for (const int r : ranks) {
    if (r < 0 || r >= size()) refuse(fmt::format("{} is not a rank of this group of {}", r, size()));
    if (std::count(ranks.begin(), ranks.end(), r) > 1) refuse(fmt::format("rank {} is given twice", r));
  }
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) {
    refuse("this rank is not among those given; only members make the call");
  }
  try {
    return numbered(ranks, series);
  } catch (const std::bad_alloc&) {
    decline(numbered(ranks, series), caught());  // the members know it by its id
  }
}

std::shared_ptr<CommunicatorState> CommunicatorState::new_group(OutsideBatch, std::span<const int> ranks, Purpose by) {
  return subgroup(members_of(ranks, 0), by);
}

CommunicatorState::Opening CommunicatorState::new_group_async(OutsideBatch, std::span<const int> ranks,
                                                              uint64_t series) {
  ready_worker();
  std::shared_ptr<CommunicatorState> group = make(members_of(ranks, 1 + series));
  if (group->size() == 1) {
    group->made();
    return {std::move(group), nullptr};
  }
  OperationRef<CollectiveOperation> opening;
  group->with_memory([&] {
    std::lock_guard lock(group->submit_mutex_);
    opening = group->collectives_->submit_opening(Purpose::kNewGroup, group->deadline({}));
  });
  opening->on_end([made = group->weak_from_this()](const Error&) {
    if (const auto living = made.lock()) living->made();
  });
  group->opening_ = opening;
  group->collectives_->notify();
  return {std::move(group), std::move(opening)};
}

// World ranks. The error's are those of this communicator.
Shrunk CommunicatorState::agree_on_members(std::chrono::milliseconds patience, const char* by) {
  try {
    return context_->fabric->shrink(context_->id, patience, grown_ != nullptr);
  } catch (const Exception& failure) {
    if (failure.code() == ErrorCode::kEpochStale) grown_.reset();  // its other ranks go on, and wait for a goodbye
    Error error = failure.error();
    error.message = fmt::format("{} on rank {}: {}", by, rank(), error.message);
    for (int& r : error.ranks) r = context_->group_rank(r);
    throw Exception(context_->failure.located(error));
  }
}

std::chrono::milliseconds CommunicatorState::patience_of(std::chrono::milliseconds timeout, const char* call) const {
  if (timeout.count() > 0) return timeout;
  if (timeout.count() == 0) return std::chrono::milliseconds(context_->config.start_timeout_ms);
  throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: timeout is {} ms; it must be positive, or 0 for "
                                                   "RONDO_START_TIMEOUT_MS",
                                                   call, rank(), timeout.count()));
}

std::shared_ptr<CommunicatorState> CommunicatorState::shrunk_to(std::vector<int> world_ranks) {
  Members made;
  made.world_ranks = std::move(world_ranks);
  made.epoch = context_->epoch + 1;
  made.id = Hash64().add("shrink").add(context_->id).add_all(std::span<const int>(made.world_ranks)).value();
  return make(made, lineage_, allocations_);
}

std::shared_ptr<CommunicatorState> CommunicatorState::shrink(OutsideBatch outside, std::chrono::milliseconds timeout) {
  const std::chrono::milliseconds patience = patience_of(timeout, "shrink");
  const Error* failure = context_->failure.get();
  if (destroyed_.load() || !context_->mark.same_process()) refuse_use();
  if (failure == nullptr) abort("shrink() was called");  // pending calls of the others end, and they come, too
  const Lineage::Shrinking shrinking(*lineage_);
  return go_on(outside, patience, "shrink");
}

// In grow() nothing is pending, and a rank that is late still hears of the newcomers: no abort() here.
std::shared_ptr<CommunicatorState> CommunicatorState::go_on(OutsideBatch outside, std::chrono::milliseconds patience,
                                                            const char* by) {
  Shrunk agreed = agree_on_members(patience, by);
  std::shared_ptr<CommunicatorState> group = std::exchange(grown_, nullptr);
  if (!agreed.grown) group = shrunk_to(std::move(agreed.members));
  Logger(context_->config.debug, context_->fabric->place().rank)
      .info(fmt::format("{}: rank {} of {} is rank {} of {} in epoch {}", by, rank(), size(), group->rank(),
                        group->size(), group->context_->epoch));
  group->committed_ = committed();
  destroy();
  try {
    if (!agreed.grown) group->with_memory([&] { group->meet_neighbors(Purpose::kShrink, deadline(patience)); });
    group->agree_on_committed(patience);
  } catch (const Exception& lost) {
    const ErrorCode code = lost.code();
    const bool once_more = code == ErrorCode::kPeerLost || code == ErrorCode::kUnresponsive ||
                           code == ErrorCode::kPeerLeft || (agreed.grown && code == ErrorCode::kTimeout);
    if (!once_more) throw;
    return group->go_on(outside, patience, by);
  }
  group->made();
  return group;
}

// What any rank has committed all have reached: the call ends on a rank only when all have made it.
void CommunicatorState::agree_on_committed(std::chrono::milliseconds timeout) {
  int64_t newest = committed();
  Call call;
  call.input = call.output = &newest;
  call.count = 1;
  call.dtype = DType::kInt64;
  call.op = Op::kMax;
  call.options.purpose = Purpose::kShrink;
  call.options.timeout = timeout;
  try {
    run(call);
  } catch (const Exception&) {
    if (failed_in_.load() == Stage::kMaking) throw;
    return;  // a member has agreed, and met it later: the calls here throw it, and shrink() agrees anew
  }
  committed_ = newest;
}

void CommunicatorState::commit(OutsideBatch, int64_t step, uint64_t digest) {
  if (step <= committed()) {
    throw Exception(ErrorCode::kInvalid, fmt::format("commit on rank {}: step is {}; the one before was {}, and steps "
                                                     "begin at 0 and grow",
                                                     rank(), step, committed()));
  }
  struct Claim {
    int64_t step;
    uint64_t digest;
    bool operator==(const Claim&) const = default;
  };
  const std::vector<Claim> all = gather(Claim{step, digest}, Purpose::kCommit);
  const auto other = std::find_if(all.begin(), all.end(), [&](const Claim& claim) { return claim != all[0]; });
  if (other == all.end()) {
    committed_ = step;
    return;
  }
  const int r = static_cast<int>(other - all.begin());
  const bool same_step = other->step == all[0].step;
  const std::string what = same_step ? "digest" : "step";
  const auto value = [&](const Claim& claim) {
    return same_step ? fmt::format("{:016x}", claim.digest) : fmt::format("{}", claim.step);
  };
  fail({same_step ? ErrorCode::kCorrupt : ErrorCode::kMismatch,
        fmt::format("commit: {} has {} {}, but {} has {}: the step is not committed", context_->name(0), what,
                    value(all[0]), context_->name(r), value(*other)),
        {0, r}});
  check_usable();
}

}  // namespace rondo
