#include "ring/engine/groups.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/hash.h"
#include "ring/base/log.h"
#include "ring/engine/communicator_state.h"

namespace rondo {
namespace {

// Longer than a job lasts, and short enough that a clock can add it to now.
constexpr std::chrono::hours kLongestPatience{24 * 365};

}  // namespace

// This rank cannot make the communicator. It fails it on all members, who would else wait for this rank until
// their deadline.
void Groups::decline(const Members& made, const Error& why) const {
  const CommunicatorContext& context = group_.context();
  const int world_rank = context.world_rank(context.rank);
  const Error error{why.code, context.fabric->peer_name(world_rank) + ": " + why.message, {world_rank}};
  context.fabric->decline(made.id, made.world_ranks, error);
  const auto own = std::find(made.world_ranks.begin(), made.world_ranks.end(), world_rank);
  throw Exception(
      Error{error.code, error.message, {static_cast<int>(own - made.world_ranks.begin())}, {world_rank}, {getpid()}});
}

std::shared_ptr<CommunicatorState> Groups::make(const Members& made, std::shared_ptr<Lineage> lineage,
                                                std::shared_ptr<Allocations> allocations) const {
  const CommunicatorContext& context = group_.context();
  try {
    CommunicatorState::Options options;
    options.fabric = context.fabric;
    options.id = made.id;
    options.epoch = made.epoch;
    options.members = made.world_ranks;
    options.config = context.config;
    options.worker = group_.worker();
    options.observer = context.observed.observer;
    options.observed_ranks = context.observed_ranks;
    options.mark = context.mark;
    options.allocations = std::move(allocations);
    options.lineage = lineage ? std::move(lineage) : std::make_shared<Lineage>(group_.lineage());
    return std::make_shared<CommunicatorState>(std::move(options));
  } catch (...) {
    decline(made, caught());
  }
}

// Makes a group and opens it. made() comes last: only then does a failure count as one of its use.
std::shared_ptr<CommunicatorState> Groups::subgroup(const Members& made, Purpose by) {
  std::shared_ptr<CommunicatorState> group = make(made);
  const auto until = group_.deadline(std::chrono::milliseconds(group_.context().config.start_timeout_ms));
  group->context().with_memory([&] { group->calls().meet_neighbors(by, until); });
  group->made();
  return group;
}

uint64_t Groups::next_split() {
  std::lock_guard lock(mutex_);
  return ++splits_;
}

// An all_gather of (color, key). Each rank computes its group from the records, so all members come to the
// same. The id is a hash of the parent's id, the number of the split and the color, so it needs no message.
std::shared_ptr<CommunicatorState> Groups::split(OutsideBatch, int color, int key) {
  struct Choice {
    int32_t color, key;
  };
  Members made;
  const auto size = static_cast<size_t>(group_.size());
  // Memory comes before the exchange: afterwards the others rely on this rank.
  group_.context().with_memory([&] { made.world_ranks.reserve(size); });
  const std::vector<Choice> all = group_.calls().gather(Choice{color, key}, Purpose::kSplit);
  const uint64_t number = next_split();
  if (color < 0) return nullptr;
  std::vector<int>& ranks = made.world_ranks;
  for (size_t r = 0; r < size; ++r) {
    if (all[r].color == color) ranks.push_back(static_cast<int>(r));
  }
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return std::pair(all[static_cast<size_t>(a)].key, a) < std::pair(all[static_cast<size_t>(b)].key, b);
  });
  for (int& r : ranks) r = group_.context().world_rank(r);
  made.id = Hash64().add("split").add(group_.context().id).add(number).add(static_cast<uint64_t>(color)).value();
  return subgroup(made, Purpose::kSplit);
}

// Counts how often this list was made; the id of a group contains the count. Nothing has happened if it throws.
Groups::Members Groups::numbered(std::span<const int> ranks, uint64_t series) {
  const CommunicatorContext& context = group_.context();
  Members made;
  for (const int r : ranks) made.world_ranks.push_back(context.world_rank(r));
  std::lock_guard lock(mutex_);
  const uint64_t number = ++groups_made_[{series, made.world_ranks}];
  Hash64 id;
  id.add("group").add(context.id).add_all(std::span<const int>(made.world_ranks)).add(series).add(number);
  made.id = id.value();
  return made;
}

// Checks the ranks. Only members make the call, so nothing is exchanged.
Groups::Members Groups::members_of(std::span<const int> ranks, uint64_t series) {
  group_.context().check_usable();
  const auto refuse = [this](const std::string& why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("new_group on rank {}: {}", group_.rank(), why));
  };
  for (const int r : ranks) {
    if (r < 0 || r >= group_.size()) refuse(fmt::format("{} is not a rank of this group of {}", r, group_.size()));
    if (std::count(ranks.begin(), ranks.end(), r) > 1) refuse(fmt::format("rank {} is given twice", r));
  }
  if (std::find(ranks.begin(), ranks.end(), group_.rank()) == ranks.end()) {
    refuse("this rank is not among those given; only members make the call");
  }
  try {
    return numbered(ranks, series);
  } catch (const std::bad_alloc&) {
    decline(numbered(ranks, series), caught());  // the members know it by its id
  }
}

std::shared_ptr<CommunicatorState> Groups::new_group(OutsideBatch, std::span<const int> ranks, Purpose by) {
  return subgroup(members_of(ranks, 0), by);
}

Groups::Opening Groups::new_group_async(OutsideBatch, std::span<const int> ranks, uint64_t series) {
  group_.ready_worker();
  std::shared_ptr<CommunicatorState> group = make(members_of(ranks, 1 + series));
  if (group->size() == 1) {
    group->made();
    return {std::move(group), nullptr};
  }
  OperationRef<Operation> opening = group->calls().start_opening(Purpose::kNewGroup);
  return {std::move(group), std::move(opening)};
}

// World ranks of those that go on, as the fabric has agreed with the other ranks. Errors name ranks of this
// communicator.
Shrunk Groups::agree_on_members(std::chrono::milliseconds patience, const char* by) {
  try {
    return group_.context().fabric->shrink(group_.context().id, patience, grown_ != nullptr);
  } catch (const Exception& failure) {
    if (failure.code() == ErrorCode::kEpochStale) grown_.reset();  // its other ranks go on, and wait for a goodbye
    Error error = failure.error();
    error.message = fmt::format("{} on rank {}: {}", by, group_.rank(), error.message);
    for (int& r : error.ranks) r = group_.context().group_rank(r);
    throw Exception(group_.context().failure.located(error));
  }
}

std::chrono::milliseconds Groups::patience_of(std::chrono::milliseconds timeout, const char* call) const {
  if (timeout.count() > 0) return std::min<std::chrono::milliseconds>(timeout, kLongestPatience);
  if (timeout.count() == 0) return std::chrono::milliseconds(group_.context().config.start_timeout_ms);
  throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: timeout is {} ms; it must be positive, or 0 for "
                                                   "RONDO_START_TIMEOUT_MS",
                                                   call, group_.rank(), timeout.count()));
}

std::shared_ptr<CommunicatorState> Groups::shrunk_to(std::vector<int> world_ranks) const {
  Members made;
  made.world_ranks = std::move(world_ranks);
  made.epoch = group_.context().epoch + 1;
  made.id = Hash64().add("shrink").add(group_.context().id).add_all(std::span<const int>(made.world_ranks)).value();
  return make(made, group_.lineage(), group_.allocations());
}

// A communicator that has not failed is aborted first: pending calls of the others end, and they come to
// shrink(), too.
std::shared_ptr<CommunicatorState> Groups::shrink(OutsideBatch outside, std::chrono::milliseconds timeout) {
  const std::chrono::milliseconds patience = patience_of(timeout, "shrink");
  const Error* failure = group_.context().failure.get();
  group_.check_not_destroyed();
  if (failure == nullptr) group_.abort("shrink() was called");  // pending calls of the others end, and they come, too
  const Lineage::Shrinking shrinking(*group_.lineage());
  return go_on(outside, patience, "shrink");
}

// The next epoch. grow() calls this without an abort(): nothing is pending there, and a rank that is late must
// still hear of the newcomers.
std::shared_ptr<CommunicatorState> Groups::go_on(OutsideBatch outside, std::chrono::milliseconds patience,
                                                 const char* by) {
  Shrunk agreed = agree_on_members(patience, by);
  std::shared_ptr<CommunicatorState> group = std::exchange(grown_, nullptr);
  if (!agreed.grown) group = shrunk_to(std::move(agreed.members));
  Logger(group_.context().config.debug, group_.context().fabric->place().rank)
      .info(fmt::format("{}: rank {} of {} is rank {} of {} in epoch {}", by, group_.rank(), group_.size(),
                        group->rank(), group->size(), group->context().epoch));
  Groups& next = group->groups();
  // Before the exchange, which takes the largest of all ranks.
  next.committed_ = committed();
  group_.destroy();
  try {
    if (!agreed.grown) {
      group->context().with_memory([&] { group->calls().meet_neighbors(Purpose::kShrink, group_.deadline(patience)); });
    }
    next.agree_on_committed(patience);
  } catch (const Exception& lost) {
    const ErrorCode code = lost.code();
    const bool once_more = code == ErrorCode::kPeerLost || code == ErrorCode::kUnresponsive ||
                           code == ErrorCode::kPeerLeft || (agreed.grown && code == ErrorCode::kTimeout);
    if (!once_more) throw;
    return next.go_on(outside, patience, by);
  }
  group->made();
  return group;
}

// The newest committed step of any rank becomes that of all. All have reached it: commit() returns on a rank
// only when every rank has made it. A process that has just joined takes it over.
void Groups::agree_on_committed(std::chrono::milliseconds timeout) {
  int64_t newest = committed();
  Call call;
  call.input = call.output = &newest;
  call.count = 1;
  call.dtype = DType::kInt64;
  call.op = Op::kMax;
  call.options.purpose = Purpose::kShrink;
  call.options.timeout = timeout;
  try {
    group_.calls().run(call);
  } catch (const Exception&) {
    if (group_.failed_in() == Stage::kMaking) throw;
    return;  // a member has agreed, and met it later: the calls here throw it, and shrink() agrees anew
  }
  committed_ = newest;
}

void Groups::enter(std::chrono::milliseconds timeout) {
  agree_on_committed(timeout);
  group_.made();
}

// All ranks gather (step, digest). Every rank sees all records, so all commit, or all fail with the same two
// ranks named.
void Groups::commit(OutsideBatch, int64_t step, uint64_t digest) {
  if (step <= committed()) {
    throw Exception(ErrorCode::kInvalid, fmt::format("commit on rank {}: step is {}; the one before was {}, and steps "
                                                     "begin at 0 and grow",
                                                     group_.rank(), step, committed()));
  }
  struct Claim {
    int64_t step;
    uint64_t digest;
    bool operator==(const Claim&) const = default;
  };
  const std::vector<Claim> all = group_.calls().gather(Claim{step, digest}, Purpose::kCommit);
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
  const CommunicatorContext& context = group_.context();
  group_.context().fail({same_step ? ErrorCode::kCorrupt : ErrorCode::kMismatch,
                         fmt::format("commit: {} has {} {}, but {} has {}: the step is not committed", context.name(0),
                                     what, value(all[0]), context.name(r), value(*other)),
                         {0, r}});
  group_.context().check_usable();
}

}  // namespace rondo
