#include "ring/engine/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "ring/engine/cut.h"
#include "ring/plan/build.h"
#include "ring/plan/estimate.h"

namespace rondo {
namespace {

std::shared_ptr<const Plan> all_gather_plan(const GroupContext& context, Algorithm algorithm) {
  PlanRequest request;
  request.collective = Collective::kAllGather;
  request.algorithm = algorithm;
  request.rank = context.rank;
  request.topology = context.topology;
  return std::make_shared<const Plan>(build_plan(request));
}

// A block of `bytes` bytes a rank.
Blocks blocks_of(const GroupContext& context, uint64_t bytes) {
  Blocks blocks;
  for (uint64_t r = 0; r < context.members.size(); ++r) blocks.output.push_back({r * bytes, bytes});
  blocks.input.resize(context.members.size());
  blocks.input[static_cast<size_t>(context.rank)] = {0, bytes};
  return blocks;
}

// All of a block in one slice.
Binding gather_bytes(const Plan& plan, const Blocks& blocks, const void* own, void* all) {
  Binding binding;
  binding.plan = &plan;
  binding.blocks = &blocks;
  binding.cut.slice = binding.cut.granule = std::max(blocks.output[0].count, uint64_t{1});
  binding.combine.dtype = DType::kUint8;
  binding.element_bytes = 1;
  binding.input = static_cast<const std::byte*>(own);
  binding.output = static_cast<std::byte*>(all);
  return binding;
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
      introduction_plan_(all_gather_plan(*context_, Algorithm::kDirect)),
      meeting_plan_(all_gather_plan(*context_, Algorithm::kOneShot)),
      id_blocks_(blocks_of(*context_, sizeof(uint64_t))),
      card_blocks_(blocks_of(*context_, sizeof(Card))),
      ids_(context_->members.size()),
      theirs_(context_->members.size()),
      cards_(context_->members.size()),
      log_(context_->config.debug, context_->world_rank(context_->rank)) {
  binding_.ranks.resize(context_->members.size());
  binding_.memory = context_->fabric->shared_memory();
}

// The board, then staging memory.
size_t Windows::shared_bytes() const { return Board::kBytes + context_->config.staging_bytes; }

Binding Windows::introduce(uint64_t sequence, uint64_t fingerprint) {
  if (!shared_) shared_ = binding_.memory->make(shared_bytes());
  ids_[static_cast<size_t>(context_->rank)] = shared_->id();
  Binding binding =
      gather_bytes(*introduction_plan_, id_blocks_, &ids_[static_cast<size_t>(context_->rank)], ids_.data());
  binding.sequence = sequence;
  binding.fingerprint = fingerprint;
  return binding;
}

bool Windows::attach() {
  std::vector<std::byte*> boards;
  std::vector<std::shared_ptr<PeerBell>> bells;
  for (int r = 0; r < context_->world(); ++r) {
    std::shared_ptr<Window>& window = theirs_[static_cast<size_t>(r)];
    if (r == context_->rank) window = shared_;
    if (!window) window = binding_.memory->find(context_->world_rank(r), ids_[static_cast<size_t>(r)]);
    if (!window) return false;
    if (window->bytes() < shared_bytes()) {
      throw Exception(Error{ErrorCode::kProtocol,
                            fmt::format("{} shares {} bytes of memory; rank {} expects {}", context_->name(r),
                                        window->bytes(), context_->rank, shared_bytes()),
                            {r}});
    }
    boards.push_back(window->data());
    bells.push_back(r == context_->rank ? nullptr : context_->fabric->bell_of(context_->id, context_->world_rank(r)));
    if (r != context_->rank && !bells.back()) return false;
  }
  noticeboard_.posts = noticeboard_.stages = CrossCopy(stores_of(context_->config.shared_stores));
  noticeboard_.board = Board(std::move(boards), context_->rank);
  noticeboard_.bells = std::move(bells);
  binding_.noticeboard = &noticeboard_;
  meeting_.start(gather_bytes(*meeting_plan_, card_blocks_, &card(context_->rank), cards_.data()), noticeboard_);
  return true;
}

bool Windows::known_plain(const CheckedCall& call) const { return plain_.count(size_of(call)) != 0; }

void Windows::did_not_ask(const CheckedCall& call) {
  const auto found = plain_.find(size_of(call));
  if (--found->second == 0) plain_.erase(found);
}

void Windows::meet(const CheckedCall& call, uint64_t fingerprint) {
  const BufferBytes bytes = buffer_bytes(call, context_->world());
  Card& own = card(context_->rank);
  own = Card{};
  if (gives(call, context_->rank)) {
    own.input = binding_.memory->locate(call.input, bytes.input);
    own.input_address = address_of(call.input);
  }
  if (takes(call, context_->rank)) {
    own.output = binding_.memory->locate(call.output, bytes.output);
    own.output_address = address_of(call.output);
  }
  if (timed_) own.took_ns = timed_->took_ns;
  if (++calls_ % kCallsBetweenTrials == 0) {
    copies_.look_again();
    settled_ = false;
  }
  meeting_.start_again(reinterpret_cast<const std::byte*>(&own), reinterpret_cast<std::byte*>(cards_.data()),
                       fingerprint);
}

// Whether the other ranks may use all of this rank's buffers that they touch.
bool Windows::registered(const CheckedCall& call, const Card& card, int rank) const {
  const bool written = call.collective == Collective::kAllReduce || call.collective == Collective::kReduce ||
                       call.collective == Collective::kAllGather;
  if (gives(call, rank) && card.input.id == 0) return false;
  return !written || !takes(call, rank) || card.output.id != 0;
}

// All have told at this meeting what they took.
void Windows::learn() {
  if (!timed_ || timed_->took_ns == 0) return;
  uint64_t slowest = 1;
  for (const Card& card : cards_) slowest = std::max(slowest, card.took_ns);
  const auto longest = static_cast<uint64_t>(std::chrono::nanoseconds::max().count());
  const std::chrono::nanoseconds took(static_cast<int64_t>(std::min(slowest, longest)));
  const std::string chosen = copies_.learn(timed_->collective, timed_->bytes, took);
  if (!chosen.empty() && context_->rank == 0 && log_.shows(LogLevel::kInfo)) log_.info(chosen);
  timed_.reset();
}

void Windows::finished() {
  in_use_.clear();
  if (!timed_) return;
  const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - timed_->began);
  timed_->took_ns = static_cast<uint64_t>(std::max<int64_t>(took.count(), 1));
}

Algorithm Windows::choose(const CheckedCall& call) {
  learn();
  const Algorithm algorithm = chosen_way(call);
  if (context_->rank == 0 && log_.shows(LogLevel::kInfo)) show(call, algorithm);
  return algorithm;
}

// When it is another than the last time, for calls of about this size. The trials of two ways are no choice yet.
void Windows::show(const CheckedCall& call, Algorithm algorithm) {
  if (timed_) return;
  const uint64_t bytes = call.total_bytes(context_->world());
  const auto [shown, first] = shown_.try_emplace({call.collective, std::bit_width(bytes)}, algorithm);
  if (!first && std::exchange(shown->second, algorithm) == algorithm) return;
  log_.info(fmt::format("{} of {} bytes, after the meeting: {}", collective_name(call.collective), bytes,
                        algorithm_name(algorithm)));
}

// A function of the calls and of what all ranks have told, so that all choose alike.
Algorithm Windows::chosen_way(const CheckedCall& call) {
  const bool scales_at_source = collective_reduces(call.collective) && call.op == Op::kPremulSum;
  if (call.algorithm == Algorithm::kStaged || scales_at_source) return Algorithm::kStaged;
  int plain = -1;
  for (int r = 0; r < context_->world() && plain < 0; ++r) {
    if (!registered(call, card(r), r)) plain = r;
  }
  if (plain < 0) return call.algorithm == Algorithm::kPull ? Algorithm::kPull : Algorithm::kRegistered;
  if (!over_windows(call.algorithm)) {
    if (plain_.size() == kMostPlain) plain_.clear();
    plain_[size_of(call)] = kCallsUnasked;
    return call.algorithm;
  }
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
  const bool may_pull = context_->config.single_copy != "off" && binding_.memory->can_pull();
  if (may_pull && context_->config.single_copy == "on") return Algorithm::kPull;
  // One exchange more than the meeting, where staging takes two.
  const uint64_t bytes = call.total_bytes(context_->world());
  static_assert(Board::kPostBytes == kPostBytes);
  if (bytes <= kPostBytes) return collective_has_root(call.collective) ? Algorithm::kStaged : Algorithm::kOneShot;
  if (!may_pull) return Algorithm::kStaged;
  if (copies_.measures(call.collective, bytes)) timed_ = {call.collective, bytes, Clock::now()};
  return copies_.way(call.collective, bytes);
}

// Only what the plan touches: a rank that nobody uses may be done, and its windows gone.
const WindowBinding* Windows::bind(const CheckedCall& call, const Plan& plan, const Cut& cut) {
  const BufferBytes bytes = buffer_bytes(call, context_->world());
  in_use_.clear();
  for (int r = 0; r < context_->world(); ++r) {
    PeerMemory& peer = binding_.ranks[static_cast<size_t>(r)];
    peer = PeerMemory{};
    peer.world_rank = context_->world_rank(r);
    peer.input_address = card(r).input_address;
    peer.output_address = card(r).output_address;
  }
  for (const Ref& ref : plan.refs) {
    if (ref.space == Space::kWindow && !bind(ref, bytes)) return nullptr;
  }
  lay_out_windows(call, plan, cut, binding_);
  bound_cards_ = cards_;
  bound_windows_.assign(in_use_.begin(), in_use_.end());
  settled_ = !timed_;
  ++bound_;
  return &binding_;
}

bool Windows::bind(const Ref& ref, const BufferBytes& bytes) {
  PeerMemory& peer = binding_.ranks[ref.peer];
  const Card& told = card(ref.peer);
  if ((ref.flags & kStaging) != 0) {
    peer.staging = theirs_[ref.peer]->data() + Board::kBytes;
    return true;
  }
  if ((ref.flags & kPeerOutput) != 0) {
    return peer.output != nullptr || find(ref.peer, told.output, bytes.output, peer.output);
  }
  return peer.input != nullptr || find(ref.peer, told.input, bytes.input, peer.input);
}

// A place that is in no window leaves `data` as it is. Of what a peer says nothing is believed.
bool Windows::find(int rank, const WindowPlace& place, uint64_t bytes, std::byte*& data) {
  if (place.id == 0) return true;
  std::shared_ptr<Window> window = binding_.memory->find(context_->world_rank(rank), place.id);
  if (!window) return false;
  data = data_at(*window, place, bytes);
  if (data == nullptr) {
    throw Exception(Error{ErrorCode::kProtocol,
                          fmt::format("{} speaks of {} bytes from byte {} on of memory that has {}",
                                      context_->name(rank), bytes, place.offset, window->bytes()),
                          {rank}});
  }
  in_use_.push_back(std::move(window));
  return true;
}

// Those that were bound have the same cards, so their makers have kept them; if not, they are bound anew.
bool Windows::take_bound() {
  if (!settled_ || cards_ != bound_cards_) return false;
  for (const std::weak_ptr<Window>& bound : bound_windows_) {
    std::shared_ptr<Window> window = bound.lock();
    if (!window) return false;
    in_use_.push_back(std::move(window));
  }
  return true;
}

}  // namespace rondo
