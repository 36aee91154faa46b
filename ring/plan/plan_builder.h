#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "ring/plan/build.h"
#include "ring/plan/plan.h"

namespace rondo {

// Writes one rank's plan as a list of moves, so that an algorithm reads as a page of them. Works out what a page would
// only repeat: Step::after, Plan::peers, scratch slots and the scale flags. One builder makes one plan, on one thread.
// It trusts its caller: tests prove the plans (verify.h).
//
// A contribution that travels is named twice, by input() at the sender and by from_input() at the receiver. Exactly one
// of the two has kScale (PlanRequest::scale_at_source), so each contribution is scaled once.
class PlanBuilder {
 public:
  PlanBuilder(const PlanRequest& request, uint32_t blocks, uint32_t max_peers);

  int rank() const { return plan_.rank; }
  int world() const { return plan_.world; }
  Collective collective() const { return plan_.collective; }
  int root() const { return plan_.root; }
  void set_chunks_in_flight(int chunks) { plan_.chunks_in_flight = static_cast<uint32_t>(chunks); }

  // --- what a step reads and writes. c is a block of the collective (plan.h, Space).
  Ref input(uint32_t c) const;             // this rank's bytes, on their way to the rank that folds or stores them
  Ref own(uint32_t c) const;               // this rank's contribution, folded here
  Ref output(uint32_t c) const;            // the caller's output, or what has been stored there
  Ref scratch(uint32_t slot, uint32_t c);  // scratch memory; slots are numbered from 0
  Ref scratch_input(uint32_t slot, uint32_t c);  // the same, as a source, where input(c) was stored there
  Ref from(int peer, uint32_t c) const;          // the next slices of `peer`: partial or complete folds, or plain bytes
  Ref from_input(int peer, uint32_t c) const;    // the same where `peer` sends its contribution as it is: input(c)
  Ref to(int peer, uint32_t c) const;            // sent to `peer`
  std::vector<Ref> to_others(uint32_t c) const;  // to all, from the next rank on; as sources: from all
  Ref peer_input(int peer, uint32_t c) const;    // a peer's buffers, read or written where they lie
  Ref peer_output(int peer, uint32_t c) const;
  Ref staging(int owner, uint32_t c) const;       // staging memory of any rank: folds, or plain bytes
  Ref staged_input(int owner, uint32_t c) const;  // what its owner put there by copying input(c)

  // What the post of a rank holds: blocks of which posted() speaks. By every rank, for all ranks.
  void set_post(int rank, std::vector<uint32_t> blocks);
  Ref posted(int owner, uint32_t c) const;        // staging memory of which there are two, used in turn
  Ref posted_input(int owner, uint32_t c) const;  // what its owner put there by copying input(c)

  // --- moves
  void step(std::span<const Ref> sources, std::span<const Ref> targets, uint16_t flags = 0);
  void step(std::initializer_list<Ref> sources, std::initializer_list<Ref> targets, uint16_t flags = 0);
  void send(uint32_t c, int peer) { step({input(c)}, {to(peer, c)}); }
  void copy(uint32_t in, uint32_t out) { step({input(in)}, {output(out)}); }
  void copy_send(uint32_t c, int peer) { step({input(c)}, {output(c), to(peer, c)}); }
  void recv_copy(uint32_t c, int peer) { step({from(peer, c)}, {output(c)}); }
  void recv_copy_send(uint32_t c, int source, int target) { step({from(source, c)}, {output(c), to(target, c)}); }
  // Folds what `arriving` brings with this rank's contribution.
  void recv_reduce_send(Ref arriving, int target);
  void recv_reduce_copy(Ref arriving);                   // complete
  void recv_reduce_copy_send(Ref arriving, int target);  // complete
  // Sources of any number, folded into `memory` (kOutput or kScratch) and sent on to any number of mailboxes: one step
  // where they fit; else partial folds, own contributions first, go through `memory`, and further sends leave from it.
  void wide_step(std::span<const Ref> sources, Ref memory, std::span<const Ref> sends, uint16_t flags = 0);
  void send_many(Ref source, std::span<const Ref> sends);
  void signal(int peer) { step({}, {to(peer, 0)}); }
  void wait(int peer) { step({from(peer, 0)}, {}); }
  // A signal to each other rank, and a wait for one from each.
  void meet(uint16_t flags = 0);
  // Signals and waits from here on are of the next barrier. By all ranks, also those without a part in it.
  void begin_barrier() { ++barrier_; }

  // The plan, with its peers sorted. The builder is used up.
  Plan take();

 private:
  // Numbers the blocks of this rank's memory: equal numbers may be the same bytes.
  uint32_t memory_index(const Ref& ref) const;

  Plan plan_;
  // The request sets these: they decide which refs have kScale.
  bool reduces_ = false;
  bool scale_at_source_ = false;
  bool in_place_possible_ = true;
  uint16_t barrier_ = 0;
  // What the steps so far do with a block of memory.
  struct Access {
    uint32_t last = kNoStep;       // the last step that reads or writes it
    uint32_t sent_from = kNoStep;  // the last step whose slices a link reads from it
  };
  Access& access(const Ref& ref);
  uint32_t after_of(const Step& step);
  void note_access(const Step& step, uint32_t index);

  std::vector<Access> accesses_;  // by memory_index()
  std::vector<char> is_peer_;     // by rank
};

}  // namespace rondo
