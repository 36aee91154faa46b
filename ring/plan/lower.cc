#include "ring/plan/lower.h"

#include <algorithm>
#include <span>
#include <utility>

#include "ring/plan/describe.h"
#include "rondo/error.h"

namespace rondo {
namespace {

using Kind = StreamEntry::Kind;

std::vector<int> others(const Plan& plan) {
  std::vector<int> ranks;
  for (int rank = 0; rank < plan.world; ++rank) {
    if (rank != plan.rank) ranks.push_back(rank);
  }
  return ranks;
}

// The other ranks that these refs reach, ascending.
std::vector<int> peers_of(std::span<const Ref> refs) {
  std::vector<int> peers;
  for (const Ref& ref : refs) {
    if (is_remote(ref)) peers.push_back(ref.peer);
  }
  std::sort(peers.begin(), peers.end());
  return peers;
}

// Else it is a signal or a wait.
bool moves_data(const Step& step) { return step.sources > 0 && step.targets > 0; }

// Makes one program. The entries are in the order of the stream.
class Lowering {
 public:
  explicit Lowering(const Plan& plan) : plan_(plan) {}

  StreamProgram run() {
    program_.posts = plan_.algorithm == Algorithm::kDirect;
    add(Kind::kSignal, 0, others(plan_));
    if (program_.posts) add_posts();
    add(Kind::kAwait, 0, others(plan_));
    for (uint32_t s = 0; s < plan_.steps.size(); ++s) {
      const Step& step = plan_.steps[s];
      if (moves_data(step)) {
        program_.posts ? add_rest(s, step) : add_pass(s, step);
      } else if (step.barrier >= kArrivedWord) {
        throw Exception(ErrorCode::kInternal, "a stream has three barriers");
      } else if (step.sources == 0) {
        add(Kind::kSignal, step.barrier, peers_of(targets_of(plan_, step)));
      } else {
        add(Kind::kAwait, step.barrier, peers_of(sources_of(plan_, step)));
      }
    }
    program_.messages = std::max(received_, sent_);
    return std::move(program_);
  }

 private:
  void add(Kind kind, uint32_t index, std::vector<int> peers, uint32_t messages = 0) {
    program_.entries.push_back({.kind = kind, .index = index, .messages = messages, .peers = std::move(peers)});
  }

  // The link among the refs; nullptr: there is none.
  const Ref* link_of(std::span<const Ref> refs, int& peer) const {
    const Ref* link = nullptr;
    for (const Ref& ref : refs) {
      if (ref.space == Space::kScratch || (ref.flags & kStaging) != 0) refuse(ref);
      if (ref.space != Space::kMailbox) continue;
      if (link != nullptr || (peer >= 0 && peer != ref.peer)) refuse(ref);
      link = &ref;
      peer = ref.peer;
    }
    return link;
  }
  [[noreturn]] void refuse(const Ref& ref) const {
    throw Exception(ErrorCode::kInternal, "a stream has no " + describe(plan_, ref));
  }

  // All of them first: their sources are what the caller has put there.
  void add_posts() {
    for (uint32_t s = 0; s < plan_.steps.size(); ++s) {
      const std::span<const Ref> sources = sources_of(plan_, plan_.steps[s]);
      if (peers_of(targets_of(plan_, plan_.steps[s])).empty()) continue;
      if (sources.size() != 1 || sources[0].space != Space::kInput) refuse(targets_of(plan_, plan_.steps[s])[0]);
      add(Kind::kPost, s, {});
    }
  }
  // Where messages are posts: what the step takes, then what it folds or stores itself.
  void add_rest(uint32_t index, const Step& step) {
    const std::vector<int> from = peers_of(sources_of(plan_, step));
    if (!from.empty()) add(Kind::kTake, index, from);
    const bool stores = peers_of(targets_of(plan_, step)).size() < step.targets;
    if (stores && !takes_straight(plan_, step)) add(Kind::kPass, index, {});
  }

  // A message is written when its slot is free, and read when it has come; its slot is free when it has been read.
  void add_pass(uint32_t index, const Step& step) {
    const bool receives = link_of(sources_of(plan_, step), program_.from) != nullptr;
    const bool sends = link_of(targets_of(plan_, step), program_.to) != nullptr;
    StreamEntry pass{.kind = Kind::kPass, .index = index};
    if (receives) add(Kind::kAwait, kArrivedWord, {program_.from}, (pass.received = received_++) + 1);
    if (sends) {
      pass.sent = sent_++;
      if (sent_ > kStreamSlots) add(Kind::kAwait, kFreedWord, {program_.to}, sent_ - kStreamSlots);
    }
    program_.entries.push_back(pass);
    if (sends) add(Kind::kSignal, kArrivedWord, {program_.to}, sent_);
    if (receives) add(Kind::kSignal, kFreedWord, {program_.from}, received_);
  }

  const Plan& plan_;
  StreamProgram program_;
  // Messages so far, which number the slots of each direction.
  uint32_t received_ = 0, sent_ = 0;
};

}  // namespace

bool takes_straight(const Plan& plan, const Step& step) {
  return step.sources == 1 && is_remote(sources_of(plan, step)[0]);
}

StreamProgram lower(const Plan& plan) { return Lowering(plan).run(); }

}  // namespace rondo
