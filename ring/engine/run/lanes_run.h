#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/run/bound_windows.h"
#include "ring/engine/run/lane_run.h"
#include "ring/engine/run/run.h"
#include "ring/plan/plan.h"
#include "transport/link.h"

namespace rondo {

// The links of one communicator's collectives, by lane and rank. They are made at the first plan that needs
// them, and kept until close(). It owns them. Under the lease.
class LinkTable {
 public:
  explicit LinkTable(const CommunicatorContext& context);

  // True once every link of the plan is there. Asks the fabric for those that are missing.
  bool take(const Plan& plan);
  // The links of a lane in the order of the plan's peers. Requires take(). Valid until the next call of this.
  std::span<Link* const> of(const Plan& plan, uint32_t lane);
  void close();

 private:
  // Null until the fabric has made it. peer: a rank of the group.
  std::unique_ptr<Link>& link(uint32_t lane, int peer) {
    return links_[lane * static_cast<size_t>(context_.world()) + static_cast<size_t>(peer)];
  }

  const CommunicatorContext& context_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Link*> lane_links_;  // of()
};

// Runs a plan by its lanes, which move in turn on the thread that has the lease. What the constructors refer to
// must outlive it.
class LanesRun : public Run {
 public:
  void start(const RunStart& start) override;
  bool progress(Pass pass) override;
  bool done() const override { return done_; }
  uint64_t moved() override;
  RunFailure failure() override;
  WireNote not_finite() override;

 protected:
  LanesRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const Slicing& slicing,
           const CommunicatorContext& context);
  virtual std::span<Link* const> links_of(uint32_t lane) = 0;

  const std::shared_ptr<const Plan> plan_;  // shared with the cache
  // The blocks of this call; binding_ refers to them and to *plan_.
  const Blocks blocks_;
  Binding binding_;
  bool bound_ = false;  // the lanes are bound: the next start() changes pointers only

 private:
  std::vector<LaneRun> lanes_;
  bool done_ = false;
};

// Over links.
class LinkRun final : public LanesRun {
 public:
  LinkRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const CommunicatorContext& context,
          LinkTable& links);
  bool ready() override { return bound_ || links_.take(*plan_); }
  OtherOp other_op() override;

 private:
  std::span<Link* const> links_of(uint32_t lane) override { return links_.of(*plan_, lane); }

  LinkTable& links_;
};

// Over windows: the memory of the island, whose ranks meet by the channel.
class WindowRun final : public LanesRun {
 public:
  // round_bytes: of a rank, at most in one round. cards: of the call that runs next.
  WindowRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, uint64_t round_bytes,
            const CommunicatorContext& context, IslandMemory& island, const std::vector<CallCard>& cards);
  bool ready() override;
  void end() override { windows_.release(); }

 private:
  std::span<Link* const> links_of(uint32_t) override { return {}; }

  const CheckedCall& call_;
  const std::vector<CallCard>& cards_;
  BoundWindows windows_;
};

}  // namespace rondo
