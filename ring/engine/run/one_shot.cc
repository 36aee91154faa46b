#include "ring/engine/run/one_shot.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "ring/base/check.h"
#include "ring/engine/run/slicing.h"
#include "ring/plan/layout.h"

namespace rondo {
namespace {

// What is posted and taken at a time: the others begin to take while the rest is being posted. Two pieces fit a
// first-level cache of 32 KiB (docs/tuning.md, "One shot").
constexpr size_t kPieceBytes = 16 * 1024;

// Blocks of the longest post of any rank.
size_t most_posted(const Plan& plan) {
  size_t most = 1;
  for (const std::vector<uint32_t>& blocks : plan.posts) most = std::max(most, blocks.size());
  return most;
}

}  // namespace

Slicing OneShotRun::slicing(const Plan& plan, uint64_t block, size_t element_bytes) {
  const uint64_t room = elements_that_fit(kPostBytes, most_posted(plan), element_bytes);
  RONDO_CHECK(room > 0, "a post that holds no element of each block");
  Slicing slicing;
  slicing.granule = std::min(std::max<uint64_t>(1, 64 / element_bytes), room);
  slicing.slice = std::clamp<uint64_t>(block, 1, room / slicing.granule * slicing.granule);
  return slicing;
}

size_t OneShotRun::longest_post(const Plan& plan, uint64_t block, size_t element_bytes) {
  return most_posted(plan) * std::min(block, slicing(plan, block, element_bytes).slice) * element_bytes;
}

PostBoard::Flow OneShotRun::flow_of(const Plan& plan) {
  return collective_has_root(plan.collective) ? PostBoard::Flow::kOneWay : PostBoard::Flow::kAllWays;
}

// Sorts the plan's steps into those that put into the own post and those that take from posts. All blocks of
// such a plan have one length. A barrier has neither, and one round: its posts are the signals.
void OneShotRun::bind(const Binding& binding, IslandChannel& channel) {
  binding_ = binding;
  channel_ = &channel;
  flow_ = flow_of(*binding.plan);
  const Plan& plan = *binding.plan;
  puts_.clear();
  takes_.clear();
  places_.assign(plan.refs.size(), 0);
  posts_read_.clear();
  block_ = 0;
  for (const Step& step : plan.steps) bind(step);
  rounds_ = puts_.empty() && takes_.empty() ? 1 : binding.slicing.rounds(block_);
  piece_ = kPieceBytes / binding.element_bytes;
  seen_.resize(static_cast<size_t>(plan.world));
  count_ = 0;
  post_bytes_.assign(static_cast<size_t>(plan.world), 0);
}

void OneShotRun::start(const RunStart& start) {
  binding_.begin(start);
  round_ = 0;
  failure_ = {};
  observer_.begin(binding_.observed, start.sequence);
  if (rounds_ > 0) begin_round();
}

void OneShotRun::bind(const Step& step) {
  const Plan& plan = *binding_.plan;
  const std::span<const Ref> refs = refs_of(plan, step);
  // A signal: a post is one, to all and from all.
  if (is_mailbox(refs[0])) return;
  for (size_t i = 0; i < refs.size(); ++i) {
    const Ref& ref = refs[i];
    if (is_post(ref)) places_[step.first + i] = place_in_post(plan, ref);
    if (ref.space == Space::kInput) block_ = binding_.blocks->input[ref.block].count;
    if (ref.space == Space::kOutput) block_ = binding_.blocks->output[ref.block].count;
  }
  BoundStep bound;
  bound.bind(binding_, step);
  std::copy_if(bound.sources.begin(), bound.sources.end(), std::back_inserter(posts_read_), is_post);
  const bool takes = std::any_of(bound.sources.begin(), bound.sources.end(), is_post);
  (takes ? takes_ : puts_).push_back(bound);
}

// Lengths of posts change with the last round alone, which may be shorter, so they are seldom computed.
void OneShotRun::begin_round() {
  const uint64_t before = count_;
  begin_ = round_ * binding_.slicing.slice;
  count_ = std::min(binding_.slicing.slice, block_ - std::min(block_, begin_));
  const auto& posts = binding_.plan->posts;
  for (size_t rank = 0; count_ != before && rank < posts.size(); ++rank) {
    post_bytes_[rank] = posts[rank].size() * count_ * binding_.element_bytes;
  }
  own_bytes_ = post_bytes_[static_cast<size_t>(binding_.plan->rank)];
  posted_ = false;
  next_take_ = 0;
  taken_ = 0;
  std::fill(seen_.begin(), seen_.end(), 0);
}

// Whether this rank may post. A rank that is behind may still be reading the earlier post that lies in the next
// post's place.
bool OneShotRun::finds_room() {
  const PostBoard::Room room = channel_->board.make_room();
  if (room.sight == Sight::kThere) return true;
  if (room.sight == Sight::kCorrupt) refuse(RunFailure::Kind::kCorrupt, room.rank);
  observer_.awaits(room.rank);
  return false;
}

// Posts this rank's data: the first byte of a call leaves here. begin() writes the fingerprint into the cell,
// put() the data, publish() stores the flag that the others poll. Long posts are published piece by piece. The
// bells come last, and cost a load each while nobody sleeps.
//
// Cost: one copy of the data, into memory that the others have in their caches.
void OneShotRun::post() {
  PostBoard& board = channel_->board;
  std::byte* place = board.begin(binding_.start.fingerprint, post_bytes_, flow_);
  for (const BoundStep& step : puts_) {
    for (uint64_t at = 0; at < count_; at += piece_) {
      const uint64_t count = std::min(piece_, count_ - at);
      put(step, place, at, count);
      if (own_bytes_ <= kPieceBytes || !is_post(step.targets[0])) continue;
      const uint64_t ready = in_post(step.targets[0], at + count);
      if (ready < own_bytes_) board.publish(static_cast<uint32_t>(ready), false);
    }
  }
  board.publish(static_cast<uint32_t>(own_bytes_), true);
  for (int rank = 0; rank < binding_.plan->world; ++rank) {
    if (rank != binding_.plan->rank) channel_->ring(rank);
  }
  posted_ = true;
}

// Copies or scales the input into the own post, into the output, or into both.
void OneShotRun::put(const BoundStep& step, std::byte* post, uint64_t at, uint64_t count) {
  const std::byte* const from = input(step.sources[0], at);
  const size_t bytes = count * binding_.element_bytes;
  void* targets[kMaxCombineTargets];
  for (size_t i = 0; i < step.targets.size(); ++i) {
    const Ref& ref = step.targets[i];
    std::byte* const to = is_post(ref) ? post + in_post(ref, at) : output(ref, at);
    targets[i] = to;
    if (!step.copies) continue;
    if (is_post(ref)) {
      cross_copy(to, from, bytes, channel_->stores);
    } else if (to != from) {
      std::memcpy(to, from, bytes);
    }
  }
  const void* const source = from;
  if (!step.copies) fold(step, &source, {targets, step.targets.size()}, count);
}

void OneShotRun::refuse(RunFailure::Kind kind, int rank, uint64_t fingerprint) {
  failure_ = {kind, rank, nullptr, fingerprint, "a post that is none"};
}

// Round after round: finds room, posts, takes, and looks at the ranks of which nothing was taken. Returns when
// a rank has to be waited for.
bool OneShotRun::progress(Pass) {
  bool moved = false;
  while (round_ < rounds_ && failure_.peer < 0) {
    if (!posted_) {
      if (!channel_->board.has_room() && !finds_room()) {
        if (observer_.on()) observer_.idle();
        return moved;
      }
      post();
      observer_.worked();
      moved = true;
    }
    const uint64_t before = moved_;
    while (next_take_ < takes_.size() && take(takes_[next_take_])) {
      ++next_take_;
      taken_ = 0;
    }
    moved |= moved_ != before;
    bool over = next_take_ == takes_.size();
    if (over) {
      const bool waits = binding_.plan->collective == Collective::kBarrier;
      over = look_at_all(waits) || !waits;
    }
    if (observer_.on()) observe(over, moved_ != before);
    if (!over || failure_.peer >= 0) return moved;
    ++moved_;
    moved = true;
    if (++round_ < rounds_) begin_round();
  }
  return moved;
}

// over: the round; taken: something of it in this pass.
void OneShotRun::observe(bool over, bool taken) {
  if (!over && !taken) return observer_.idle();
  observer_.moved(posts_read_, {}, over ? count_ * binding_.element_bytes : 0, over);
  if (!over) return observer_.worked();
  observer_.at(0, round_ + 1);
  if (round_ + 1 == rounds_) observer_.end();
}

bool OneShotRun::take(const BoundStep& step) {
  while (taken_ < count_) {
    if (!take_piece(step, std::min(piece_, count_ - taken_))) return false;
  }
  return true;
}

// Folds or copies one piece of a move. Cost: one pass over the sources; the others' posts come from their
// caches.
bool OneShotRun::take_piece(const BoundStep& step, uint64_t count) {
  const void* from[kMaxCombineSources];
  const size_t bytes = count * binding_.element_bytes;
  for (size_t i = 0; i < step.sources.size(); ++i) {
    const Ref& ref = step.sources[i];
    if (!is_post(ref)) {
      from[i] = input(ref, taken_);
      continue;
    }
    const uint64_t at = in_post(ref, taken_);
    if (!there(ref.peer, at + bytes)) return false;
    from[i] = channel_->board.payload_of(ref.peer, post_bytes_[ref.peer]) + at;
  }
  void* const to = output(step.targets[0], taken_);
  if (step.copies) {
    std::memcpy(to, from[0], bytes);
  } else {
    fold(step, from, {&to, 1}, count);
  }
  taken_ += count;
  ++moved_;
  return true;
}

void OneShotRun::fold(const BoundStep& step, const void* const* from, std::span<void* const> to, uint64_t count) const {
  CombineMove combined;
  combined.sources = from;
  combined.targets = to.data();
  combined.source_count = static_cast<uint8_t>(step.sources.size());
  combined.target_count = static_cast<uint8_t>(to.size());
  combined.scaled = step.scaled;
  combined.finish = step.finish;
  combine(binding_.combine, combined, count);
}

// Whether that many bytes of the rank's post of this round are there. Refuses a post of another call: no byte
// of it has been used then. `ready` is what a peer has written, so it is compared with the length that this
// rank expects.
bool OneShotRun::there(int rank, uint64_t bytes) {
  uint32_t& seen = seen_[static_cast<size_t>(rank)];
  // What was there once stays there for the round: no second look at the peer's memory.
  if (seen > bytes) return true;
  const PostBoard::Look look = channel_->board.look(rank);
  if (look.sight == Sight::kNothing || look.ready < bytes) observer_.awaits(rank);
  if (look.sight == Sight::kNothing) return false;
  const bool other =
      look.sight == Sight::kThere && agreed_bits(look.fingerprint) != agreed_bits(binding_.start.fingerprint);
  if (look.sight == Sight::kCorrupt || other || look.ready > post_bytes_[static_cast<size_t>(rank)]) {
    refuse(other ? RunFailure::Kind::kOtherCall : RunFailure::Kind::kCorrupt, rank, look.fingerprint);
    return false;
  }
  if (look.fingerprint != binding_.start.fingerprint) {
    other_op_ = {rank, static_cast<Op>(fingerprint_note(look.fingerprint))};
  }
  seen = look.ready + 1;
  return seen > bytes;
}

// Looks once at each rank of which nothing was taken. False: one has not posted. waits: stop there, since a
// barrier waits for all.
bool OneShotRun::look_at_all(bool waits) {
  bool all = true;
  for (int rank = 0; rank < binding_.plan->world && failure_.peer < 0; ++rank) {
    if (rank == binding_.plan->rank || there(rank, 0)) continue;
    all = false;
    if (waits) break;
  }
  if (all) channel_->board.all_seen();
  return all;
}

bool BoardRun::attach() {
  if (!island_.attach()) return false;
  const size_t element = call_.element_bytes();
  const PostBoard::Flow flow = flow_of(*plan_);
  const size_t longest = longest_post(*plan_, call_.count, element);
  // Where posts go one way, who takes nothing waits for nobody.
  std::vector<bool> needed(static_cast<size_t>(plan_->world), flow == PostBoard::Flow::kAllWays);
  for (const Ref& ref : plan_->refs) {
    if (is_post(ref)) needed[ref.peer] = true;
  }
  bool all = true;
  for (int rank = 0; rank < plan_->world; ++rank) {
    if (needed[static_cast<size_t>(rank)]) all &= island_.attach_posts(rank, longest, flow);
  }
  if (!all) return false;
  const Slicing slices = slicing(*plan_, call_.count, element);
  blocks_ = lay_out_blocks(call_, *plan_, slices);
  Binding binding = binding_of(call_, *plan_, blocks_, slices);
  binding.observed = &island_.observed();
  bind(binding, island_.channel());
  return bound_ = true;
}

}  // namespace rondo
