#include "ring/engine/device/device_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rondo {
namespace {

constexpr std::chrono::milliseconds kBetweenLettingGo{5};

}  // namespace

StreamFacts DeviceSide::check_stream(const std::string& call, void* stream) const {
  StreamFacts facts{};
  if (const DeviceStatus status = table().stream_facts(stream, &facts)) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {} is no stream of this process: {}", call,
                                                     group_.rank(), stream, table().error_text(status)));
  }
  if (facts.capturing != 0) {
    throw Exception(
        ErrorCode::kUnsupported,
        fmt::format("{} on rank {}: the stream is being captured for a graph, which calls cannot be part of", call,
                    group_.rank()));
  }
  return facts;
}

void DeviceSide::check_device(const std::string& call, const StreamFacts& stream, const Memory& memory) const {
  PointerFacts facts{};
  calls_->library->check(table().pointer_facts(memory.data, &facts), "asking for a pointer's memory");
  const auto refuse = [&](const std::string& why) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} on rank {}: {} {} {}", call, group_.rank(), memory.name, memory.data, why));
  };
  if (facts.kind == MemoryKind::kHost) {
    refuse("is host memory; with CallOptions::stream every buffer of the call is memory of the stream's device");
  }
  if (facts.kind == MemoryKind::kDevice && stream.device >= 0 && facts.device != stream.device) {
    refuse(fmt::format("is memory of device {}, and the stream is of device {}", facts.device, stream.device));
  }
}

void DeviceSide::check_host(const char* call, const void* data) const {
  if (!attached_.load(std::memory_order_acquire) || data == nullptr) return;
  PointerFacts facts{};
  if (table().pointer_facts(data, &facts) != 0 || facts.kind != MemoryKind::kDevice) return;
  throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {} is memory of device {}; give CallOptions::stream",
                                                   call, group_.rank(), data, facts.device));
}

void DeviceSide::check_host(const CollectiveCall& call) const {
  check_host(collective_name(call.collective), call.input);
  check_host(collective_name(call.collective), call.output);
}

// The operations of an even or uneven call, a piece each, with their gates.
std::vector<CommunicatorState::Part> DeviceSide::parts_of(const CollectiveCall& call, StreamCall& stream_call) const {
  const std::vector<Piece>& pieces = stream_call.pieces();
  std::vector<CommunicatorState::Part> parts;
  for (size_t i = 0; i < pieces.size(); ++i) {
    CollectiveCall piece = call;
    if (!call.uneven) piece.count = pieces[i].count;
    piece.options.stream.reset();
    piece.input = stream_call.region(i) + pieces[i].input;
    piece.output = stream_call.region(i) + pieces[i].output;
    CommunicatorState::Part part{check_call(piece, group_.rank(), group_.size()), call.options.algorithm, {}};
    part.call.piece = static_cast<uint32_t>(i + 1);
    part.call.pieces = static_cast<uint32_t>(pieces.size());
    part.gate = stream_call.add_gate(i, 1);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::shared_ptr<StreamCall> DeviceSide::make(std::vector<Piece> pieces, void* stream, int device) {
  const uint32_t entries = StreamCall::entries_of(pieces);
  if (!calls_->begin(entries, [this] { return group_.context().failure.get() != nullptr; })) group_.check_usable();
  return std::make_shared<StreamCall>(
      StreamCall::Options{calls_, stream, device, waits_, std::move(pieces), [this](const Error& error) {
                            if (error.code != ErrorCode::kInvalid) group_.fail(error);
                          }});
}

void DeviceSide::submit(StreamCall& call, std::vector<CommunicatorState::Part> parts) {
  for (auto& operation : group_.submit_all(std::move(parts))) {
    call.engine = operation->engine;
    call.add_operation(std::move(operation));
  }
  group_.leave_to_progress_thread(*call.engine);
  call.enqueue();
  last_ = call.weak_from_this();
  last_stream_ = call.stream();
}

DeviceSide::Arguments DeviceSide::check_arguments(const CollectiveCall& call) {
  Arguments arguments{check_call(call, group_.rank(), group_.size()), {}, {}};
  const std::string name = collective_name(call.collective);
  if (call.options.wire.format != WireFormat::kNone) {
    throw Exception(ErrorCode::kUnsupported,
                    fmt::format("{} on rank {}: calls on a stream have no wire format ({} was asked for)", name,
                                group_.rank(), wire_format_name(call.options.wire.format)));
  }
  attach(call.options.timeout, &*call.options.stream);
  group_.ready_progress_thread();
  arguments.stream = check_stream(name, *call.options.stream);
  arguments.pieces = cut_pieces(arguments.checked, group_.rank(), group_.size());
  const Piece& first = arguments.pieces.front();
  if (!first.in.empty()) check_device(name, arguments.stream, {"input", call.input});
  if (!first.out.empty()) check_device(name, arguments.stream, {"output", call.output});
  return arguments;
}

std::shared_ptr<Operation> DeviceSide::start(const CollectiveCall& call) {
  Arguments arguments = check_arguments(call);
  if (const Algorithm algorithm = algorithm_of(arguments.checked, call.options); algorithm != Algorithm::kAuto) {
    return start_enqueued(call, arguments.checked, arguments.stream, algorithm);
  }
  std::shared_ptr<StreamCall> made = make(std::move(arguments.pieces), *call.options.stream, arguments.stream.device);
  std::lock_guard order(order_mutex_);
  submit(*made, parts_of(call, *made));
  return made;
}

DeviceSide::ListArguments DeviceSide::check_list(std::span<const TensorRef> tensors, Op op, const CallOptions& options,
                                                 const ListParts& list_parts) {
  const std::vector<CommunicatorState::Part> parts = list_parts(tensors, op, options);
  attach(options.timeout, &*options.stream);
  group_.ready_progress_thread();
  const StreamFacts stream = check_stream("all_reduce_many", *options.stream);
  for (const TensorRef& tensor : tensors) {
    if (tensor.count == 0) continue;
    check_device("all_reduce_many", stream, {"the input of a tensor", tensor.input});
    check_device("all_reduce_many", stream, {"the output of a tensor", tensor.output});
  }
  return {stream, parts.empty() ? nullptr : parts.front().call.list};
}

std::shared_ptr<Operation> DeviceSide::start_list(std::span<const TensorRef> tensors, Op op, const CallOptions& options,
                                                  const ListParts& list_parts) {
  const ListArguments arguments = check_list(tensors, op, options, list_parts);
  if (auto enqueued = start_enqueued_list(tensors, op, options, arguments)) return enqueued;
  Piece piece;
  std::vector<uint64_t> places;
  for (const TensorRef& tensor : tensors) {
    const uint64_t bytes = tensor.count * dtype_bytes(tensor.dtype);
    places.push_back(piece.region_bytes);
    if (bytes == 0) continue;
    auto* const input = static_cast<std::byte*>(const_cast<void*>(tensor.input));
    piece.in.push_back({input, bytes, piece.region_bytes, bytes, bytes, 1});
    piece.out.push_back({static_cast<std::byte*>(tensor.output), bytes, piece.region_bytes, bytes, bytes, 1});
    piece.region_bytes += (bytes + 63) / 64 * 64;
  }
  std::shared_ptr<StreamCall> made = make({piece}, *options.stream, arguments.stream.device);
  std::vector<TensorRef> staged(tensors.begin(), tensors.end());
  for (size_t i = 0; i < staged.size(); ++i) staged[i].input = staged[i].output = made->region(0) + places[i];
  CallOptions on_host = options;
  on_host.stream.reset();
  std::lock_guard order(order_mutex_);
  std::vector<CommunicatorState::Part> parts = list_parts(staged, op, on_host);
  const auto gate = made->add_gate(0, static_cast<int>(parts.size()));
  for (CommunicatorState::Part& part : parts) {
    part.call.piece = part.call.pieces = 1;
    part.gate = gate;
  }
  submit(*made, std::move(parts));
  return made;
}

void DeviceSide::copy(void* to, const void* from, uint64_t bytes, void* stream) const {
  const DeviceCopy rows{to, from, bytes, bytes, bytes, 1};
  if (bytes > 0) calls_->library->check(table().copy(&rows, stream), "putting a copy into the stream");
}

Work::Message DeviceSide::run_messages(const CommunicatorState::Outgoing* out, const CommunicatorState::Incoming* in,
                                       DType dtype, int tag, const CallOptions& options) {
  const uint64_t going = out != nullptr ? group_.send_bytes(*out, dtype, tag) : 0;
  const uint64_t coming = in != nullptr ? group_.recv_bytes(*in, dtype, tag) : 0;
  group_.check_timeout(out != nullptr ? "send" : "recv", options);
  attach(options.timeout, &*options.stream);
  void* const stream = *options.stream;
  const StreamFacts facts = check_stream(out != nullptr ? "send" : "recv", stream);
  if (going > 0) check_device("send", facts, {"data", out->data});
  if (coming > 0) check_device("recv", facts, {"data", in->data});
  const uint64_t at = (going + 63) / 64 * 64;  // of what comes, in the region
  const StagingPool::Region region = calls_->pool.take(at + coming);
  // The stream has passed its copies when the memory is given back, however this ends.
  const std::shared_ptr<void> guard(nullptr, [&](void*) {
    table().synchronize(stream);
    calls_->pool.give_back(region);
  });
  copy(region.data, going > 0 ? out->data : nullptr, going, stream);
  calls_->library->check(table().synchronize(stream), "waiting for the stream");
  CallOptions on_host = options;
  on_host.stream.reset();
  CommunicatorState::Outgoing sent = out != nullptr ? *out : CommunicatorState::Outgoing{};
  CommunicatorState::Incoming received = in != nullptr ? *in : CommunicatorState::Incoming{};
  sent.data = region.data;
  received.data = region.data + at;
  if (in == nullptr) {
    group_.send(sent, dtype, tag, on_host);
    return {};
  }
  const Work::Message message = out != nullptr ? group_.sendrecv(sent, received, dtype, tag, on_host)
                                               : group_.recv(received, dtype, tag, on_host);
  copy(in->data, received.data, message.bytes, stream);
  return message;
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
  for (void* const data : std::exchange(plain_, {})) table().release(data);
}

}  // namespace rondo
