// DeviceSide: calls whose passes are put into streams.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/base/interrupt.h"
#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

// Set in the numbers of captured calls, so that no other call has such a number.
constexpr uint64_t kCaptured = uint64_t{1} << 63;

}  // namespace

// How a call on a stream runs, by what all ranks know: the same on all of them. The tensors of a list are put
// together in window 0, on which only passes over all memory work.
Algorithm DeviceSide::algorithm_of(std::span<const BatchCall> calls) const {
  const Config& config = group_.context().config;
  const CheckedCall& call = calls.front().call;
  const bool empty = std::ranges::all_of(calls, [](const BatchCall& part) { return part.call.count == 0; });
  if (!island_ || (empty && !call.uneven)) return Algorithm::kAuto;
  if (config.check_results != "off") return Algorithm::kAuto;  // RONDO_CHECK looks at host memory
  const bool one = calls.size() == 1;
  const Algorithm asked = call.asked != Algorithm::kAuto ? call.asked : one ? config.algorithm : Algorithm::kRegistered;
  const bool is_short =
      !call.uneven && !call.scales_at_source() && call.count * dtype_bytes(call.dtype) <= kMostPostBytes;
  const Algorithm chosen = choose_device_plan(island_->reach(), island_->order(), call.collective, asked, is_short);
  // What the ring has not; and of lists what window 0 does not scale.
  const bool passes_only = call.uneven || call.scales_at_source() || !one;
  if (passes_only && chosen != Algorithm::kRegistered) return Algorithm::kAuto;
  return !one && call.scales_at_source() ? Algorithm::kAuto : chosen;
}

// Cuts a call into pieces. Those of staged calls are cut so that copies overlap; a list's tensors are sorted by type
// first, so that pieces are full, of which kernels have one a window. A single call of kernels is one piece.
std::vector<ListPiece> DeviceSide::cut(const Checked& checked) {
  const CheckedCall& call = checked.call();
  if (checked.list) {
    std::vector<TensorRef> tensors;
    uint64_t all = 0;
    for (const BatchCall& part : checked.calls) {
      tensors.push_back({part.buffers.input, part.buffers.output, part.call.count, part.call.dtype});
      all += part.call.count * dtype_bytes(part.call.dtype);
    }
    std::ranges::stable_sort(tensors, {}, &TensorRef::dtype);
    std::vector<ListPiece> pieces = cut_list(tensors, checked.staged() ? piece_bytes_of(all) : island_->bounce_bytes());
    if (pieces.empty()) pieces.push_back({{}, call.dtype});  // all of them are empty: the ranks compare the list
    return pieces;
  }
  const CallBuffers& buffers = checked.calls.front().buffers;
  if (!checked.staged()) return {{{}, call.dtype}};
  std::vector<ListPiece> pieces;
  for (Piece& piece : cut_pieces(call, buffers, group_.rank(), group_.size())) {
    pieces.push_back({std::move(piece), call.dtype});
  }
  return pieces;
}

// The call of one piece, on other memory.
BatchCall DeviceSide::call_of(const CheckedCall& whole, const ListPiece& piece, std::byte* memory) const {
  Call call;
  call.collective = whole.collective;
  call.input = memory + piece.piece.input;
  call.output = memory + piece.piece.output;
  call.count = piece.piece.count;
  call.dtype = piece.dtype;
  call.op = whole.op;
  call.root = whole.root;
  call.uneven = whole.uneven;
  call.input_counts = piece.piece.input_counts;
  call.output_counts = piece.piece.output_counts;
  call.options.purpose = whole.purpose;
  call.options.scalar = whole.scalar;
  call.options.timeout = whole.timeout;
  call.options.algorithm = whole.asked;
  call.options.any_op = whole.any_op;
  return {check_call(call, group_.rank(), group_.size()), buffers_of(call)};
}

// One call for each piece, and the empty ones behind the last piece, which other ranks may have elements in.
std::vector<BatchCall> DeviceSide::calls_of(const Checked& checked, const std::vector<ListPiece>& cut,
                                            const StreamOperation& made) const {
  std::vector<BatchCall> calls;
  if (checked.list || checked.staged()) {
    for (const ListPiece& piece : cut) calls.push_back(call_of(checked.call(), piece, made.memory(calls.size())));
    ListPiece none{{}, cut.back().dtype};
    none.piece.input_counts.resize(cut.back().piece.input_counts.size());
    none.piece.output_counts.resize(cut.back().piece.output_counts.size());
    for (uint32_t i = 0; i < cut.back().piece.empty_calls; ++i) {
      calls.push_back(call_of(checked.call(), none, made.memory(cut.size() - 1)));
    }
  } else {
    calls.push_back(checked.calls.front());  // where its buffers lie, kernels find out
  }
  for (uint32_t i = 0; i < calls.size(); ++i) {
    CheckedCall& call = calls[i].call;
    call.piece = i + 1;
    call.pieces = static_cast<uint32_t>(calls.size());
    if (!checked.staged()) call.asked = checked.algorithm == Algorithm::kRing ? Algorithm::kRing : Algorithm::kAuto;
    if (!checked.list) continue;
    call.list = checked.list;
    call.shared_counts = checked.list->hash;
    call.part = call.piece;
    call.parts = call.pieces;
  }
  return calls;
}

// If the call goes into another stream than the last one, that stream waits for the last call first: operations
// of a communicator run in call order.
void DeviceSide::follow_last(void* stream, uint64_t stream_id) {
  if (last_ && stream_id != last_stream_ && !last_->done()) last_->wait_on(stream);
}

// Two ranks of one process must not share a stream: the kernel of one would wait for that of the other behind
// it.
void DeviceSide::check_own_stream(const char* call, const StreamFacts& stream) const {
  const auto refuse = [&](const std::string& why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", call, group_.rank(), why));
  };
  if (stream.device != island_->device()) {
    refuse(fmt::format("the stream is of device {}; this communicator was attached to device {}", stream.device,
                       island_->device()));
  }
  if (waits_ != StreamOperation::Waits::kHost) return;  // no other rank is in this process
  const int user = driver().rank_in_stream(group_.context().id, stream.id, group_.rank());
  if (user == group_.rank()) return;
  refuse(fmt::format("rank {}, a thread of this process, uses the same stream; give each rank one of its own", user));
}

const StreamPlans::Entry& DeviceSide::plan_of(const CheckedCall& call, Algorithm algorithm) {
  std::lock_guard order(order_mutex_);
  return plans_->get(call.collective, algorithm, call.root);
}

StreamOperation::Options DeviceSide::in_stream(void* stream, int device, std::vector<Piece> pieces) {
  const auto waits = calls_->streams_wait() ? waits_ : StreamOperation::Waits::kHost;
  // A Work may outlive the communicator, and look at the device when that is gone.
  return {calls_, stream, device, waits, std::move(pieces), [made = group_.weak_from_this()](const Error& error) {
            const auto group = made.lock();
            if (group && error.code != ErrorCode::kInvalid) group->context().fail(error);
          }};
}

void DeviceSide::take_room(StreamOperation& call) {
  const auto has_failed = [this] {
    if (call_interrupted()) group_.context().interrupt();
    return group_.context().failure.get() != nullptr;
  };
  if (!call.take_room(has_failed)) group_.context().check_usable();
}

// Makes the call, and takes memory, room and an event for it, before anything is in the stream.
OperationRef<StreamOperation> DeviceSide::make(const Checked& checked, const std::vector<ListPiece>& cut) {
  std::vector<Piece> pieces;
  for (const ListPiece& piece : cut) pieces.push_back(piece.piece);
  if (checked.staged()) calls_->prepare(checked.stream.device);  // any device's streams; kernels are on the rank's own
  auto options = in_stream(*checked.calls.front().stream, checked.stream.device, std::move(pieces));
  OperationRef<StreamOperation> made;
  if (checked.staged()) {
    made = Operation::make<StreamCall>(std::move(options));
  } else {
    options.waits = waits_;  // kernels wait by themselves
    const CheckedCall& call = checked.call();
    made = Operation::make<LaunchedCall>(std::move(options), island_, plan_of(call, checked.algorithm),
                                         group_.context().limit_of(call.timeout));
  }
  take_room(*made);
  return made;
}

OperationRef<Operation> DeviceSide::start(const Call& call) {
  const BatchCall item = group_.calls().lists().item_of(call);
  return start({&item, 1});
}

OperationRef<Operation> DeviceSide::start(std::span<const BatchCall> calls) {
  prepare(calls);
  const DeviceDriver::Entered entered(driver(), *calls.front().stream);
  return put(checked(calls, check_stream(call_name(calls), *calls.front().stream)));
}

OperationRef<Operation> DeviceSide::put(const Checked& checked) {
  return or_fail([&] { return submit(checked); });
}

// The order matters. Memory and room come first, since they may fail. Then, under order_mutex_, the operations
// get their numbers and the call goes into the stream, so that both orders are one.
OperationRef<Operation> DeviceSide::submit(const Checked& checked) {
  const std::vector<ListPiece> cut = this->cut(checked);
  const auto made = make(checked, cut);
  std::vector<OperationRef<CollectiveOperation>> operations;
  for (const BatchCall& call : calls_of(checked, cut, *made)) {
    operations.push_back(group_.calls().make(call.call, call.buffers));
  }
  std::lock_guard order(order_mutex_);
  follow_last(made->stream(), checked.stream.id);  // before the call has a number, since it may throw
  for (size_t i = 0; i < operations.size(); ++i) made->add_part(std::min(i, cut.size() - 1), *operations[i]);
  made->submitted();
  group_.calls().submit_all(operations);
  for (auto& operation : operations) {
    made->flow = operation->flow;
    const uint64_t fingerprint = operation->start.fingerprint;
    made->add_operation(std::move(operation), fingerprint);
  }
  made->flow->notify();
  made->enqueue();
  last_ = made;
  last_stream_ = checked.stream.id;
  return made;
}

void DeviceSide::run(const Call& call) {
  const BatchCall item = group_.calls().lists().item_of(call);
  if (!attached_.load(std::memory_order_acquire)) return void(start({&item, 1}));
  const DeviceDriver::Entered entered(driver(), *item.stream);
  StreamFacts stream{};
  if (driver().stream_facts(*item.stream, &stream) != 0) return void(start({&item, 1}));  // which says why
  if (stream.capturing) return capture({&item, 1}, stream);
  prepare({&item, 1});
  put(checked({&item, 1}, stream));
}

// Makes the call part of a graph. In a replay no host takes part: kernels count calls, compare cards, and end
// by their own deadline. All ranks capture the same calls, so the number of a captured call tells it from
// others of its form.
void DeviceSide::capture(std::span<const BatchCall> calls, const StreamFacts& stream) {
  refuse_unsupported(calls.front().call);
  const Checked checked = this->checked(calls, stream);
  if (checked.staged() || waits_ == StreamOperation::Waits::kHost) {
    throw Exception(
        ErrorCode::kUnsupported,
        fmt::format("{} on rank {}: the stream is being captured for a graph, which only calls that are one "
                    "kernel can be part of; this one {}",
                    collective_name(checked.call().collective), group_.rank(),
                    checked.staged() ? "is staged" : "has ranks that are threads"));
  }
  or_fail([&] {
    island_->keep_in(stream);
    const std::vector<ListPiece> cut = this->cut(checked);
    const auto made = make(checked, cut);
    for (const BatchCall& call : calls_of(checked, cut, *made)) {
      made->capture(call.call, call.buffers,
                    fingerprint_of(kind_of(group_.context().id, call.call), kCaptured | ++captured_));
    }
  });
}

}  // namespace rondo
