#include "ring/engine/run/bound_run.h"

#include <utility>

#include "ring/engine/run/slicing.h"

namespace rondo {
namespace {

// A result of this size has left the last-level cache before it is read, so it is stored past the caches
// (docs/tuning.md, "Stores that another core reads").
constexpr uint64_t kStreamBytes = 16 * 1024 * 1024;

}  // namespace

LinkTable::LinkTable(const CommunicatorContext& context) : context_(context), links_(context.members.size()) {}

// All missing links are asked for before the first is waited for: they connect at the same time.
bool LinkTable::take(const Plan& plan) {
  bool complete = true;
  for (const int peer : plan.peers) {
    std::unique_ptr<Link>& link = links_[static_cast<size_t>(peer)];
    if (link) continue;
    link = context_.fabric->take_link({context_.id, context_.world_rank(peer)}, link_shape(context_.config));
    complete &= link != nullptr;
  }
  return complete;
}

std::span<Link* const> LinkTable::of(const Plan& plan) {
  plan_links_.clear();
  for (const int peer : plan.peers) plan_links_.push_back(links_[static_cast<size_t>(peer)].get());
  return plan_links_;
}

// Gives the links back to the fabric. No run may use them afterwards.
void LinkTable::close() {
  for (std::unique_ptr<Link>& link : links_) link.reset();
}

BoundRun::BoundRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const Slicing& slicing,
                   const CommunicatorContext& context)
    : plan_(std::move(plan)),
      blocks_(lay_out_blocks(call, *plan_, slicing)),
      binding_(binding_of(call, *plan_, blocks_, slicing)) {
  binding_.observed = &context.observed;
}

void BoundRun::start(const RunStart& start) {
  if (bound_) return run_.start_again(start);
  binding_.begin(start);
  run_.start(binding_, links());
  bound_ = true;
}

LinkRun::LinkRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const CommunicatorContext& context,
                 LinkTable& table)
    : BoundRun(call, plan, choose_slicing(call, *plan, context.config, context.topology), context), table_(table) {}

// A link keeps the last tag whose note differed from the posted one: there it shows the peer's op.
Run::OtherOp LinkRun::other_op() {
  const std::span<Link* const> links = table_.of(*plan_);
  for (size_t i = 0; i < links.size(); ++i) {
    const SliceTag got = links[i]->refused().got;
    if (got.sequence != 0) return {plan_->peers[i], static_cast<Op>(fingerprint_note(got.fingerprint))};
  }
  return {};
}

WindowRun::WindowRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, uint64_t round_bytes,
                     const CommunicatorContext& context, IslandMemory& island, const std::vector<CallCard>& cards)
    : BoundRun(call, plan, choose_window_slicing(call, *plan, round_bytes), context),
      call_(call),
      cards_(cards),
      windows_(context, island) {
  binding_.windows = &windows_.binding();
  binding_.streams = call.total_bytes(context.world()) >= kStreamBytes;
}

// Binds the windows of this call's cards. The run holds addresses in them, so a new binding makes it bind anew.
bool WindowRun::ready() {
  const BoundWindows::Bound bound = windows_.bind(call_, *plan_, binding_.slicing, cards_);
  if (bound != BoundWindows::Bound::kAsBefore) bound_ = false;
  return bound != BoundWindows::Bound::kNotYet;
}

}  // namespace rondo
