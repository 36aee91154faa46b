#include "ring/engine/device/device_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rondo {
namespace {

constexpr std::chrono::milliseconds kBetweenLettingGo{5};

}  // namespace

StreamFacts DeviceSide::check_stream(const DeviceDriver& driver, const std::string& call, void* stream) const {
  StreamFacts facts{};
  if (const DeviceStatus status = driver.stream_facts(stream, &facts)) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {} is no stream of this process: {}", call,
                                                     group_.rank(), stream, driver.error_text(status)));
  }
  if (facts.capturing) {
    throw Exception(
        ErrorCode::kUnsupported,
        fmt::format(
            "{} on rank {}: the stream is being captured for a graph, which only collectives without a Work can "
            "be part of, after attach_device()",
            call, group_.rank()));
  }
  return facts;
}

void DeviceSide::check_device(const std::string& call, const StreamFacts& stream, const Memory& memory) const {
  PointerFacts facts{};
  driver().check(driver().pointer_facts(device_, memory.data, &facts), "asking for a pointer's memory");
  const auto refuse = [&](const std::string& why) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} on rank {}: {} {} {}", call, group_.rank(), memory.name, memory.data, why));
  };
  if (facts.kind == MemoryKind::kHost) {
    refuse("is host memory; with CallOptions::stream every buffer of the call is memory of the stream's device");
  }
  if (facts.kind == MemoryKind::kDevice && facts.device != stream.device) {
    refuse(fmt::format("is memory of device {}, and the stream is of device {}", facts.device, stream.device));
  }
}

void DeviceSide::check_buffers(const Call& call, const StreamFacts& stream, const Piece& first) const {
  const char* const name = collective_name(call.collective);
  if (!first.in.empty()) check_device(name, stream, {"input", call.input});
  if (!first.out.empty()) check_device(name, stream, {"output", call.output});
}

void DeviceSide::check_host(const char* call, const void* data) const {
  if (!attached_.load(std::memory_order_acquire) || data == nullptr) return;
  PointerFacts facts{};
  if (driver().pointer_facts(device_, data, &facts) != 0 || facts.kind != MemoryKind::kDevice) return;
  throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {} is memory of device {}; give CallOptions::stream",
                                                   call, group_.rank(), data, facts.device));
}

void DeviceSide::check_host(const Call& call) const {
  check_host(collective_name(call.collective), call.input);
  check_host(collective_name(call.collective), call.output);
}

// A piece of the call, on other memory.
CheckedCall DeviceSide::call_of(Call call, const Piece& piece, std::byte* memory) const {
  call.options.stream.reset();
  call.count = piece.count;
  call.input_counts = piece.input_counts;
  call.output_counts = piece.output_counts;
  call.input_displacements = call.output_displacements = {};
  call.input = memory + piece.input;
  call.output = memory + piece.output;
  return check_call(call, group_.rank(), group_.size());
}

// The operations of an even or uneven call, a piece each and those of no element, with their gates.
std::vector<BatchPart> DeviceSide::parts_of(const Call& call, StreamCall& stream_call) const {
  const std::vector<Piece>& pieces = stream_call.pieces();
  std::vector<BatchPart> parts;
  const auto add = [&](const Piece& piece, std::byte* region, const std::shared_ptr<Gate>& gate) {
    parts.push_back({call_of(call, piece, region)});
    parts.back().gate = gate;
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto gate = stream_call.add_gate(i, static_cast<int>(1 + pieces[i].empty_calls));
    add(pieces[i], stream_call.region(i), gate);
    Piece none;
    none.input_counts.resize(pieces[i].input_counts.size());
    none.output_counts.resize(pieces[i].output_counts.size());
    for (uint32_t empty = 0; empty < pieces[i].empty_calls; ++empty) add(none, stream_call.region(i), gate);
  }
  return parts;
}

void DeviceSide::number_pieces(std::vector<BatchPart>& parts, const std::shared_ptr<const TensorList>& list) {
  for (size_t i = 0; i < parts.size(); ++i) {
    CheckedCall& call = parts[i].call;
    call.piece = static_cast<uint32_t>(i + 1);
    call.pieces = static_cast<uint32_t>(parts.size());
    if (!list) continue;
    call.list = list;
    call.shared_counts = list->hash;
    call.part = call.piece;
    call.parts = call.pieces;
  }
}

StreamOperation::Options DeviceSide::in_stream(void* stream, int device, std::vector<Piece> pieces) {
  return {calls_, stream, device, waits_, std::move(pieces), [this](const Error& error) {
            if (error.code != ErrorCode::kInvalid) group_.fail(error);
          }};
}

void DeviceSide::take_room(StreamOperation& call) {
  if (!call.take_room([this] { return group_.context().failure.get() != nullptr; })) group_.check_usable();
}

std::shared_ptr<StreamCall> DeviceSide::make(std::vector<Piece> pieces, void* stream, int device) {
  auto made = std::make_shared<StreamCall>(in_stream(stream, device, std::move(pieces)));
  take_room(*made);
  return made;
}

// Under order_mutex_.
void DeviceSide::submit(const std::shared_ptr<StreamOperation>& call, std::vector<BatchPart> parts,
                        uint64_t stream_id) {
  follow_last(call->stream(), stream_id);
  for (auto& operation : group_.submit_all(std::move(parts))) {
    call->engine = operation->engine;
    const uint64_t fingerprint = operation->fingerprint;
    call->add_operation(std::move(operation), fingerprint);
  }
  group_.leave_to_progress_thread(*call->engine);
  call->enqueue();
  last_ = call;
  last_stream_ = stream_id;
}

DeviceSide::Arguments DeviceSide::check_arguments(const Call& call) {
  if (call.op == Op::kUser || collective_scans(call.collective)) {
    throw Exception(ErrorCode::kUnsupported, fmt::format("{} on rank {}: scans and operations of the program's are for "
                                                         "host memory, not a stream",
                                                         collective_name(call.collective), group_.rank()));
  }
  Arguments arguments{check_call(call, group_.rank(), group_.size()), {}, {}};
  const std::string name = collective_name(call.collective);
  if (call.options.wire.format != WireFormat::kNone) {
    throw Exception(ErrorCode::kUnsupported,
                    fmt::format("{} on rank {}: calls on a stream have no wire format ({} was asked for)", name,
                                group_.rank(), wire_format_name(call.options.wire.format)));
  }
  attach_for(name.c_str(), call.options.timeout, &*call.options.stream);
  group_.ready_progress_thread();
  arguments.stream = check_stream(name, *call.options.stream);
  arguments.pieces =
      cut_pieces(arguments.checked, group_.rank(), group_.size(), kPieceBytes, kMostPieces, Edges::kShort);
  check_buffers(call, arguments.stream, arguments.pieces.front());
  return arguments;
}

void DeviceSide::run(const Call& call) {
  StreamFacts stream{};
  const bool asks = attached_.load(std::memory_order_acquire);
  if (asks && driver().stream_facts(*call.options.stream, &stream) == 0 && stream.capturing) {
    capture(call, stream);
  } else {
    start(call);
  }
}

std::shared_ptr<Operation> DeviceSide::start(const Call& call) {
  Arguments arguments = check_arguments(call);
  if (const Algorithm algorithm = algorithm_of(arguments.checked, call.options); algorithm != Algorithm::kAuto) {
    return enqueue(enqueued_of(call, arguments.checked, arguments.stream, algorithm));
  }
  std::shared_ptr<StreamCall> made = make(std::move(arguments.pieces), *call.options.stream, arguments.stream.device);
  std::vector<BatchPart> parts = parts_of(call, *made);
  number_pieces(parts, nullptr);
  std::lock_guard order(order_mutex_);
  submit(made, std::move(parts), arguments.stream.id);
  return made;
}

DeviceSide::ListArguments DeviceSide::check_list(std::span<const TensorRef> tensors, Op op,
                                                 const CallOptions& options) {
  const std::vector<BatchPart> parts = group_.lists().parts(tensors, op, options);
  attach_for("all_reduce_many", options.timeout, &*options.stream);
  group_.ready_progress_thread();
  const StreamFacts stream = check_stream("all_reduce_many", *options.stream);
  for (const TensorRef& tensor : tensors) {
    if (tensor.count == 0) continue;
    check_device("all_reduce_many", stream, {"the input of a tensor", tensor.input});
    check_device("all_reduce_many", stream, {"the output of a tensor", tensor.output});
  }
  return {stream, parts.empty() ? nullptr : parts.front().call.list};
}

std::shared_ptr<Operation> DeviceSide::start_list(std::span<const TensorRef> tensors, Op op,
                                                  const CallOptions& options) {
  const ListArguments arguments = check_list(tensors, op, options);
  // Alone it is the same call as outside.
  if (tensors.size() == 1) return start(all_reduce_of(tensors.front(), op, options));
  if (auto enqueued = start_enqueued_list(tensors, op, options, arguments)) return enqueued;
  return start_staged_list(tensors, op, options, arguments);
}

// Types by turns, so that pieces are full.
std::shared_ptr<Operation> DeviceSide::start_staged_list(std::span<const TensorRef> tensors, Op op,
                                                         const CallOptions& options, const ListArguments& arguments) {
  std::vector<TensorRef> ordered(tensors.begin(), tensors.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const TensorRef& a, const TensorRef& b) { return a.dtype < b.dtype; });
  uint64_t bytes = 0;
  for (const TensorRef& tensor : tensors) bytes += tensor.count * dtype_bytes(tensor.dtype);
  std::vector<ListPiece> cut = cut_list(ordered, piece_bytes_of(bytes));
  if (cut.empty()) cut.emplace_back();  // all of them are empty: the ranks compare the list
  std::vector<Piece> pieces;
  for (ListPiece& piece : cut) pieces.push_back(std::move(piece.piece));
  const std::shared_ptr<StreamCall> made = make(std::move(pieces), *options.stream, arguments.stream.device);
  Call call = all_reduce_of({}, op, options);
  std::vector<BatchPart> parts;
  for (size_t i = 0; i < cut.size(); ++i) {
    call.dtype = cut[i].dtype;
    parts.push_back({call_of(call, made->pieces()[i], made->region(i))});
    parts.back().gate = made->add_gate(i, 1);
  }
  number_pieces(parts, arguments.list);
  std::lock_guard order(order_mutex_);
  submit(made, std::move(parts), arguments.stream.id);
  return made;
}

void DeviceSide::close(Clock::time_point until) {
  if (!attached_.load(std::memory_order_acquire)) return;
  // Until then streams that come to calls of this rank are let go, again and again.
  bool over = false;
  while (!(over = calls_->wait_for_all(std::min(until, Clock::now() + kBetweenLettingGo))) && Clock::now() < until) {
    if (island_) island_->let_go(Clock::now());
  }
  if (!over) return;
  calls_->free_all();
  if (island_) island_->close(until);
  for (void* const data : std::exchange(plain_, {})) driver().release(device_, data);
}

}  // namespace rondo
