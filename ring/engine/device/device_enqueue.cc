// DeviceSide: calls whose passes are put into streams.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

// A block of a ring: launches would eat what smaller ones gain by overlap.
constexpr uint64_t kMostMessageBytes = 16u << 20;
// By which a block may be larger than its share of a piece: it is cut at whole lines and elements; and so are the
// shares of its lanes, and their parts of a slot.
constexpr uint64_t kBlockSlackBytes = 256 + 128 * kMaxLanes;

}  // namespace

// By what all ranks know: the same on all of them.
Algorithm DeviceSide::algorithm_of(const CheckedCall& call, const CallOptions& options) const {
  const Config& config = group_.context().config;
  if (!island_ || call.uneven || call.count == 0 || call.op == Op::kPremulSum) return Algorithm::kAuto;
  if (config.check_results != "off") return Algorithm::kAuto;  // RONDO_CHECK looks at host memory
  const Algorithm asked = options.algorithm != Algorithm::kAuto ? options.algorithm : config.algorithm;
  return choose_device_plan(island_->reach(), island_->order(), call.collective, asked);
}

// Of a ring, such that a block is a message.
std::vector<Piece> DeviceSide::pieces_of(const CheckedCall& call, const StreamPlans::Entry& plan) const {
  uint64_t bytes = group_.context().config.device_window_bytes;
  if (plan.plan.algorithm == Algorithm::kRing) {
    bytes = std::min(kMostMessageBytes, island_->slot_bytes() - kBlockSlackBytes) * plan.plan.chunks;
  }
  return cut_pieces(call, group_.rank(), group_.size(), bytes, UINT64_MAX);
}

// What comes into another stream than the last call comes after that one.
void DeviceSide::follow_last(void* stream, uint64_t stream_id) {
  const std::shared_ptr<Operation> last = last_.lock();
  if (last && stream_id != last_stream_ && !last->done()) last->wait_on(stream);
}

void DeviceSide::check_own_stream(const char* call, const StreamFacts& stream) const {
  const auto refuse = [&](const std::string& why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", call, group_.rank(), why));
  };
  if (stream.device != island_->device()) {
    refuse(fmt::format("the stream is of device {}; this communicator was attached to device {}", stream.device,
                       island_->device()));
  }
  const int user = driver().rank_in_stream(group_.context().id, stream.id, group_.rank());
  if (user == group_.rank()) return;
  refuse(fmt::format("rank {}, a thread of this process, uses the same stream; give each rank one of its own", user));
}

const StreamPlans::Entry& DeviceSide::plan_of(const CheckedCall& call, Algorithm algorithm) {
  std::lock_guard order(order_mutex_);
  return plans_->get(call.collective, algorithm, call.root);
}

// As if its buffers were in window 0, since blocks are a piece's.
CheckedCall DeviceSide::call_of(Call call, const Piece& piece) const {
  call.count = piece.count;
  call.input = island_->bounce() + piece.input;
  call.output = island_->bounce() + piece.output;
  call.options.stream.reset();
  return check_call(call, group_.rank(), group_.size());
}

DeviceSide::Enqueued DeviceSide::enqueued_of(const Call& call, const CheckedCall& checked, const StreamFacts& stream,
                                             Algorithm algorithm) {
  check_own_stream(collective_name(call.collective), stream);
  Enqueued what{algorithm, pieces_of(checked, plan_of(checked, algorithm)), {}, *call.options.stream, stream.id};
  for (const Piece& piece : what.pieces) what.calls.push_back(call_of(call, piece));
  return what;
}

// Tensors are put together in window 0, on which only passes over all memory work.
std::shared_ptr<Operation> DeviceSide::start_enqueued_list(std::span<const TensorRef> tensors, Op op,
                                                           const CallOptions& options, const ListArguments& arguments) {
  if (!island_) return nullptr;
  Call call;
  call.op = op;
  call.options = options;
  if (call.options.algorithm == Algorithm::kAuto) call.options.algorithm = Algorithm::kRegistered;
  Enqueued what;
  what.stream = *options.stream;
  what.stream_id = arguments.stream.id;
  for (ListPiece& piece : cut_list(tensors, group_.context().config.device_window_bytes)) {
    call.dtype = piece.dtype;
    what.calls.push_back(call_of(call, piece.piece));
    what.pieces.push_back(std::move(piece.piece));
  }
  if (what.calls.empty() || algorithm_of(what.calls.front(), call.options) != Algorithm::kRegistered) return nullptr;
  check_own_stream("all_reduce_many", arguments.stream);
  what.list = arguments.list;
  return enqueue(std::move(what));
}

std::shared_ptr<LaunchedCall> DeviceSide::make(Enqueued& what) {
  const StreamPlans::Entry& plan = plan_of(what.calls.front(), what.algorithm);
  const uint32_t entries = LaunchedCall::entries_of(what.pieces);
  if (!calls_->begin(entries, [this] { return group_.context().failure.get() != nullptr; })) group_.check_usable();
  return std::make_shared<LaunchedCall>(
      LaunchedCall::Options{calls_, island_, &plan, what.stream, waits_, std::move(what.pieces),
                            [this](const Error& error) {
                              if (error.code != ErrorCode::kInvalid) group_.fail(error);
                            },
                            group_.limit_of(std::chrono::milliseconds(what.calls.front().timeout))});
}

// In a replay no host takes part: kernels count calls, compare cards, and end by their own deadline.
void DeviceSide::capture(const Call& call, const StreamFacts& stream) {
  const char* const name = collective_name(call.collective);
  const CheckedCall checked = check_call(call, group_.rank(), group_.size());
  const Algorithm algorithm = algorithm_of(checked, call.options);
  if (algorithm == Algorithm::kAuto || waits_ == StreamCall::Waits::kHost) {
    throw Exception(
        ErrorCode::kUnsupported,
        fmt::format("{} on rank {}: the stream is being captured for a graph, which only calls that are one "
                    "kernel can be part of; this one {}",
                    name, group_.rank(), algorithm == Algorithm::kAuto ? "is staged" : "has ranks that are threads"));
  }
  Enqueued what = enqueued_of(call, checked, stream, algorithm);
  const Piece& first = what.pieces.front();
  if (!first.in.empty()) check_device(name, stream, {"input", call.input});
  if (!first.out.empty()) check_device(name, stream, {"output", call.output});
  const auto made = make(what);
  for (size_t i = 0; i < what.calls.size(); ++i) {
    what.calls[i].piece = static_cast<uint32_t>(i + 1);
    what.calls[i].pieces = static_cast<uint32_t>(what.calls.size());
    made->capture(what.calls[i], fingerprint_of(group_.prepare(what.calls[i])->kind, 0));
  }
}

std::shared_ptr<Operation> DeviceSide::enqueue(Enqueued what) {
  const auto made = make(what);
  std::lock_guard order(order_mutex_);
  std::vector<BatchPart> parts;
  const Algorithm shown = what.algorithm == Algorithm::kRing ? Algorithm::kRing : Algorithm::kAuto;
  for (size_t i = 0; i < what.calls.size(); ++i) {
    what.calls[i].asked = shown;
    parts.push_back({std::move(what.calls[i])});
  }
  number_pieces(parts);
  for (BatchPart& part : parts) {
    note_list(part.call, what.list);
    LaunchedCall::Part moved = made->add_part(part.call);
    part.gate = std::move(moved.gate);
    part.run = std::move(moved.run);
  }
  follow_last(what.stream, what.stream_id);
  for (auto& operation : group_.submit_all(std::move(parts))) {
    made->engine = operation->engine;
    const uint64_t fingerprint = operation->fingerprint;
    made->add_operation(std::move(operation), fingerprint);
  }
  group_.leave_to_progress_thread(*made->engine);
  made->enqueue();
  last_ = made;
  last_stream_ = what.stream_id;
  return made;
}

}  // namespace rondo
