#include "ring/plan/machine.h"

#include <algorithm>

#include "ring/base/check.h"
#include "ring/plan/describe.h"
#include "ring/plan/structure.h"

namespace rondo {
namespace {

// Requires that `peer` is one of plan.peers, which are sorted.
size_t peer_index(const Plan& plan, int peer) {
  return static_cast<size_t>(std::lower_bound(plan.peers.begin(), plan.peers.end(), peer) - plan.peers.begin());
}

bool mailbox(const Ref& ref) { return ref.space == Space::kMailbox; }

// Ranks arrive at a barrier by numbers that all of them see, without links.
bool uses_link(const Step& step, const Ref& ref) { return mailbox(ref) && step.barrier == 0; }

}  // namespace

Machine::Machine(std::span<const Plan> plans, const Load& load, uint32_t depth, const CostModel& cost)
    : load_(load), depth_(depth), cost_(cost), ranks_(plans.size()) {
  RONDO_CHECK(load.block_bytes.size() == lengths_of(plans[0]), "a load for another plan");
  std::vector<uint32_t> first_channel;
  for (const Plan& plan : plans) {
    first_channel.push_back(static_cast<uint32_t>(channels_.size()));
    for (int peer : plan.peers) {
      Channel channel;
      channel.receiver = peer;
      channel.cost = cost_of(plan.rank, peer);
      channel.times = channels_.size() * depth_;
      channels_.push_back(channel);
    }
  }
  first_byte_us_.resize(channels_.size() * depth_);
  freed_us_.resize(channels_.size() * depth_);
  for (size_t r = 0; r < plans.size(); ++r) {
    ranks_[r].plan = &plans[r];
    bind(ranks_[r], first_channel);
    wake(static_cast<int>(r));
  }
}

const PairCost& Machine::cost_of(int a, int b) const {
  return cost_.of(load_.topology.host.empty() ? PairKind::kLoopback : pair_kind(load_.topology, a, b));
}

// Finds the channel of every mailbox once, so that the run itself looks nothing up.
void Machine::bind(Rank& rank, std::vector<uint32_t>& first_channel) {
  const Plan& plan = *rank.plan;
  rank.walk.start(plan, load_.slicing);
  rank.ref_link.resize(plan.refs.size());
  const Step* steps = plan.steps.data();
  for (WalkStep& bound : rank.walk.steps()) {
    const Step& step = *steps++;
    const std::span<const Ref> refs = refs_of(plan, step);
    bound.counted = load_.counted && std::any_of(refs.begin(), refs.end(), mailbox);
    if (!bound.signal()) rank.walk.set_block(bound, load_.block_bytes[length_of(plan, step)]);
    for (uint32_t i = step.first; i < step.first + step.sources + step.targets; ++i) {
      const Ref& ref = plan.refs[i];
      if (!mailbox(ref)) continue;
      const size_t me = static_cast<size_t>(plan.rank), peer = ref.peer;
      rank.ref_link[i] = static_cast<uint32_t>(
          i >= step.first + step.sources ? first_channel[me] + peer_index(plan, ref.peer)
                                         : first_channel[peer] + peer_index(*(rank.plan - me + peer), plan.rank));
    }
  }
  rank.walk.need_rounds(load_.slicing.rounds(*std::max_element(load_.block_bytes.begin(), load_.block_bytes.end())));
  rank.walk.begin();
  rank.sent = rank.walk.first_cursor();
}

// Posts the landings of the next slice, all or none. In the order of the plan: what may not be written yet blocks the
// rest.
bool Machine::post(Rank& rank) {
  const Cursor& cursor = rank.walk.posted();
  if (cursor.at_end) return false;
  const Step& step = step_at(rank, cursor);
  if (rank.walk.step_at(cursor).lands && !rank.walk.may_write(cursor)) return false;
  for (uint32_t i = step.first; i < step.first + step.sources; ++i) {
    if (!uses_link(step, rank.plan->refs[i])) continue;
    const Channel& channel = channels_[rank.ref_link[i]];
    if (channel.posted - channel.combined >= depth_) return false;
  }
  for (uint32_t i = step.first; i < step.first + step.sources; ++i) {
    if (!uses_link(step, rank.plan->refs[i])) continue;
    ++channels_[rank.ref_link[i]].posted;
    wake(rank.plan->refs[i].peer);
  }
  rank.walk.pass_posted();
  return true;
}

// A rank that has yet to arrive at the barrier where `rank` waits; -1 if none.
int Machine::absent(const Rank& rank) const {
  const Step& step = step_at(rank, rank.walk.combined());
  if (step.barrier == 0) return -1;
  for (const Ref& ref : sources_of(*rank.plan, step)) {
    if (ranks_[ref.peer].arrived_us.size() < rank.walk.barrier_number(rank.walk.combined())) return ref.peer;
  }
  return -1;
}

// All ranks see the arrival. Those that may be waiting at the barrier are tried again.
void Machine::arrive(Rank& rank, const Step& step) {
  if (step.barrier == 0 || step.targets == 0) return;
  const size_t number = rank.walk.barrier_number(rank.walk.combined());
  rank.arrived_us.resize(std::max(rank.arrived_us.size(), number), rank.now_us);
  for (const Ref& ref : targets_of(*rank.plan, step)) wake(ref.peer);
}

// Why the next slice cannot be combined; nullptr if it can.
const char* Machine::obstacle(const Rank& rank, int& peer) const {
  const Step& step = step_at(rank, rank.walk.combined());
  for (uint32_t i = step.first; i < step.first + step.sources + step.targets; ++i) {
    const Ref& ref = rank.plan->refs[i];
    if (!uses_link(step, ref)) continue;
    const Channel& channel = channels_[rank.ref_link[i]];
    peer = ref.peer;
    if (i >= step.first + step.sources) {
      if (channel.committed - channel.combined >= depth_) return "room on the link to";
    } else if (channel.committed == channel.combined) {
      return "a slice from";
    }
  }
  peer = absent(rank);
  if (peer >= 0) return "the arrival at a barrier of";
  if (!rank.walk.may_combine()) return "its own landing";
  return rank.walk.may_write(rank.walk.combined()) ? nullptr : "its own earlier slices to be sent";
}

// Takes a slice's sources, folds, and commits its targets, at the earliest time that the model allows.
bool Machine::combine(Rank& rank) {
  int peer = -1;
  const Cursor& cursor = rank.walk.combined();
  if (cursor.at_end || obstacle(rank, peer) != nullptr) return false;
  const Step& step = step_at(rank, cursor);
  const uint64_t bytes = rank.walk.span_of(cursor).count;
  rank.now_us = start_us(rank, step, bytes) + work_us(rank, step, bytes);
  for (uint32_t i = step.first; i < step.first + step.sources + step.targets; ++i) {
    if (!uses_link(step, rank.plan->refs[i])) continue;
    Channel& channel = channels_[rank.ref_link[i]];
    if (i >= step.first + step.sources) {
      commit(rank, channel, bytes);
    } else {
      freed_us_[channel.times + channel.combined % depth_] = rank.now_us;
      ++channel.combined;
    }
    wake(rank.plan->refs[i].peer);
  }
  arrive(rank, step);
  rank.sent_us.push_back(std::max(rank.now_us, rank.out_free_us));
  ++slices_;
  if (moves_ != nullptr)
    moves_->push_back({rank.plan->rank, cursor.round, cursor.step, cursor.slice, bytes, rank.now_us});
  rank.walk.pass_combined();
  return true;
}

// When everything that the slice needs is there; takes its incoming bytes through the port, first come first.
double Machine::start_us(Rank& rank, const Step& step, uint64_t bytes) {
  const Cursor& cursor = rank.walk.combined();
  double start = rank.now_us;
  arrivals_.clear();
  for (uint32_t i = step.first; i < step.first + step.sources + step.targets; ++i) {
    if (!uses_link(step, rank.plan->refs[i])) continue;
    const Channel& channel = channels_[rank.ref_link[i]];
    if (i < step.first + step.sources) {
      const size_t slot = channel.times + channel.combined % depth_;
      arrivals_.push_back({first_byte_us_[slot], channel.cost.beta_us_per_byte, slot});
    } else if (channel.committed >= depth_) {
      start = std::max(start, freed_us_[channel.times + channel.committed % depth_]);
    }
  }
  std::sort(arrivals_.begin(), arrivals_.end());
  for (const Arrival& arrival : arrivals_) {
    rank.in_free_us =
        std::max(rank.in_free_us, arrival.first_byte_us) + arrival.beta_us_per_byte * static_cast<double>(bytes);
    start = std::max(start, rank.in_free_us);
    if (transfers_ != nullptr) (*transfers_)[transfer_[arrival.slot]].end_us = rank.in_free_us;
  }
  for (const Ref& ref : sources_of(*rank.plan, step)) {
    if (step.barrier == 0) break;
    const double arrived = ranks_[ref.peer].arrived_us[rank.walk.barrier_number(cursor) - 1];
    start = std::max(start, arrived + cost_of(ref.peer, rank.plan->rank).alpha_us);
  }
  const WalkStep& bound = rank.walk.step_at(cursor);
  if (bound.writes && step.after != kNoStep) {
    const uint64_t first = rank.walk.steps()[step.after].first_number;
    start = std::max(start, rank.sent_us[first + cursor.slice]);
  }
  const uint64_t round_number = rank.walk.round_number();
  if (bound.writes_scratch && round_number > 0) start = std::max(start, rank.sent_us[round_number - 1]);
  return start;
}

// A fold, or a copy from or to memory that another rank reaches. What a port brings or takes is not copied besides.
double Machine::work_us(const Rank& rank, const Step& step, uint64_t bytes) const {
  uint64_t windows = 0, posts = 0;
  for (const Ref& ref : refs_of(*rank.plan, step)) {
    windows += ref.space == Space::kWindow;
    posts += ref.space == Space::kWindow && (ref.flags & kTurns) != 0;
  }
  const auto m = static_cast<double>(bytes);
  if (posts > 0) return cost_.post_us_per_byte * m * static_cast<double>(posts);
  if (step.sources > 1) return cost_.gamma_us_per_byte * m * (step.sources - 1);
  return cost_.copy_us_per_byte * m * static_cast<double>(windows);
}

// A slice takes the sender's port for its bytes, one slice at a time, and its first byte is there alpha later.
void Machine::commit(Rank& rank, Channel& channel, uint64_t bytes) {
  const double begin = std::max(rank.now_us, rank.out_free_us);
  rank.out_free_us = begin + channel.cost.beta_us_per_byte * static_cast<double>(bytes);
  first_byte_us_[channel.times + channel.committed % depth_] = begin + channel.cost.alpha_us;
  if (transfers_ != nullptr) record_transfer(rank, channel, bytes, begin);
  ++channel.committed;
}

void Machine::record_transfer(const Rank& rank, const Channel& channel, uint64_t bytes, double begin_us) {
  transfer_[channel.times + channel.committed % depth_] = transfers_->size();
  transfers_->push_back({rank.plan->rank, channel.receiver, rank.walk.combined().step, bytes, begin_us, begin_us});
}

// Slices are sent in order, and only when every receiver has posted a landing: the strictest reading of the contract.
bool Machine::send(Rank& rank) {
  if (rank.sent.number == rank.walk.combined().number) return false;
  const Step& step = step_at(rank, rank.sent);
  const uint32_t first = step.first + step.sources, last = first + step.targets;
  for (uint32_t i = first; i < last; ++i) {
    if (!uses_link(step, rank.plan->refs[i])) continue;
    const Channel& channel = channels_[rank.ref_link[i]];
    if (channel.sent >= channel.posted) return false;
  }
  for (uint32_t i = first; i < last; ++i) {
    if (uses_link(step, rank.plan->refs[i])) ++channels_[rank.ref_link[i]].sent;
  }
  rank.walk.advance(rank.sent);
  rank.walk.set_sent(rank.sent.number);
  return true;
}

// Only a rank for which something has changed is tried again: time is linear in the moves, not in ranks times moves.
void Machine::wake(int rank) {
  if (ranks_[static_cast<size_t>(rank)].queued) return;
  ranks_[static_cast<size_t>(rank)].queued = true;
  ready_.push_back(rank);
}

bool Machine::run() {
  for (size_t next = 0; next < ready_.size(); ++next) {
    Rank& rank = ranks_[static_cast<size_t>(ready_[next])];
    rank.queued = false;
    for (bool moved = true; moved;) {
      moved = false;
      while (post(rank)) moved = true;
      while (combine(rank)) moved = true;
      while (send(rank)) moved = true;
    }
    if (next >= ranks_.size()) {  // forget those that are dealt with
      ready_.erase(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(next) + 1);
      next = static_cast<size_t>(-1);
    }
  }
  bool finished = true;
  for (const Rank& rank : ranks_) {
    finished &= rank.walk.done();
    finish_us_ = std::max({finish_us_, rank.now_us, rank.out_free_us});
  }
  return finished;
}

// After run() has returned false. Names the first rank that waits, and for whom.
std::string Machine::stuck() const {
  for (const Rank& rank : ranks_) {
    const Cursor& cursor = rank.walk.combined();
    if (cursor.at_end) continue;
    int peer = -1;
    const char* what = obstacle(rank, peer);
    std::string text = place_of(*rank.plan, cursor.step) + ", round " + std::to_string(cursor.round) + ", slice " +
                       std::to_string(cursor.slice) + ": waits for ever for " + (what == nullptr ? "nothing" : what);
    return peer < 0 ? text : text + " rank " + std::to_string(peer);
  }
  for (const Rank& rank : ranks_) {
    if (!rank.walk.done()) {
      return place_of(*rank.plan, rank.sent.step) + ": its slices are never sent";
    }
  }
  return "";
}

}  // namespace rondo
