#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/run/bound_windows.h"
#include "ring/engine/run/plan_run.h"
#include "ring/engine/run/run.h"
#include "ring/plan/plan.h"
#include "transport/link.h"

namespace rondo {

// The links of one communicator's collectives, by rank. They are made at the first plan that needs them, and kept until
// close(). It owns them. Under the lease.
class LinkTable {
 public:
  explicit LinkTable(const CommunicatorContext& context);

  // True once every link of the plan is there. Asks the fabric for those that are missing.
  bool take(const Plan& plan);
  // In the order of the plan's peers. Requires take(). Valid until the next call of this.
  std::span<Link* const> of(const Plan& plan);
  void close();

 private:
  const CommunicatorContext& context_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank of the group; null until the fabric has made it
  std::vector<Link*> plan_links_;             // of()
};

// Runs a plan that is bound to calls of one shape. What the constructors refer to must outlive it.
class BoundRun : public Run {
 public:
  void start(const RunStart& start) override;
  bool progress(Pass pass) override { return run_.progress(pass); }
  bool done() const override { return run_.done(); }
  uint64_t moved() override { return run_.combined(); }
  RunFailure failure() override { return run_.failure(); }
  WireNote not_finite() override { return run_.not_finite(); }

 protected:
  BoundRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const Slicing& slicing,
           const CommunicatorContext& context);
  virtual std::span<Link* const> links() = 0;

  const std::shared_ptr<const Plan> plan_;  // shared with the cache
  // The blocks of this call; binding_ refers to them and to *plan_.
  const Blocks blocks_;
  Binding binding_;     // the run has a copy, which alone is of the call under way
  bool bound_ = false;  // the next start() changes pointers only

 private:
  PlanRun run_;
};

// Over links.
class LinkRun final : public BoundRun {
 public:
  LinkRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, const CommunicatorContext& context,
          LinkTable& table);
  bool ready() override { return bound_ || table_.take(*plan_); }
  OtherOp other_op() override;

 private:
  std::span<Link* const> links() override { return table_.of(*plan_); }

  LinkTable& table_;
};

// Over windows: the memory of the island, whose ranks meet by the channel.
class WindowRun final : public BoundRun {
 public:
  // round_bytes: of a rank, at most in one round. cards: of the call that runs next.
  WindowRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, uint64_t round_bytes,
            const CommunicatorContext& context, IslandMemory& island, const std::vector<CallCard>& cards);
  bool ready() override;
  void end() override { windows_.release(); }

 private:
  std::span<Link* const> links() override { return {}; }

  const CheckedCall& call_;
  const std::vector<CallCard>& cards_;
  BoundWindows windows_;
};

}  // namespace rondo
