#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ring/base/log.h"
#include "ring/engine/call.h"
#include "ring/engine/copy_choice.h"
#include "ring/engine/cut.h"
#include "ring/engine/group_context.h"
#include "ring/engine/lane_run.h"
#include "ring/engine/one_shot.h"
#include "ring/engine/operation.h"
#include "ring/engine/plans.h"

namespace rondo {

// The memory that the ranks of an island share for one communicator, and what a call over windows needs before its plan
// can run. Under the lease.
//
// Introduction, once: every rank tells every other, over links, which window holds its board and its staging memory.
// Meeting, before each call over windows: every rank tells, by its board, where its buffers lie, and from what all have
// told all choose the same plan. Both carry the call's own fingerprint, so they compare the calls; and are barriers.
class Windows {
 public:
  explicit Windows(std::shared_ptr<GroupContext> context);

  // --- introduction
  bool introduced() const { return noticeboard_.board.attached(); }
  // The plan by which it goes, and what it is bound to. Throws Exception(kSystem) if there is no memory to share.
  const std::shared_ptr<const Plan>& introduction_plan() const { return introduction_plan_; }
  Binding introduce(uint64_t sequence, uint64_t fingerprint);
  // Afterwards. False: somebody's window is on its way; ask again.
  bool attach();
  Noticeboard& noticeboard() { return noticeboard_; }

  // Instead of a meeting: such a call goes over links, since the last one that asked did, for its buffers were not
  // registered. Of the same calls all ranks are told the same; now and then one has to ask again.
  bool known_plain(const CheckedCall& call) const;
  void did_not_ask(const CheckedCall& call);  // that has begun over links

  // --- meeting
  // Begins it; then meeting() is to be run.
  void meet(const CheckedCall& call, uint64_t fingerprint);
  OneShotRun& meeting() { return meeting_; }
  uint64_t met() const { return meeting_.moved(); }  // of all meetings; grows while one comes on
  // After the meeting: which plan all ranks run (kStaged, kPull, kRegistered, kOneShot, or the call's own algorithm
  // where that goes over links). Throws Exception(kInvalid), on all ranks, if the caller asked for one that their
  // buffers do not allow.
  Algorithm choose(const CheckedCall& call);
  // What the windows of that plan are bound to; until the next bind(). nullptr: one is on its way; ask again.
  const WindowBinding* bind(const CheckedCall& call, const Plan& plan, const Cut& cut);
  // The number of the last bind(), from 1 on.
  uint64_t bound() const { return bound_; }
  // Instead of choose() and bind(): the last bind() holds for this call, too, since all have told at this meeting what
  // they told before that one. False: it does not. All ranks choose alike, whichever way they go.
  bool take_bound();
  // The plan that choose() named has run.
  void finished();

 private:
  // What a rank tells at a meeting.
  struct Card {
    WindowPlace input, output;
    uint64_t input_address = 0, output_address = 0;
    uint64_t took_ns = 0;  // of what was timed since the last meeting; 0: nothing was
    bool operator==(const Card&) const = default;
  };

  // Calls that do not ask after one that asked in vain. A meeting is up to a quarter of a call (plans.cc), and
  // registered buffers go over links for so long after plain ones.
  static constexpr uint32_t kCallsUnasked = 31;
  // Kinds of calls that are known to go over links.
  static constexpr size_t kMostPlain = 1024;

  // Between trials of the ways to copy, calls. Six trials, of which half take up to three times as long.
  static constexpr uint64_t kCallsBetweenTrials = 2048;

  // An operation by which CopyChoice learns.
  struct Timed {
    Collective collective;
    uint64_t bytes;
    Clock::time_point began;
    uint64_t took_ns = 0;
  };

  using CallSize = std::pair<Collective, uint64_t>;  // bytes
  CallSize size_of(const CheckedCall& call) const { return {call.collective, call.total_bytes(context_->world())}; }

  size_t shared_bytes() const;
  void learn();
  Algorithm chosen_way(const CheckedCall& call);
  void show(const CheckedCall& call, Algorithm algorithm);
  bool registered(const CheckedCall& call, const Card& card, int rank) const;
  bool bind(const Ref& ref, const BufferBytes& bytes);
  bool find(int rank, const WindowPlace& place, uint64_t bytes, std::byte*& data);
  Card& card(int rank) { return cards_[static_cast<size_t>(rank)]; }
  const Card& card(int rank) const { return cards_[static_cast<size_t>(rank)]; }

  std::shared_ptr<GroupContext> context_;  // shared with the communicator
  std::shared_ptr<const Plan> introduction_plan_, meeting_plan_;
  Blocks id_blocks_, card_blocks_;
  std::vector<uint64_t> ids_;       // of the ranks' windows with a board and staging memory
  std::shared_ptr<Window> shared_;  // this rank's; the others map it
  std::vector<std::shared_ptr<Window>> theirs_;
  Noticeboard noticeboard_;
  OneShotRun meeting_;
  std::vector<Card> cards_, bound_cards_;  // by rank
  CopyChoice copies_;
  uint64_t calls_ = 0;  // that have met; the same number on all ranks
  std::optional<Timed> timed_;
  bool settled_ = false;  // of the last bind(): the same cards will lead to the same choice
  Logger log_;
  std::map<std::pair<Collective, int>, Algorithm> shown_;  // by power of two of bytes
  std::map<CallSize, uint32_t> plain_;                     // calls that need not ask, from now on
  WindowBinding binding_;
  uint64_t bound_ = 0;
  // What binding_ points into, with the last bind(); and while an operation runs on it: then it stays mapped, whatever
  // its makers do. Afterwards they alone decide.
  std::vector<std::weak_ptr<Window>> bound_windows_;
  std::vector<std::shared_ptr<Window>> in_use_;
};

}  // namespace rondo
