#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/combine.h"
#include "ring/engine/peer_memory.h"
#include "ring/plan/layout.h"
#include "ring/plan/plan.h"
#include "ring/plan/walk.h"
#include "transport/link.h"

namespace rondo {

// What one call binds a plan to. The memory behind the pointers must stay valid until every lane is done or abandoned.
struct Binding {
  const Plan* plan = nullptr;
  const Blocks* blocks = nullptr;
  Cut cut;
  CombineSpec combine;
  size_t element_bytes = 4;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint64_t sequence = 0;     // of every slice's tag
  uint64_t fingerprint = 0;  // likewise
  // Blocks whose counts only their two ranks know: the slices' fingerprints carry the count, and an empty block is an
  // empty slice, so that no difference passes.
  bool pairwise = false;
  const WindowBinding* windows = nullptr;  // of plans that have windows
  bool streams = false;                    // what is copied out of windows is more than caches keep: past them
};

// Runs one lane of a plan, in the order that Walk says (ring/plan/walk.h): moves the bytes, and drives links and board.
// Never blocks, allocates, locks, logs or throws per slice. One thread at a time; the lanes of an operation may be
// moved by one each (lane_crew.h).
class LaneRun {
 public:
  // links[i] is the link to plan->peers[i]; none where the plan is over windows, whose ranks meet by the noticeboard.
  // Keeps its vectors' capacity from one call to the next.
  void start(const Binding& binding, uint32_t lane, std::span<Link* const> links);

  // How long a landing waits for the caller's memory, while what is sent from there is still under way.
  enum class Landing : uint8_t {
    kWait,     // while things move
    kSlotNow,  // the caller is about to sleep: read ahead into a slot (one copy more), or nothing may wake it
  };

  // The same call once more, over the same links: `binding` differs from the last one in its pointers, sequence and
  // fingerprint at most, and has no windows and no pairwise counts.
  void start_again(const Binding& binding);

  // Moves what can be moved now, some slices at most, so that a failure or a deadline is seen soon. True if anything
  // moved.
  bool progress(Landing landing);

  // Every slice is combined, and the links have no more of this lane's memory and nothing left to send.
  bool done() const { return walk_.done(); }
  // Slices combined so far: grows while the operation moves.
  uint64_t combined() const { return walk_.combined().number; }

  // The first link that has failed, as an index into plan->peers; -1 if none.
  int failed_link() const;
  // A rank of the group whose memory could not be pulled; -1 if none. The lane does not move any more.
  int failed_pull() const { return failed_pull_; }
  // A rank whose number in a meeting cannot be; -1 if none. The lane does not move any more.
  int failed_meeting() const { return failed_meeting_; }
  // A rank that has closed its buffers, because the communicator has failed there; -1 if none. The lane does not move
  // any more.
  int closed_owner() const { return closed_owner_; }
  const Error* link_error(int index) const { return ports_[static_cast<size_t>(index)].link->error(); }

 private:
  // What start() works out for each step.
  struct BoundStep : WalkStep {
    const Ref* sources = nullptr;
    const Ref* targets = nullptr;
    uint64_t fingerprint = 0;  // of its slices' tags
    uint64_t scaled = 0;       // CombineMove::scaled
    uint8_t source_count = 0;
    uint8_t target_count = 0;
    bool peers_buffers = false;  // it touches buffers of others, which their owners may close
    bool copies = false;         // one source that is neither scaled nor finished: bytes move as they are
    bool finish = false;
  };
  // Slices that one link still has to send, first in, first out; at most its depth, so the memory is allocated once.
  class SendQueue {
   public:
    struct Item {
      uint64_t number = 0;  // of the slice in this lane
      uint64_t sent = 0;    // the Link::sent() that frees it
    };
    void reset(size_t capacity);
    bool empty() const { return first_ == last_; }
    const Item& front() const { return items_[first_ % items_.size()]; }
    void push(const Item& item);
    void pop() { ++first_; }

   private:
    std::vector<Item> items_;
    size_t first_ = 0;
    size_t last_ = 0;
  };
  struct Port {
    Link* link = nullptr;
    SendQueue sending;
  };

  void begin();
  void bind_step(const Step& step, BoundStep& bound);
  SliceTag tag_of(const Cursor& cursor) const;
  std::byte* address(const Ref& ref, const Cursor& cursor, const Extent& span) const;
  std::byte* window_address(const Ref& ref, const Cursor& cursor, const Extent& span) const;
  bool pull(const Ref& ref, const Extent& span, std::byte* to);
  Port& port_of(const Ref& ref) { return ports_[port_index_[ref.peer]]; }
  Link& link_to(const Ref& ref) const { return *ports_[port_index_[ref.peer]].link; }

  bool post(Landing landing);
  bool post_landing(const Ref& ref, Landing landing);
  std::byte* landing_for(const BoundStep& step, const Cursor& cursor) const;

  bool combine_one();
  bool move_slice(const BoundStep& step);
  bool buffers_open(const BoundStep& step);
  bool ready(const BoundStep& step);
  bool pump();
  bool move_bytes(const BoundStep& step, const Extent& span);
  bool fold(const BoundStep& step, const Extent& span);
  void fold_and_stream(const CombineMove& move, const Extent& span, std::byte* staged);
  void send_signals(const BoundStep& step);
  void arrive(const BoundStep& step);
  bool all_arrived(const BoundStep& step);
  void hand_over(Port& port, const std::byte* memory);
  void hand_over_reserved(Port& port);
  void keep_until_sent(Port& port, uint64_t sent);
  static void drop_sent(Port& port);
  void retire();

  Binding binding_;
  uint32_t lane_ = 0;
  Walk<BoundStep> walk_;
  std::vector<Port> ports_;           // by index in plan->peers
  std::vector<uint32_t> port_index_;  // by rank
  std::vector<std::byte> scratch_;
  std::vector<std::byte> pulled_;  // a slice of each source that is not mapped
  int failed_pull_ = -1;
  int failed_meeting_ = -1;
  int closed_owner_ = -1;
  uint32_t posted_source_ = 0;  // sources of the step at walk_.posted() that are dealt with
  uint32_t idle_passes_ = 0;
};

}  // namespace rondo
