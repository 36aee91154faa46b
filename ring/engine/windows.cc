#include "ring/engine/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/engine/cut.h"
#include "ring/plan/build.h"

namespace rondo {
namespace {

PlanRequest meeting_request(const GroupContext& context) {
  PlanRequest request;
  request.collective = Collective::kAllGather;
  request.algorithm = Algorithm::kDirect;
  request.rank = context.rank;
  request.topology = context.topology;
  return request;
}

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

// Whether `rank` has data that others read, or a result that others write.
bool gives(const CheckedCall& call, int rank) {
  const bool from_root = call.collective == Collective::kBroadcast || call.collective == Collective::kScatter;
  return !from_root || rank == call.root;
}

bool takes(const CheckedCall& call, int rank) {
  const bool to_root = call.collective == Collective::kReduce || call.collective == Collective::kGather;
  return !to_root || rank == call.root;
}

}  // namespace

Windows::Windows(std::shared_ptr<GroupContext> context)
    : context_(std::move(context)),
      meeting_plan_(std::make_shared<const Plan>(build_plan(meeting_request(*context_)))),
      cards_(context_->members.size()) {
  const size_t world = context_->members.size();
  for (uint64_t r = 0; r < world; ++r) card_blocks_.output.push_back({r * sizeof(Card), sizeof(Card)});
  card_blocks_.input.resize(world);
  card_blocks_.input[static_cast<size_t>(context_->rank)] = {0, sizeof(Card)};
  binding_.ranks.resize(world);
  binding_.memory = context_->fabric->shared_memory();
  held_.resize(3 * world);
}

Binding Windows::meet(const CheckedCall& call, uint64_t sequence, uint64_t fingerprint) {
  if (!staging_) staging_ = binding_.memory->make(context_->config.staging_bytes);
  const BufferBytes bytes = buffer_bytes(call, context_->world());
  Card& own = card(context_->rank);
  own = Card{};
  own.staging = staging_->id();
  if (gives(call, context_->rank)) {
    own.input = binding_.memory->locate(call.input, bytes.input);
    own.input_address = address_of(call.input);
  }
  if (takes(call, context_->rank)) {
    own.output = binding_.memory->locate(call.output, bytes.output);
    own.output_address = address_of(call.output);
  }
  Binding binding;
  binding.plan = meeting_plan_.get();
  binding.blocks = &card_blocks_;
  binding.cut.slice = binding.cut.granule = sizeof(Card);
  binding.combine.dtype = DType::kUint8;
  binding.element_bytes = 1;
  binding.input = reinterpret_cast<const std::byte*>(&own);
  binding.output = reinterpret_cast<std::byte*>(cards_.data());
  binding.sequence = sequence;
  binding.fingerprint = fingerprint;
  return binding;
}

// Whether the other ranks may use all of this rank's buffers that they touch.
bool Windows::registered(const CheckedCall& call, const Card& card, int rank) const {
  const bool written = call.collective == Collective::kAllReduce || call.collective == Collective::kReduce ||
                       call.collective == Collective::kAllGather;
  if (gives(call, rank) && card.input.id == 0) return false;
  return !written || !takes(call, rank) || card.output.id != 0;
}

// A function of the call and of what all ranks have told, so that all choose alike.
Algorithm Windows::choose(const CheckedCall& call) const {
  const bool scales_at_source = collective_reduces(call.collective) && call.op == Op::kPremulSum;
  if (call.algorithm == Algorithm::kStaged || scales_at_source) return Algorithm::kStaged;
  int plain = -1;
  for (int r = 0; r < context_->world() && plain < 0; ++r) {
    if (!registered(call, card(r), r)) plain = r;
  }
  if (plain < 0) return call.algorithm == Algorithm::kPull ? Algorithm::kPull : Algorithm::kRegistered;
  if (call.algorithm == Algorithm::kRegistered) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} on rank {}: the algorithm \"registered\" was asked for, but the buffers of rank {} "
                                "are not in memory from Communicator::allocate()",
                                describe_call(call), context_->rank, plain));
  }
  if (call.algorithm == Algorithm::kPull) {
    if (binding_.memory->can_pull()) return Algorithm::kPull;
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} on rank {}: the algorithm \"pull\" was asked for, but this system does not let one "
                                "process read another's memory, and the buffers of rank {} are not registered",
                                describe_call(call), context_->rank, plain));
  }
  const bool pulls = context_->config.single_copy == "on" && binding_.memory->can_pull();
  return pulls ? Algorithm::kPull : Algorithm::kStaged;
}

// Only what the plan touches: a rank that nobody uses may be done, and its windows gone.
const WindowBinding* Windows::bind(const CheckedCall& call, const Plan& plan, const Cut& cut) {
  for (int r = 0; r < context_->world(); ++r) {
    PeerMemory& peer = binding_.ranks[static_cast<size_t>(r)];
    peer = PeerMemory{};
    peer.world_rank = context_->world_rank(r);
    peer.input_address = card(r).input_address;
    peer.output_address = card(r).output_address;
  }
  for (const Ref& ref : plan.refs) {
    if (ref.space == Space::kWindow && !bind(ref)) return nullptr;
  }
  lay_out_windows(call, plan, cut, binding_);
  return &binding_;
}

bool Windows::bind(const Ref& ref) {
  PeerMemory& peer = binding_.ranks[ref.peer];
  const Card& told = card(ref.peer);
  if ((ref.flags & kStaging) != 0) return peer.staging != nullptr || find(ref.peer, {told.staging, 0}, peer.staging);
  if ((ref.flags & kPeerOutput) != 0) return peer.output != nullptr || find(ref.peer, told.output, peer.output);
  return peer.input != nullptr || find(ref.peer, told.input, peer.input);
}

// A place that is in no window leaves `data` as it is. The own windows need no map.
bool Windows::find(int rank, const WindowPlace& place, std::byte*& data) {
  if (place.id == 0) return true;
  if (rank == context_->rank) {
    data = staging_->data() + place.offset;
    return true;
  }
  // The last windows of each rank: most calls come with the same buffers.
  std::shared_ptr<Window>* held = &held_[3 * static_cast<size_t>(rank)];
  std::shared_ptr<Window>* found =
      std::find_if(held, held + 3, [&](const auto& window) { return window && window->id() == place.id; });
  if (found == held + 3) {
    auto window = binding_.memory->find(context_->world_rank(rank), place.id);
    if (!window) return false;
    found = held + 2;
    *found = std::move(window);
  }
  std::rotate(held, found, found + 1);
  data = held->get()->data() + place.offset;
  return true;
}

}  // namespace rondo
