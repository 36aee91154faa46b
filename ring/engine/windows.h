#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ring/engine/call.h"
#include "ring/engine/group_context.h"
#include "ring/engine/lane_run.h"
#include "ring/engine/plans.h"

namespace rondo {

// What a call over windows needs before its plan can run: every rank tells every other where its buffers lie, and from
// what all have told all choose the same plan. The telling is a direct all_gather of one card a rank, run by the same
// executor, with the call's own tags: so it compares the fingerprints and is a barrier, too. Under the lease.
class Windows {
 public:
  explicit Windows(std::shared_ptr<GroupContext> context);

  // The plan by which cards are exchanged, and what it is bound to for this call. Throws Exception(kSystem) if there is
  // no memory for staging.
  const std::shared_ptr<const Plan>& meeting_plan() const { return meeting_plan_; }
  Binding meet(const CheckedCall& call, uint64_t sequence, uint64_t fingerprint);

  // After the meeting: which plan all ranks run (kStaged, kPull, kRegistered). Throws Exception(kInvalid), on all
  // ranks, if the caller asked for one that their buffers do not allow.
  Algorithm choose(const CheckedCall& call) const;
  // What the windows of that plan are bound to; until the next meeting. nullptr: one is on its way; ask again.
  const WindowBinding* bind(const CheckedCall& call, const Plan& plan, const Cut& cut);

 private:
  // What a rank tells. 64 bytes: one cache line.
  struct Card {
    WindowPlace input, output;
    uint64_t input_address = 0, output_address = 0;
    uint64_t staging = 0;  // a window
    uint64_t unused = 0;
  };
  static_assert(sizeof(Card) == 64);

  bool registered(const CheckedCall& call, const Card& card, int rank) const;
  bool bind(const Ref& ref);
  bool find(int rank, const WindowPlace& place, std::byte*& data);
  Card& card(int rank) { return cards_[static_cast<size_t>(rank)]; }
  const Card& card(int rank) const { return cards_[static_cast<size_t>(rank)]; }

  std::shared_ptr<GroupContext> context_;  // shared with the communicator
  std::shared_ptr<const Plan> meeting_plan_;
  Blocks card_blocks_;
  std::vector<Card> cards_;          // by rank
  std::shared_ptr<Window> staging_;  // this rank's; the others map it
  WindowBinding binding_;
  std::vector<std::shared_ptr<Window>> held_;  // windows that binding_ points into: they stay mapped
};

}  // namespace rondo
