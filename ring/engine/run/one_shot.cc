#include "ring/engine/run/one_shot.h"

#include <algorithm>
#include <cstring>

#include "ring/base/check.h"
#include "ring/engine/run/slicing.h"

namespace rondo {
namespace {

// What is posted and taken at a time, so that the others begin to take while the rest is being posted; two of them fit
// a first-level cache of 32 KiB (docs/tuning.md, "One shot").
constexpr size_t kPieceBytes = 16 * 1024;

// Blocks of the longest post.
size_t most_posted(const Plan& plan) {
  size_t most = 1;
  for (const std::vector<uint32_t>& blocks : plan.posts) most = std::max(most, blocks.size());
  return most;
}

}  // namespace

Slicing OneShotRun::slicing(const Plan& plan, uint64_t block, size_t element_bytes) {
  const uint64_t room = elements_that_fit(PostBoard::kPostBytes, most_posted(plan), element_bytes);
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

void OneShotRun::bind(const Binding& binding, IslandChannel& channel) {
  binding_ = binding;
  channel_ = &channel;
  const Plan& plan = *binding.plan;
  puts_.clear();
  takes_.clear();
  places_.clear();
  posts_read_.clear();
  block_ = 0;
  for (const Step& step : plan.steps) bind(step);
  rounds_ = puts_.empty() && takes_.empty() ? 1 : binding.slicing.rounds(block_);
  piece_ = kPieceBytes / binding.element_bytes;
  seen_.resize(static_cast<size_t>(plan.world));
  post_bytes_.resize(static_cast<size_t>(plan.world));
}

void OneShotRun::start(const RunStart& start) {
  static_cast<RunStart&>(binding_) = start;
  binding_.combine.user = start.user;
  round_ = 0;
  failure_ = {};
  observer_.begin(binding_.observed, start.sequence, 0);
  if (rounds_ > 0) begin_round();
}

void OneShotRun::bind(const Step& step) {
  const Ref* refs = binding_.plan->refs.data() + step.first;
  // A signal: a post is one, to all and from all.
  if (refs[0].space == Space::kMailbox) return;
  Move move;
  move.sources = refs;
  move.count = step.sources;
  bind_scales(step, move);
  bool takes = false;
  for (uint32_t i = 0; i < uint32_t{step.sources} + step.targets; ++i) {
    const Ref& ref = refs[i];
    const bool target = i >= step.sources;
    if (ref.space == Space::kInput) {
      move.input = binding_.blocks->input[ref.chunk].offset;
      block_ = binding_.blocks->input[ref.chunk].count;
    } else if (ref.space == Space::kOutput) {
      move.output = binding_.blocks->output[ref.chunk].offset;
      block_ = binding_.blocks->output[ref.chunk].count;
      move.stores = true;
    } else if (target) {
      move.posts = true;
      move.place = place_in_post(*binding_.plan, ref);
    } else {
      takes = true;
    }
  }
  if (!takes) return puts_.push_back(move);
  move.first = static_cast<uint32_t>(places_.size());
  for (uint32_t i = 0; i < step.sources; ++i) {
    places_.push_back(is_post(refs[i]) ? place_in_post(*binding_.plan, refs[i]) : 0);
    if (is_post(refs[i])) posts_read_.push_back(refs[i]);
  }
  takes_.push_back(move);
}

void OneShotRun::bind_scales(const Step& step, Move& move) const {
  for (uint32_t i = 0; i < step.sources; ++i) {
    if ((move.sources[i].flags & kScale) != 0 && combine_scales(binding_.combine)) move.scaled |= uint64_t{1} << i;
  }
  move.finish = (step.flags & kFinish) != 0 && combine_finishes(binding_.combine);
  move.copies = step.sources == 1 && move.scaled == 0 && !move.finish;
}

void OneShotRun::begin_round() {
  begin_ = round_ * binding_.slicing.slice;
  count_ = std::min(binding_.slicing.slice, block_ - std::min(block_, begin_));
  const auto& posts = binding_.plan->posts;
  for (size_t rank = 0; rank < posts.size(); ++rank) {
    post_bytes_[rank] = posts[rank].size() * count_ * binding_.element_bytes;
  }
  own_bytes_ = post_bytes_[static_cast<size_t>(binding_.plan->rank)];
  posted_ = false;
  next_take_ = 0;
  taken_ = 0;
  std::fill(seen_.begin(), seen_.end(), 0);
}

// Those who are behind may still be reading an earlier post, whose place the next takes.
bool OneShotRun::finds_room() {
  const PostBoard::Room room = channel_->board.make_room();
  if (room.sight == Sight::kThere) return true;
  if (room.sight == Sight::kCorrupt) refuse(RunFailure::Kind::kCorrupt, room.rank);
  observer_.awaits(room.rank);
  return false;
}

// Cost: one copy of what is posted, into memory that the others have in their caches.
void OneShotRun::post() {
  PostBoard& board = channel_->board;
  std::byte* place = board.begin(binding_.fingerprint, post_bytes_, flow_of(*binding_.plan));
  for (const Move& move : puts_) {
    for (uint64_t at = 0; at < count_; at += piece_) {
      const uint64_t count = std::min(piece_, count_ - at);
      put(move, place, at, count);
      if (!move.posts || own_bytes_ <= kPieceBytes) continue;
      const uint64_t ready = (move.place * count_ + at + count) * binding_.element_bytes;
      if (ready < own_bytes_) board.publish(static_cast<uint32_t>(ready), false);
    }
  }
  board.publish(static_cast<uint32_t>(own_bytes_), true);
  for (int rank = 0; rank < binding_.plan->world; ++rank) {
    if (rank != binding_.plan->rank) channel_->ring(rank);
  }
  posted_ = true;
}

void OneShotRun::put(const Move& move, std::byte* place, uint64_t at, uint64_t count) {
  const std::byte* from = input(move, at);
  const size_t bytes = count * binding_.element_bytes;
  std::byte* const post = move.posts ? place + (move.place * count_ + at) * binding_.element_bytes : nullptr;
  std::byte* const stored = move.stores ? output(move, at) : nullptr;
  if (move.copies) {
    if (post != nullptr) cross_copy(post, from, bytes, channel_->stores);
    if (stored != nullptr && stored != from) std::memcpy(stored, from, bytes);
    return;
  }
  void* targets[2];
  uint8_t target_count = 0;
  for (std::byte* const to : {post, stored}) {
    if (to != nullptr) targets[target_count++] = to;
  }
  const void* const source = from;
  fold(move, &source, {targets, target_count}, count);
}

void OneShotRun::refuse(RunFailure::Kind kind, int rank, uint64_t fingerprint) {
  failure_ = {kind, rank, nullptr, fingerprint, "a post that is none"};
}

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
    const bool waits = binding_.plan->collective == Collective::kBarrier;
    bool over = next_take_ == takes_.size();
    if (over && !look_at_all(waits)) over = !waits;
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

bool OneShotRun::take(const Move& move) {
  while (taken_ < count_) {
    if (!take_piece(move, std::min(piece_, count_ - taken_))) return false;
  }
  return true;
}

// Cost: one pass over the sources; those of the others come from their caches.
bool OneShotRun::take_piece(const Move& move, uint64_t count) {
  const void* from[kMaxCombineSources];
  const size_t element = binding_.element_bytes;
  for (uint32_t i = 0; i < move.count; ++i) {
    const Ref& ref = move.sources[i];
    if (ref.space == Space::kInput) {
      from[i] = input(move, taken_);
      continue;
    }
    const uint64_t at = places_[move.first + i] * count_ + taken_;
    if (!there(ref.peer, (at + count) * element)) return false;
    from[i] = channel_->board.payload_of(ref.peer, post_bytes_[ref.peer]) + at * element;
  }
  std::byte* to = output(move, taken_);
  if (move.copies) {
    std::memcpy(to, from[0], count * element);
  } else {
    void* const target = to;
    fold(move, from, {&target, 1}, count);
  }
  taken_ += count;
  ++moved_;
  return true;
}

void OneShotRun::fold(const Move& move, const void* const* from, std::span<void* const> to, uint64_t count) const {
  CombineMove combined;
  combined.sources = from;
  combined.targets = to.data();
  combined.source_count = move.count;
  combined.target_count = static_cast<uint8_t>(to.size());
  combined.scaled = move.scaled;
  combined.finish = move.finish;
  combine(binding_.combine, combined, count);
}

// Whether that many bytes of the rank's post of this round are there.
bool OneShotRun::there(int rank, uint64_t bytes) {
  uint32_t& seen = seen_[static_cast<size_t>(rank)];
  if (seen > bytes) return true;
  const PostBoard::Look look = channel_->board.look(rank);
  if (look.sight == Sight::kNothing || look.ready < bytes) observer_.awaits(rank);
  if (look.sight == Sight::kNothing) return false;
  const bool other = look.sight == Sight::kThere && look.fingerprint != binding_.fingerprint;
  if (look.sight == Sight::kCorrupt || other || look.ready > post_bytes_[static_cast<size_t>(rank)]) {
    refuse(other ? RunFailure::Kind::kOtherCall : RunFailure::Kind::kCorrupt, rank, look.fingerprint);
    return false;
  }
  seen = look.ready + 1;
  return seen > bytes;
}

// Looks once at each rank of which nothing was taken. False: one has not come, at which a rank that waits stops.
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
