#include "ring/plan/machine.h"

#include <algorithm>

#include "ring/base/check.h"
#include "ring/plan/describe.h"
#include "ring/plan/structure.h"

namespace rondo {
namespace {

size_t peer_index(const Plan& plan, int peer) {
  return static_cast<size_t>(std::lower_bound(plan.peers.begin(), plan.peers.end(), peer) - plan.peers.begin());
}

bool mailbox(const Ref& ref) { return ref.space == Space::kMailbox; }

}  // namespace

Machine::Machine(std::span<const Plan> plans, const Load& load, uint32_t depth, const CostModel& cost)
    : load_(load), depth_(depth), cost_(cost), ranks_(plans.size()) {
  RONDO_CHECK(load.block_bytes.size() == lengths_of(plans[0]), "a load for another plan");
  for (uint64_t bytes : load_.block_bytes) {
    rounds_ = std::max(rounds_, static_cast<uint32_t>(load_.cut.rounds(bytes)));
  }
  rounds_ = std::max(rounds_, 1u);
  for (uint32_t round = 0; round < rounds_; ++round) {
    for (uint64_t bytes : load_.block_bytes) {
      slice_counts_.push_back(load_.cut.slices(load_.cut.piece(bytes, load_.share, round).count));
    }
  }
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

void Machine::bind(Rank& rank, std::vector<uint32_t>& first_channel) {
  const Plan& plan = *rank.plan;
  const Lane& lane = plan.lanes[load_.lane];
  rank.steps.resize(lane.count);
  rank.ref_link.resize(plan.refs.size());
  for (uint32_t s = 0; s < lane.count; ++s) {
    const Step& step = plan.steps[lane.first + s];
    StepInfo& info = rank.steps[s];
    info.length = length_of(plan, step);
    for (uint32_t i = step.first; i < step.first + step.sources + step.targets; ++i) {
      const Ref& ref = plan.refs[i];
      const bool target = i >= step.first + step.sources;
      if (ref.space == Space::kWindow) continue;
      if (!mailbox(ref)) {
        info.writes |= target;
        info.writes_scratch |= target && ref.space == Space::kScratch;
        continue;
      }
      const size_t me = static_cast<size_t>(plan.rank), peer = ref.peer;
      rank.ref_link[i] =
          static_cast<uint32_t>(target ? first_channel[me] + peer_index(plan, ref.peer)
                                       : first_channel[peer] + peer_index(*(rank.plan - me + peer), plan.rank));
    }
    info.lands = info.writes && step.sources == 1 && mailbox(plan.refs[step.first]);
  }
  for (Cursor* cursor : {&rank.posted, &rank.combined, &rank.sent}) settle(rank, *cursor);
  enter_step(rank);
}

uint32_t Machine::slices_of(const Rank& rank, const Cursor& cursor) const {
  const uint32_t length = rank.steps[cursor.step].length;
  if (length == kSignalLength) return cursor.round == 0 || (step_at(rank, cursor).flags & kEachRound) != 0 ? 1 : 0;
  return slice_counts_[cursor.round * load_.block_bytes.size() + length];
}

uint64_t Machine::slice_bytes(const Rank& rank, const Cursor& cursor) const {
  const uint32_t length = rank.steps[cursor.step].length;
  if (length == kSignalLength) return 0;
  const uint64_t piece = load_.cut.piece(load_.block_bytes[length], load_.share, cursor.round).count;
  return std::min(load_.cut.slice, piece - cursor.slice * load_.cut.slice);
}

// Skips steps that have no slice in this round, into the next rounds and to the end.
void Machine::settle(const Rank& rank, Cursor& cursor) const {
  while (true) {
    if (cursor.step == rank.steps.size()) {
      cursor.step = 0;
      if (++cursor.round >= rounds_ || rank.steps.empty()) {
        cursor.at_end = true;
        return;
      }
    }
    if (cursor.slice < slices_of(rank, cursor)) return;
    cursor.slice = 0;
    ++cursor.step;
  }
}

void Machine::advance(const Rank& rank, Cursor& cursor) const {
  ++cursor.number;
  ++cursor.slice;
  settle(rank, cursor);
}

bool Machine::may_write(const Rank& rank, const Cursor& cursor) const {
  const StepInfo& info = rank.steps[cursor.step];
  const uint32_t after = step_at(rank, cursor).after;
  if (!info.writes) return true;
  if (cursor.round != rank.combined.round) return after == kNoStep && !info.writes_scratch;
  if (info.writes_scratch && rank.sent.number < rank.round_number) return false;
  if (after == kNoStep) return true;
  if (rank.combined.step < after) return false;
  return rank.sent.number > rank.steps[after].first_number + cursor.slice;
}

bool Machine::post(Rank& rank) {
  if (rank.posted.at_end) return false;
  const Step& step = step_at(rank, rank.posted);
  if (rank.steps[rank.posted.step].lands && !may_write(rank, rank.posted)) return false;
  for (uint32_t i = step.first; i < step.first + step.sources; ++i) {
    if (!mailbox(rank.plan->refs[i])) continue;
    const Channel& channel = channels_[rank.ref_link[i]];
    if (channel.posted - channel.combined >= depth_) return false;
  }
  for (uint32_t i = step.first; i < step.first + step.sources; ++i) {
    if (!mailbox(rank.plan->refs[i])) continue;
    ++channels_[rank.ref_link[i]].posted;
    wake(rank.plan->refs[i].peer);
  }
  advance(rank, rank.posted);
  return true;
}

// Why the next slice cannot be combined; nullptr if it can.
const char* Machine::obstacle(const Rank& rank, int& peer) const {
  const Step& step = step_at(rank, rank.combined);
  for (uint32_t i = step.first; i < step.first + step.sources + step.targets; ++i) {
    const Ref& ref = rank.plan->refs[i];
    if (!mailbox(ref)) continue;
    const Channel& channel = channels_[rank.ref_link[i]];
    peer = ref.peer;
    if (i >= step.first + step.sources) {
      if (channel.committed - channel.combined >= depth_) return "room on the link to";
    } else if (channel.committed == channel.combined) {
      return "a slice from";
    }
  }
  peer = -1;
  if (rank.combined.number == rank.posted.number) return "its own landing";
  return may_write(rank, rank.combined) ? nullptr : "its own earlier slices to be sent";
}

bool Machine::combine(Rank& rank) {
  int peer = -1;
  if (rank.combined.at_end || obstacle(rank, peer) != nullptr) return false;
  const Step& step = step_at(rank, rank.combined);
  const uint64_t bytes = slice_bytes(rank, rank.combined);
  rank.now_us = start_us(rank, step, bytes) +
                cost_.gamma_us_per_byte * static_cast<double>(bytes) * (step.sources > 1 ? step.sources - 1 : 0);
  for (uint32_t i = step.first; i < step.first + step.sources + step.targets; ++i) {
    if (!mailbox(rank.plan->refs[i])) continue;
    Channel& channel = channels_[rank.ref_link[i]];
    if (i >= step.first + step.sources) {
      commit(rank, channel, bytes);
    } else {
      freed_us_[channel.times + channel.combined % depth_] = rank.now_us;
      ++channel.combined;
    }
    wake(rank.plan->refs[i].peer);
  }
  rank.sent_us.push_back(std::max(rank.now_us, rank.out_free_us));
  ++slices_;
  const uint32_t round = rank.combined.round;
  advance(rank, rank.combined);
  if (rank.combined.round != round) rank.round_number = rank.combined.number;
  enter_step(rank);
  return true;
}

void Machine::enter_step(Rank& rank) {
  if (rank.combined.at_end || rank.combined.slice > 0) return;
  rank.steps[rank.combined.step].first_number = rank.combined.number;
}

// When everything that the slice needs is there; takes its incoming bytes through the port, first come first.
double Machine::start_us(Rank& rank, const Step& step, uint64_t bytes) {
  double start = rank.now_us;
  arrivals_us_.clear();
  for (uint32_t i = step.first; i < step.first + step.sources + step.targets; ++i) {
    if (!mailbox(rank.plan->refs[i])) continue;
    const Channel& channel = channels_[rank.ref_link[i]];
    if (i < step.first + step.sources) {
      arrivals_us_.push_back(
          {first_byte_us_[channel.times + channel.combined % depth_], channel.cost.beta_us_per_byte});
    } else if (channel.committed >= depth_) {
      start = std::max(start, freed_us_[channel.times + channel.committed % depth_]);
    }
  }
  std::sort(arrivals_us_.begin(), arrivals_us_.end());
  for (const auto& [first_byte, beta] : arrivals_us_) {
    rank.in_free_us = std::max(rank.in_free_us, first_byte) + beta * static_cast<double>(bytes);
    start = std::max(start, rank.in_free_us);
  }
  const StepInfo& info = rank.steps[rank.combined.step];
  if (info.writes && step.after != kNoStep) {
    start = std::max(start, rank.sent_us[rank.steps[step.after].first_number + rank.combined.slice]);
  }
  if (info.writes_scratch && rank.round_number > 0) start = std::max(start, rank.sent_us[rank.round_number - 1]);
  return start;
}

void Machine::commit(Rank& rank, Channel& channel, uint64_t bytes) {
  const double begin = std::max(rank.now_us, rank.out_free_us);
  rank.out_free_us = begin + channel.cost.beta_us_per_byte * static_cast<double>(bytes);
  first_byte_us_[channel.times + channel.committed % depth_] = begin + channel.cost.alpha_us;
  ++channel.committed;
}

bool Machine::send(Rank& rank) {
  if (rank.sent.number == rank.combined.number) return false;
  const Step& step = step_at(rank, rank.sent);
  const uint32_t first = step.first + step.sources, last = first + step.targets;
  for (uint32_t i = first; i < last; ++i) {
    if (!mailbox(rank.plan->refs[i])) continue;
    const Channel& channel = channels_[rank.ref_link[i]];
    if (channel.sent >= channel.posted) return false;
  }
  for (uint32_t i = first; i < last; ++i) {
    if (mailbox(rank.plan->refs[i])) ++channels_[rank.ref_link[i]].sent;
  }
  advance(rank, rank.sent);
  return true;
}

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
    finished &= rank.combined.at_end && rank.sent.at_end;
    finish_us_ = std::max({finish_us_, rank.now_us, rank.out_free_us});
  }
  return finished;
}

std::string Machine::stuck() const {
  for (const Rank& rank : ranks_) {
    if (rank.combined.at_end) continue;
    int peer = -1;
    const char* what = obstacle(rank, peer);
    std::string text = place_of(*rank.plan, load_.lane, rank.combined.step) + ", round " +
                       std::to_string(rank.combined.round) + ", slice " + std::to_string(rank.combined.slice) +
                       ": waits for ever for " + (what == nullptr ? "nothing" : what);
    return peer < 0 ? text : text + " rank " + std::to_string(peer);
  }
  for (const Rank& rank : ranks_) {
    if (!rank.sent.at_end) {
      return place_of(*rank.plan, load_.lane, rank.sent.step) + ": its slices are never sent";
    }
  }
  return "";
}

}  // namespace rondo
