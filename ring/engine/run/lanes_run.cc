#include "ring/engine/run/lanes_run.h"

#include <utility>

#include "ring/engine/run/slicing.h"

namespace rondo {
namespace {

// A result of this size has left the last-level cache before it is read, so it is stored past the caches
// (docs/tuning.md, "Stores that another core reads").
constexpr uint64_t kStreamBytes = 16 * 1024 * 1024;

}  // namespace

LinkTable::LinkTable(const CommunicatorContext& context)
    : context_(context), links_(size_t{context.config.lanes} * context.members.size()) {}

// All missing links are asked for before the first is waited for: they connect at the same time.
bool LinkTable::take(const Plan& plan) {
  bool complete = true;
  for (uint32_t lane = 0; lane < plan.lanes.size(); ++lane) {
    for (const int peer : plan.peers) {
      std::unique_ptr<Link>& slot = link(lane, peer);
      if (slot) continue;
      slot = context_.fabric->take_link({context_.id, context_.world_rank(peer), static_cast<int>(lane)},
                                        link_shape(context_.config));
      complete &= slot != nullptr;
    }
  }
  return complete;
}

std::span<Link* const> LinkTable::of(const Plan& plan, uint32_t lane) {
  lane_links_.clear();
  for (const int peer : plan.peers) lane_links_.push_back(link(lane, peer).get());
  return lane_links_;
}

// Gives the links back to the fabric. No run may use them afterwards.
void LinkTable::close() {
  for (std::unique_ptr<Link>& slot : links_) slot.reset();
}

LanesRun::LanesRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const Slicing& slicing,
                   const CommunicatorContext& context)
    : plan_(std::move(plan)),
      blocks_(lay_out_blocks(call, *plan_, slicing)),
      binding_(binding_of(call, *plan_, blocks_, slicing)),
      lanes_(plan_->lanes.size()) {
  binding_.observed = &context.observed;
}

void LanesRun::start(const RunStart& start) {
  binding_.begin(start);
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    bound_ ? lanes_[lane].start_again(start) : lanes_[lane].start(binding_, lane, links_of(lane));
  }
  bound_ = true;
  done_ = false;
}

// A pass over all lanes. Each has its own links, so none waits for another.
bool LanesRun::progress(Pass pass) {
  bool moved = false;
  done_ = true;
  for (LaneRun& lane : lanes_) {
    if (lane.done()) continue;
    moved |= lane.progress(pass);
    done_ &= lane.done();
  }
  return moved;
}

uint64_t LanesRun::moved() {
  uint64_t sum = 0;
  for (const LaneRun& lane : lanes_) sum += lane.combined();
  return sum;
}

WireNote LanesRun::not_finite() {
  WireNote note;
  for (const LaneRun& lane : lanes_) note = earlier(note, lane.not_finite());
  return note;
}

// The first lane's that has one: the rest stand still for the same reason, mostly.
RunFailure LanesRun::failure() {
  for (const LaneRun& lane : lanes_) {
    const RunFailure failure = lane.failure();
    if (failure.kind != RunFailure::Kind::kNone) return failure;
  }
  return {};
}

LinkRun::LinkRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const CommunicatorContext& context,
                 LinkTable& links)
    : LanesRun(call, plan, choose_slicing(call, *plan, context.config, context.topology), context), links_(links) {}

// A link keeps the last tag whose note differed from the posted one: there it shows the peer's op.
Run::OtherOp LinkRun::other_op() {
  for (uint32_t lane = 0; lane < plan_->lanes.size(); ++lane) {
    const std::span<Link* const> links = links_of(lane);
    for (size_t i = 0; i < links.size(); ++i) {
      const SliceTag got = links[i]->refused().got;
      if (got.sequence != 0) return {plan_->peers[i], static_cast<Op>(fingerprint_note(got.fingerprint))};
    }
  }
  return {};
}

WindowRun::WindowRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, uint64_t round_bytes,
                     const CommunicatorContext& context, IslandMemory& island, const std::vector<CallCard>& cards)
    : LanesRun(call, plan, choose_window_slicing(call, *plan, round_bytes), context),
      call_(call),
      cards_(cards),
      windows_(context, island) {
  binding_.windows = &windows_.binding();
  binding_.streams = call.total_bytes(context.world()) >= kStreamBytes;
}

// Binds the windows of this call's cards. Lanes hold addresses in them, so a new binding makes them bind anew.
bool WindowRun::ready() {
  const BoundWindows::Bound bound = windows_.bind(call_, *plan_, binding_.slicing, cards_);
  if (bound != BoundWindows::Bound::kAsBefore) bound_ = false;
  return bound != BoundWindows::Bound::kNotYet;
}

}  // namespace rondo
