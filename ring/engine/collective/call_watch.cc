#include "ring/engine/collective/call_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace rondo {
namespace {

// How long a better reason is waited for. A slice of another call arrived: the members are asked what they
// called, so that the error can show both calls. A link broke: the fabric looks for a death behind it. If
// neither brings anything, the error of the link itself must do.
constexpr std::chrono::milliseconds kReasonPatience{500};

// Ranks that ask all members when a deadline has passed. If all ranks of a large communicator asked all others,
// the answers would not come in time: this is as many questions as 256 ranks ask in one turn.
constexpr int kOverdueAskers = 8;
// How long the other ranks wait for one of those to say who is absent.
constexpr std::chrono::milliseconds kOthersPatience{300};

}  // namespace

// Elements that `peer` was to send here in a call with blocks; 0 where it has none.
uint64_t CallWatch::expected_from(const CheckedCall& call, int peer) const {
  if (!call.blocks) return 0;
  return call.blocks->output[static_cast<size_t>(call.collective == Collective::kScatter ? context_.rank : peer)].count;
}

// Tells the fabric, which waits for a better reason before it fails the communicator.
void CallWatch::failed(int peer, ErrorCode code, const std::string& message) {
  const int world_rank = context_.world_rank(peer);
  context_.fabric->link_failed(context_.id, world_rank, {code, message, {world_rank}});
}

// Turns a run's failure into an error that names rank and remedy. Most failures go to the fabric as a failed
// link: a death behind it would be the better reason, and the fabric waits a moment for that.
void CallWatch::report(const CollectiveOperation& current, const RunFailure& failure) {
  using Kind = RunFailure::Kind;
  if (failure.kind == Kind::kNone) return;
  look_at(current);
  if (std::exchange(seen_.reported, true)) return;
  const std::string name = context_.name(failure.peer);
  switch (failure.kind) {
    case Kind::kLink:
      if (failure.link->error()->code == ErrorCode::kMismatch) return refused(current, failure);
      return broke(current, failure.peer, *failure.link->error());
    case Kind::kOtherCall:
      return refused(current, failure.peer,
                     {ErrorCode::kMismatch,
                      fmt::format("{} is in another operation (fingerprint {:016x}; {:016x} was expected)", name,
                                  failure.fingerprint, current.start.fingerprint),
                      {}},
                     "another number of");
    case Kind::kUnreadable:
      return failed(failure.peer, ErrorCode::kPeerLost,
                    fmt::format("{} on rank {}: the memory of {} could not be read (it died, or this system forbids "
                                "it: RONDO_SINGLE_COPY=off does without)",
                                describe_call(*current.call), context_.rank, name));
    case Kind::kClosed:  // this rank does not know of the failure yet
      return failed(failure.peer, ErrorCode::kPeerLost,
                    fmt::format("{} on rank {}: the communicator has failed on {}, which does not share its buffers "
                                "any more",
                                describe_call(*current.call), context_.rank, name));
    case Kind::kDamaged:
      return failed(
          failure.peer, ErrorCode::kCorrupt,
          fmt::format("{} on rank {}: what {} sent are no packed elements (RONDO_CHECKSUM=on says whether the "
                      "network damages bytes)",
                      describe_call(*current.call), context_.rank, name));
    case Kind::kCorrupt:
      return failed(failure.peer, ErrorCode::kProtocol,
                    fmt::format("the memory shared with {} is corrupt: {}", name, failure.what));
    case Kind::kNone:
      return;
  }
}

// A link has refused a slice. If the slice is a whole block of another length, the error names the two counts
// in elements.
void CallWatch::refused(const CollectiveOperation& current, const RunFailure& failure) {
  const CheckedCall& call = *current.call;
  const Link::Refused slice = failure.link->refused();
  const uint64_t element = call.element_bytes();
  const bool is_block = slice.expected.bytes == expected_from(call, failure.peer) * element;
  const bool is_all = slice.got.bytes < smallest_slice_bytes(Passing::kChain, false);  // a longer one may go on
  refused(current, failure.peer, *failure.link->error(),
          is_block && is_all && slice.got.bytes != slice.expected.bytes ? std::to_string(slice.got.bytes / element)
                                                                        : "another number of");
}

// The ranks are in different calls: asks what the others are in, so that the fabric reports the mismatch with
// both. If all are in the same call, the two ranks differ in a count that only they know, and refusal_ becomes
// the error after kReasonPatience. sent: elements.
void CallWatch::refused(const CollectiveOperation& current, int peer, const Error& error, const std::string& sent) {
  const CheckedCall& call = *current.call;
  refusal_ = error;
  refusal_.ranks = {context_.world_rank(std::min(peer, context_.rank)),
                    context_.world_rank(std::max(peer, context_.rank))};
  refusal_.message =
      call.uneven && call.blocks
          ? fmt::format("{} on rank {}: rank {} sends {} elements, and {} are expected ({})", describe_call(call),
                        context_.rank, peer, sent, expected_from(call, peer), error.message)
          : fmt::format("{} on rank {}: {}", describe_call(call), context_.rank, error.message);
  seen_.refused_at = Clock::now();
  ask_others(seen_.refused_at, current.start.sequence);
}

// A link broke. If its peer has left in good order, the fabric finds no fault in that; but this call lacks its
// data, so refusal_ becomes the error after kReasonPatience.
void CallWatch::broke(const CollectiveOperation& current, int peer, const Error& error) {
  refusal_ = {error.code,
              fmt::format("{} on rank {}: the connection to {} ended before all of its data had come: {}",
                          describe_call(*current.call), context_.rank, context_.name(peer), error.message),
              {context_.world_rank(peer)}};
  seen_.refused_at = Clock::now();
  context_.fabric->link_failed(context_.id, context_.world_rank(peer), error);
}

// A call that does not move for stall_ms makes its rank ask the others; the answers let the fabric find a
// mismatch, or a rank that is absent. A call that moves is asked about only to explain its length.
void CallWatch::tick(Clock::time_point now, const CollectiveOperation& current, uint64_t moved) {
  look_at(current);
  if (seen_.refused_at != Clock::time_point{} && now - seen_.refused_at > kReasonPatience) {
    seen_.refused_at = {};
    return context_.fabric->abort(context_.id, refusal_);
  }
  const bool lasting = lasts(now);
  if (seen_.moved_at == Clock::time_point{} || moved != seen_.moved) {
    seen_.moved = moved;
    seen_.moved_at = now;
    if (lasting) ask_others(now, current.start.sequence);
    return;
  }
  const std::chrono::milliseconds stall(context_.config.stall_ms);
  if (now - seen_.moved_at >= stall && now - asked_at_ >= stall) ask_others(now, current.start.sequence);
}

// Whether it is time to ask about a call that moves: when it has lasted for two heartbeats, four, eight, and so
// on. Its cause may be a slow link, which the fabric then names in the log.
bool CallWatch::lasts(Clock::time_point now) {
  if (seen_.began_at == Clock::time_point{}) {
    seen_.began_at = now;
    seen_.cause_due = now + 2 * std::chrono::milliseconds(context_.config.heartbeat_ms);
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
    context_.log.lasts(seen_.sequence, since.count());
    return false;
  }
  if (now < seen_.cause_due) return false;
  seen_.cause_due = now + (now - seen_.began_at);
  return true;
}

void CallWatch::ask_others(Clock::time_point now, uint64_t sequence, Ask ask) {
  asked_at_ = now;
  context_.fabric->stalled(context_.id, sequence, ask);
}

void CallWatch::time_out(Clock::time_point now, const CollectiveOperation& current, const CollectiveOperation& late,
                         Clock::duration by) {
  // The deadline may be shorter than the stall time, or than the turns in which a large communicator is asked. There a
  // few ranks ask all members, and the others leave the error to them.
  const bool asks_all = context_.rank < kOverdueAskers;
  const auto patience = asks_all ? kAnswerPatience : kOthersPatience;
  const bool asked = overdue_sequence_ == current.start.sequence;
  // The call that was asked about has ended, as those before `late` do one after the other: no rank is absent.
  const bool goes_on = !asked && by >= 2 * patience && now - overdue_at_ <= by;
  if (!asked && !goes_on) {
    overdue_sequence_ = current.start.sequence;
    overdue_at_ = now;
    return ask_others(now, current.start.sequence, asks_all ? Ask::kAll : Ask::kInTurn);
  }
  if (asked && now - overdue_at_ < patience) return;
  std::vector<int> absent;
  if (asked) absent = context_.fabric->absent(context_.id, current.start.sequence);
  std::string who;
  for (const int peer : absent) who += fmt::format("{}{}", who.empty() ? "" : ", ", context_.group_rank(peer));
  const std::string blame = context_.fabric->blame(context_.id, current.start.sequence);
  context_.fabric->abort(
      context_.id,
      {ErrorCode::kTimeout,
       fmt::format("{} did not complete on rank {} before its deadline; {}{}{}", describe_call(*late.call),
                   context_.rank,
                   who.empty() ? "every rank has made the call: one of them is too slow, or the deadline too short"
                               : "these ranks have not made the call: " + who,
                   blame.empty() ? "" : "; ", blame),
       absent});
}

}  // namespace rondo
