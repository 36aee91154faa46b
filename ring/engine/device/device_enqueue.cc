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
// No call that is not captured has such a number.
constexpr uint64_t kCaptured = uint64_t{1} << 63;

}  // namespace

// By what all ranks know: the same on all of them.
Algorithm DeviceSide::algorithm_of(const CheckedCall& call, const CallOptions& options) const {
  const Config& config = group_.context().config;
  if (!island_ || call.uneven || call.count == 0 || call.op == Op::kPremulSum) return Algorithm::kAuto;
  if (config.check_results != "off") return Algorithm::kAuto;  // RONDO_CHECK looks at host memory
  const Algorithm asked = options.algorithm != Algorithm::kAuto ? options.algorithm : config.algorithm;
  return choose_device_plan(island_->reach(), island_->order(), call.collective, asked,
                            call.count * dtype_bytes(call.dtype) <= kMostPostBytes);
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
DeviceSide::Enqueued DeviceSide::enqueued_of(const Call& call, const CheckedCall& checked, const StreamFacts& stream,
                                             Algorithm algorithm) {
  check_own_stream(collective_name(call.collective), stream);
  Enqueued what{algorithm, pieces_of(checked, plan_of(checked, algorithm)), {}, *call.options.stream, stream.id, {}};
  if (what.pieces.size() > 1 && algorithm == Algorithm::kRegistered) what.whole = checked;
  for (const Piece& piece : what.pieces) what.parts.push_back({call_of(call, piece, island_->bounce())});
  number_pieces(what.parts, nullptr);
  return what;
}

// Tensors are put together in window 0, on which only passes over all memory work.
std::shared_ptr<Operation> DeviceSide::start_enqueued_list(std::span<const TensorRef> tensors, Op op,
                                                           const CallOptions& options, const ListArguments& arguments) {
  if (!island_) return nullptr;
  Call call = all_reduce_of({}, op, options);
  if (call.options.algorithm == Algorithm::kAuto) call.options.algorithm = Algorithm::kRegistered;
  Enqueued what;
  what.stream = *options.stream;
  what.stream_id = arguments.stream.id;
  for (ListPiece& piece : cut_list(tensors, group_.context().config.device_window_bytes)) {
    call.dtype = piece.dtype;
    what.parts.push_back({call_of(call, piece.piece, island_->bounce())});
    what.pieces.push_back(std::move(piece.piece));
  }
  if (what.parts.empty() || algorithm_of(what.parts.front().call, call.options) != Algorithm::kRegistered) {
    return nullptr;
  }
  check_own_stream("all_reduce_many", arguments.stream);
  number_pieces(what.parts, arguments.list);
  return enqueue(std::move(what));
}

std::shared_ptr<LaunchedCall> DeviceSide::make(Enqueued& what) {
  const StreamPlans::Entry& plan = plan_of(what.parts.front().call, what.algorithm);
  const auto made = std::make_shared<LaunchedCall>(
      in_stream(what.stream, island_->device(), std::move(what.pieces)), island_, plan,
      group_.limit_of(std::chrono::milliseconds(what.parts.front().call.timeout)), what.whole);
  take_room(*made);
  return made;
}

// In a replay no host takes part: kernels count calls, compare cards, and end by their own deadline. All ranks capture
// the same, so that the number of a captured call tells it from others of its form.
void DeviceSide::capture(const Call& call, const StreamFacts& stream) {
  const char* const name = collective_name(call.collective);
  const CheckedCall checked = check_call(call, group_.rank(), group_.size());
  const Algorithm algorithm = algorithm_of(checked, call.options);
  if (algorithm == Algorithm::kAuto || waits_ == StreamOperation::Waits::kHost) {
    throw Exception(
        ErrorCode::kUnsupported,
        fmt::format("{} on rank {}: the stream is being captured for a graph, which only calls that are one "
                    "kernel can be part of; this one {}",
                    name, group_.rank(), algorithm == Algorithm::kAuto ? "is staged" : "has ranks that are threads"));
  }
  Enqueued what = enqueued_of(call, checked, stream, algorithm);
  check_buffers(call, stream, what.pieces.front());
  const auto made = make(what);
  for (const BatchPart& part : what.parts) {
    made->capture(part.call, fingerprint_of(group_.prepare(part.call)->kind, kCaptured | ++captured_));
  }
}

std::shared_ptr<Operation> DeviceSide::enqueue(Enqueued what) {
  const auto made = make(what);
  std::lock_guard order(order_mutex_);
  for (BatchPart& part : what.parts) {
    part.call.asked = what.algorithm == Algorithm::kRing ? Algorithm::kRing : Algorithm::kAuto;
    made->add_piece(part);
  }
  submit(made, std::move(what.parts), what.stream_id);
  return made;
}

}  // namespace rondo
