#include "tests/engine/window_cluster.h"

#include <algorithm>
#include <memory>

#include "ring/engine/call/call.h"
#include "ring/engine/run/one_shot.h"
#include "ring/engine/run/slicing.h"
#include "tests/engine/cluster.h"
#include "tests/support/whole_board.h"

namespace rondo::testing {
namespace {

constexpr size_t kBoardAlignment = 128;
constexpr size_t kBoardBytes = whole_board_bytes<PostBoard>(Rings::kNone);
// Bytes of a rank's buffer in a round, at most; the slices are cut smaller here.
constexpr uint64_t kRoundBytes = 64 * 1024;
// Passes of all ranks without any progress after which they hang: nothing is delayed here but by sleeping ranks.
constexpr int kHungPasses = 200;

}  // namespace

// One operation on all ranks: buffers, and what their executors are bound to.
class WindowCluster::Call {
 public:
  Call(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence,
       std::vector<IslandChannel>& noticeboards)
      : what_(what), plans_(plans), bindings_(plans.size()), blocks_(plans.size()), windows_(plans.size()) {
    for (int r = 0; r < what.world; ++r) ranks_.emplace_back(what, r);
    for (int r = 0; r < what.world; ++r) calls_.push_back(check_call(ranks_[size_t(r)].call(), r, what.world));
    slicing_ = slicing_of(what, plans, sequence);
    const size_t staging = plans[0].blocks * slicing_.chunk() * dtype_bytes(what.dtype);
    staging_.assign(plans.size(), std::vector<std::byte>(staging));
    for (size_t r = 0; r < plans.size(); ++r) bind(r, sequence, noticeboards[r]);
  }

  size_t world() const { return plans_.size(); }
  const Binding& binding(size_t rank) const { return bindings_[rank]; }
  bool one_shot() const { return plans_[0].algorithm == Algorithm::kOneShot; }
  std::string check() const { return check_outputs(what_, ranks_); }

 private:
  void bind(size_t r, uint64_t sequence, IslandChannel& channel) {
    const CheckedCall& call = calls_[r];
    blocks_[r] = lay_out_blocks(call, plans_[r], slicing_);
    WindowBinding& windows = windows_[r];
    windows.channel = &channel;
    for (size_t other = 0; other < world(); ++other) {
      PeerMemory peer;
      const CallBuffers buffers = buffers_of(ranks_[other].call());
      peer.input = const_cast<std::byte*>(buffers.input);  // only read
      peer.output = buffers.output;
      peer.staging = staging_[other].data();
      peer.world_rank = static_cast<int>(other);
      windows.ranks.push_back(peer);
    }
    lay_out_windows(call, plans_[r], slicing_, windows);
    Binding& binding = bindings_[r];
    binding.plan = &plans_[r];
    binding.blocks = &blocks_[r];
    binding.slicing = slicing_;
    binding.combine = {call.dtype, call.op, call.scalar, static_cast<uint32_t>(world())};
    binding.element_bytes = dtype_bytes(call.dtype);
    binding.start.buffers = buffers_of(ranks_[r].call());
    binding.start.sequence = sequence;
    binding.start.fingerprint = 42 * sequence;
    if (!one_shot()) binding.windows = &windows;
  }

  const CollectiveCase& what_;
  const std::vector<Plan>& plans_;
  Slicing slicing_;
  std::vector<CollectiveRank> ranks_;
  std::vector<CheckedCall> calls_;
  std::vector<std::vector<std::byte>> staging_;
  std::vector<Binding> bindings_;
  std::vector<Blocks> blocks_;
  std::vector<WindowBinding> windows_;
};

// Small slices and chunks: small cases are to have several rounds, too.
Slicing WindowCluster::slicing_of(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence) {
  const CollectiveRank rank(what, 0);
  const CheckedCall call = check_call(rank.call(), 0, what.world);
  const uint64_t slice = 16 * (1 + sequence % 3);
  if (plans[0].algorithm == Algorithm::kOneShot) {
    Slicing slicing = OneShotRun::slicing(plans[0], call.count, dtype_bytes(what.dtype));
    slicing.slice = std::min(slicing.slice, slice);
    return slicing;
  }
  Slicing slicing = choose_window_slicing(call, plans[0], kRoundBytes);
  slicing.slice = slice;
  slicing.slices_per_chunk = static_cast<uint32_t>(1 + sequence % 2);
  return slicing;
}

WindowCluster::WindowCluster(int world, uint64_t seed)
    : random_(seed), memory_(static_cast<size_t>(world) * kBoardBytes + kBoardAlignment) {
  void* aligned = memory_.data();
  size_t room = memory_.size();
  std::align(kBoardAlignment, room - kBoardAlignment, aligned, room);
  std::vector<std::byte*> places;
  for (int r = 0; r < world; ++r) {
    places.push_back(static_cast<std::byte*>(aligned) + static_cast<size_t>(r) * kBoardBytes);
  }
  for (int r = 0; r < world; ++r) {
    IslandChannel channel;
    channel.board = whole_board<PostBoard>(places, r, Rings::kNone);
    channel.bells.assign(static_cast<size_t>(world), std::make_shared<Bell>());
    noticeboards_.push_back(std::move(channel));
  }
}

std::string WindowCluster::run(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence) {
  Call call(what, plans, sequence, noticeboards_);
  const std::string trouble = call.one_shot() ? run_one_shot(call) : run_plans(call);
  return trouble.empty() ? call.check() : trouble;
}

std::string WindowCluster::run_plans(Call& call) {
  std::vector<PlanRun> runs(call.world());
  for (size_t r = 0; r < runs.size(); ++r) runs[r].start(call.binding(r), {});
  return drive(runs, random_, [] {});
}

std::string WindowCluster::run_one_shot(Call& call) {
  std::vector<OneShotRun> runs(call.world());
  for (size_t r = 0; r < runs.size(); ++r) {
    runs[r].bind(call.binding(r), noticeboards_[r]);
    runs[r].start(call.binding(r).start);
  }
  for (int idle = 0; idle < kHungPasses; ++idle) {
    bool done = true;
    const size_t first = random_.below(runs.size());
    for (size_t i = 0; i < runs.size(); ++i) {
      OneShotRun& run = runs[(first + i) % runs.size()];
      if (!run.done() && random_.below(4) != 0 && run.progress(Pass::kPolling)) idle = 0;
      done &= run.done();
    }
    if (done) return "";
  }
  return "hung";
}

uint64_t WindowCluster::barriers(int rank) const { return noticeboards_[0].board.arrived(rank); }

}  // namespace rondo::testing
