#include "ring/engine/device/device_side.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ring/base/log.h"

namespace rondo {
namespace {

constexpr int kOldestMajor = 8;  // compute capability that librondo_cuda.so has code for
constexpr std::chrono::milliseconds kBetweenLettingGo{5};
// A block of a ring: launches would eat what smaller ones gain by overlap.
constexpr uint64_t kMostMessageBytes = 16u << 20;
// By which a block may be larger than its share of a piece: it is cut at whole lines and elements.
constexpr uint64_t kBlockSlackBytes = 256;

// What ranks tell each other when they attach.
struct AttachCard {
  int64_t pid = 0;
  int64_t works = 0;
  int64_t shares = 0;  // kSharesBy..., and its streams write words
};

}  // namespace

void DeviceSide::attach(std::chrono::milliseconds timeout, const void* const* stream) {
  if (attached_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(attach_mutex_);
  if (attached_.load()) return;
  const auto library = exchange(timeout, stream);
  calls_ = std::make_shared<StreamCalls>(library, group_.context().fabric->shared_memory(), group_.rank());
  if (sharings_ != 0) connect(library, timeout);
  attached_.store(true, std::memory_order_release);
}

// The library, on a device that it is made for.
std::shared_ptr<const DeviceLibrary> DeviceSide::open(const void* const* stream, DeviceFacts& facts) {
  auto library = DeviceLibrary::open(group_.context().config.device_library);
  library->check(library->table().current(&device_), "asking for the current device");
  StreamFacts where{};
  if (stream != nullptr && library->table().stream_facts(const_cast<void*>(*stream), &where) == 0 &&
      where.device >= 0) {
    device_ = where.device;
  }
  library->check(library->table().facts(device_, &facts), "asking for the device's properties");
  if (facts.major < kOldestMajor) {
    throw Exception(
        ErrorCode::kUnsupported,
        fmt::format("no GPU can be used: device {} ({}) has compute capability {}.{}; {}.0 or newer is needed", device_,
                    facts.name, facts.major, facts.minor, kOldestMajor));
  }
  if (facts.waits_on_words == 0) waits_ = StreamCall::Waits::kHost;
  return library;
}

template <class Card>
std::vector<Card> DeviceSide::gather(const Card& own, std::chrono::milliseconds timeout) {
  std::vector<Card> cards(static_cast<size_t>(group_.size()));
  CollectiveCall gather;
  gather.collective = Collective::kAllGather;
  gather.input = &own;
  gather.output = cards.data();
  gather.count = sizeof(Card);
  gather.dtype = DType::kUint8;
  gather.options.timeout = timeout;
  CommunicatorState::Part part{check_call(gather, group_.rank(), group_.size()), group_.for_plain_buffers(), {}};
  part.call.attaches = true;
  std::vector<CommunicatorState::Part> parts;
  parts.push_back(std::move(part));
  const auto operation = group_.submit_all(std::move(parts)).front();
  operation->wait(Clock::time_point::max());
  if (operation->failed()) throw Exception(operation->error());
  return cards;
}

DeviceIsland::AllSay DeviceSide::all_say(std::chrono::milliseconds timeout) {
  return [this, timeout](uint64_t own) { return gather(own, timeout); };
}

Clock::time_point DeviceSide::deadline(std::chrono::milliseconds timeout) const {
  const std::chrono::milliseconds configured(group_.context().config.timeout_ms);
  return deadline_after(Clock::now(), timeout.count() > 0 ? timeout : configured);
}

// All ranks open the library, and hear of the others whether it was there.
std::shared_ptr<const DeviceLibrary> DeviceSide::exchange(std::chrono::milliseconds timeout,
                                                          const void* const* stream) {
  std::shared_ptr<const DeviceLibrary> library;
  DeviceFacts facts{};
  Error error;
  try {
    library = open(stream, facts);
  } catch (const Exception& e) {
    error = e.error();
  }
  const CommunicatorContext& context = group_.context();
  const bool shares = facts.waits_on_words != 0 && context.topology.one_island() &&
                      context.config.device_window_bytes > 0 && group_.size() <= kMaxPlaceRanks;
  const AttachCard own{getpid(), error.ok() ? 1 : 0, shares ? facts.shares_memory : 0};
  const std::vector<AttachCard> cards = gather(own, timeout);
  if (!error.ok()) {
    throw Exception(error.code, fmt::format("attach_device on rank {}: {}", group_.rank(), error.message));
  }
  const std::vector<int>& host = context.topology.host;
  sharings_ = kSharesByDescriptor | kSharesByIpc;
  for (int r = 0; r < group_.size(); ++r) {
    const AttachCard& card = cards[static_cast<size_t>(r)];
    if (card.works == 0) {
      throw Exception(Error{ErrorCode::kUnsupported,
                            fmt::format("attach_device on rank {}: {} can use no GPU; its own error says why",
                                        group_.rank(), context.name(r)),
                            {r}});
    }
    sharings_ &= static_cast<int32_t>(card.shares);
    // Streams of one process may share a queue of the device, in which a wait of one rank would stand before the copy
    // of another one that it waits for.
    const bool here = host[static_cast<size_t>(r)] == host[static_cast<size_t>(group_.rank())] && card.pid == own.pid;
    if (r != group_.rank() && here) waits_ = StreamCall::Waits::kHost;
  }
  return library;
}

// Device memory that all ranks map, if that works between all of them.
void DeviceSide::connect(const std::shared_ptr<const DeviceLibrary>& library, std::chrono::milliseconds timeout) {
  auto island = std::make_shared<DeviceIsland>(group_.context(), library, device_);
  const std::string wrong = island->connect(sharings_, all_say(timeout), deadline(timeout));
  const Logger log(group_.context().config.debug, group_.context().world_rank(group_.rank()));
  if (!wrong.empty()) {
    island->close(deadline(timeout));
    if (log.shows(LogLevel::kWarn)) {
      log.warn(fmt::format("calls on device memory are staged through host memory: {}", wrong));
    }
    return;
  }
  if (group_.rank() == 0 && log.shows(LogLevel::kInfo)) {
    log.info(fmt::format("devices share memory, {}; their ring: {}",
                         island->rates().complete() ? "each with all others" : "not each with all others",
                         island->order().empty() ? "none" : fmt::format("{}", fmt::join(island->order(), " "))));
  }
  island_ = std::move(island);
  plans_.emplace(group_.rank(), group_.context().topology, island_->order());
  group_.set_streams([island = island_, calls = calls_](Clock::time_point now) {
    if (!island->let_go(now)) return StreamsEnd::kAtWork;
    return calls->wait_for_all(now) ? StreamsEnd::kDrained : StreamsEnd::kEntriesLeft;
  });
}

void* DeviceSide::allocate(size_t bytes) {
  if (bytes == 0) {
    throw Exception(ErrorCode::kInvalid, fmt::format("allocate on rank {}: 0 bytes", group_.rank()));
  }
  attach({});
  if (island_) return island_->allocate(bytes, all_say({}), deadline({}));
  int before = 0;
  void* data = nullptr;
  calls_->library->check(table().current(&before), "asking for the current device");
  calls_->library->check(table().use(device_), "changing the current device");
  const DeviceStatus status = table().allocate(bytes, &data);
  table().use(before);
  calls_->library->check(status, "allocating device memory");
  std::lock_guard lock(order_mutex_);
  plain_[data] = bytes;
  return data;
}

bool DeviceSide::deallocate(void* data) {
  if (!attached_.load(std::memory_order_acquire)) return false;
  if (!island_) {
    std::lock_guard lock(order_mutex_);
    if (plain_.erase(data) == 0) return false;
    calls_->library->check(table().release(data), "releasing device memory");
    return true;
  }
  if (!island_->locate(data, 1)) return false;
  if (!calls_->wait_for_all(Clock::now() + std::chrono::milliseconds(group_.context().config.destroy_timeout_ms))) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("deallocate on rank {}: calls on streams are under way; synchronize the streams first",
                                group_.rank()));
  }
  return island_->deallocate(data);
}

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

// By what all ranks know: the same on all of them.
Algorithm DeviceSide::algorithm_of(const CheckedCall& call, const CallOptions& options) const {
  const Config& config = group_.context().config;
  if (!island_ || call.uneven || call.count == 0 || call.op == Op::kPremulSum) return Algorithm::kAuto;
  if (config.check_results != "off") return Algorithm::kAuto;  // RONDO_CHECK looks at host memory
  const Algorithm asked = options.algorithm != Algorithm::kAuto ? options.algorithm : config.algorithm;
  return choose_device_plan(island_->rates(), island_->order(),
                            {call.collective, call.root, call.total_bytes(group_.size())}, asked);
}

// Of a ring, such that a block is a message.
std::vector<Piece> DeviceSide::pieces_of(const CheckedCall& call, const StreamPlans::Entry& plan) const {
  uint64_t bytes = group_.context().config.device_window_bytes;
  if (plan.plan.algorithm == Algorithm::kRing) {
    bytes = std::min(kMostMessageBytes, island_->place_bytes() - kBlockSlackBytes) * plan.plan.chunks;
  }
  return cut_pieces(call, group_.rank(), group_.size(), bytes, UINT64_MAX);
}

// What comes into another stream than the last call comes after that one.
void DeviceSide::follow_last(void* stream) {
  const std::shared_ptr<Operation> last = last_.lock();
  if (last && stream != last_stream_ && !last->done()) last->wait_on(stream);
}

void DeviceSide::check_own_device(const char* call, const StreamFacts& stream) const {
  if (stream.device == island_->device()) return;
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("{} on rank {}: the stream is of device {}; this communicator was attached to device {}",
                              call, group_.rank(), stream.device, island_->device()));
}

const StreamPlans::Entry& DeviceSide::plan_of(const CheckedCall& call, Algorithm algorithm) {
  std::lock_guard order(order_mutex_);
  return plans_->get(call.collective, algorithm, call.root);
}

// As if its buffers were in window 0, since blocks are a piece's.
CheckedCall DeviceSide::call_of(CollectiveCall call, const Piece& piece) const {
  call.count = piece.count;
  call.input = island_->bounce() + piece.input;
  call.output = island_->bounce() + piece.output;
  call.options.stream.reset();
  return check_call(call, group_.rank(), group_.size());
}

std::shared_ptr<Operation> DeviceSide::start_enqueued(const CollectiveCall& call, const CheckedCall& checked,
                                                      const StreamFacts& stream, Algorithm algorithm) {
  check_own_device(collective_name(call.collective), stream);
  Enqueued what{algorithm, pieces_of(checked, plan_of(checked, algorithm)), {}, *call.options.stream};
  for (const Piece& piece : what.pieces) what.calls.push_back(call_of(call, piece));
  return enqueue(std::move(what));
}

// Tensors are put together in window 0, on which only passes over all memory work.
std::shared_ptr<Operation> DeviceSide::start_enqueued_list(std::span<const TensorRef> tensors, Op op,
                                                           const CallOptions& options, const ListArguments& arguments) {
  if (!island_) return nullptr;
  CollectiveCall call;
  call.op = op;
  call.options = options;
  if (call.options.algorithm == Algorithm::kAuto) call.options.algorithm = Algorithm::kRegistered;
  Enqueued what;
  what.stream = *options.stream;
  for (ListPiece& piece : cut_list(tensors, group_.context().config.device_window_bytes)) {
    call.dtype = piece.dtype;
    what.calls.push_back(call_of(call, piece.piece));
    what.pieces.push_back(std::move(piece.piece));
  }
  if (what.calls.empty() || algorithm_of(what.calls.front(), call.options) != Algorithm::kRegistered) return nullptr;
  check_own_device("all_reduce_many", arguments.stream);
  for (size_t i = 0; i < what.calls.size() && arguments.list; ++i) {
    CheckedCall& part = what.calls[i];
    part.list = arguments.list;
    part.shared_counts = arguments.list->hash;
    part.part = static_cast<uint32_t>(i + 1);
    part.parts = static_cast<uint32_t>(what.calls.size());
  }
  return enqueue(std::move(what));
}

std::shared_ptr<Operation> DeviceSide::enqueue(Enqueued what) {
  const StreamPlans::Entry& plan = plan_of(what.calls.front(), what.algorithm);
  const uint32_t entries = EnqueuedCall::entries_of(what.pieces, plan.program);
  if (!calls_->begin(entries, [this] { return group_.context().failure.get() != nullptr; })) group_.check_usable();
  std::lock_guard order(order_mutex_);
  const auto made = std::make_shared<EnqueuedCall>(EnqueuedCall::Options{
      calls_, island_, &plan, what.stream, waits_, std::move(what.pieces), [this](const Error& error) {
        if (error.code != ErrorCode::kInvalid) group_.fail(error);
      }});
  std::vector<CommunicatorState::Part> parts;
  const Algorithm shown = what.algorithm == Algorithm::kRing ? Algorithm::kRing : Algorithm::kAuto;
  for (size_t i = 0; i < what.calls.size(); ++i) {
    CommunicatorState::Part part{std::move(what.calls[i]), shown, {}};
    part.call.piece = static_cast<uint32_t>(i + 1);
    part.call.pieces = static_cast<uint32_t>(what.calls.size());
    EnqueuedCall::Part moved = made->add_part(part.call);
    part.gate = std::move(moved.gate);
    part.run = std::move(moved.run);
    parts.push_back(std::move(part));
  }
  follow_last(what.stream);
  for (auto& operation : group_.submit_all(std::move(parts))) {
    made->engine = operation->engine;
    const uint64_t fingerprint = operation->fingerprint();
    made->add_operation(std::move(operation), fingerprint);
  }
  group_.leave_to_progress_thread(*made->engine);
  made->enqueue();
  last_ = made;
  last_stream_ = what.stream;
  return made;
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
  for (const auto& [data, bytes] : std::exchange(plain_, {})) table().release(data);
}

}  // namespace rondo
