#include "ring/engine/communicator_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ring/base/hash.h"
#include "ring/engine/call/collective_call.h"
#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

WaitPolicy patience_for(const Config& config, const Fabric& fabric) {
  const Place& place = fabric.place();
  const bool crowded = rondo::crowded(fabric.topology(), place.rank, place.local_world);
  return {std::chrono::microseconds(config.spin_us), crowded, crowded ? -1 : place.local_rank};
}

// Threads beside the caller's that this rank may use for lanes: those of cores that no rank of the host needs.
uint32_t lane_threads_for(const Config& config, const Fabric& fabric) {
  if (config.lane_threads >= 0) return static_cast<uint32_t>(config.lane_threads);
  const Place& place = fabric.place();
  return static_cast<uint32_t>(rondo::spare_cores(fabric.topology(), place.rank, place.local_world));
}

Topology topology_of(const Fabric& fabric, const std::vector<int>& members) {
  Topology topology;
  std::map<int, int> seen;
  for (const int member : members) {
    const int host = fabric.topology().host[static_cast<size_t>(member)];
    topology.host.push_back(seen.emplace(host, static_cast<int>(seen.size())).first->second);
    if (!fabric.topology().cores.empty()) {
      topology.cores.push_back(fabric.topology().cores[static_cast<size_t>(member)]);
    }
  }
  if (fabric.topology().island.empty()) return topology;
  seen.clear();
  for (const int member : members) {
    const int island = fabric.topology().island[static_cast<size_t>(member)];
    topology.island.push_back(island < 0 ? -1 : seen.emplace(island, static_cast<int>(seen.size())).first->second);
  }
  return topology;
}

std::shared_ptr<CommunicatorContext> make_context(CommunicatorState::Options& options) {
  auto context = std::make_shared<CommunicatorContext>();
  context->fabric = std::move(options.fabric);
  context->id = options.id;
  context->members = std::move(options.members);
  context->rank = context->group_rank(context->fabric->place().rank);
  context->topology = topology_of(*context->fabric, context->members);
  context->config = std::move(options.config);
  context->observed.observer = std::move(options.observer);
  context->observed.communicator = context->observed.observer->communicator(context->id, context->members);
  return context;
}

Work::Message message_of(const Operation& receive) { return {receive.peer, receive.tag, receive.message_bytes}; }

// Of one call: its residual, and what is wrong with it, are not among what prepared calls have in common.
bool says_anything(const WireOptions& wire) {
  return wire.format != WireFormat::kNone || wire.stochastic || wire.residual != nullptr;
}

void throw_failure(const Operation& operation) {
  if (operation.failed()) throw Exception(operation.error());
}

}  // namespace

WaitPolicy CommunicatorState::progress_thread_policy(const Config& config, const Fabric& fabric) {
  WaitPolicy policy = patience_for(config, fabric);
  policy.home = -1;  // the thread that makes the calls is there
  return policy;
}

CommunicatorState::CommunicatorState(Options options)
    : context_(make_context(options)),
      progress_thread_(std::move(options.progress_thread)),
      pid_(getpid()),
      allocations_(context_->fabric->shared_memory(), context_->rank) {
  const WaitPolicy policy = patience_for(context_->config, *context_->fabric);
  auto bell = std::make_shared<Doorbell>();
  auto message_bell = std::make_shared<Doorbell>();
  collectives_ = std::make_shared<Collectives>(context_, bell, progress_thread_, policy,
                                               lane_threads_for(context_->config, *context_->fabric));
  messages_ = std::make_shared<Messages>(context_, message_bell, progress_thread_, policy);
  context_->fabric->open(context_->id, context_->members, this, std::move(bell), std::move(message_bell));
}

CommunicatorState::~CommunicatorState() {
  try {
    destroy();
  } catch (const std::exception&) {
    // Leaving is all that is left to do; the others find out by the end of the connections.
  }
}

void CommunicatorState::refuse_use() const {
  if (!context_->mark.same_process()) {
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("this process (pid {}) was forked from rank {} (pid {}): a communicator belongs to the process "
                    "that joined; make a new one after the fork",
                    getpid(), context_->rank, pid_));
  }
  throw Exception(*context_->failure.get());
}

std::chrono::milliseconds CommunicatorState::limit_of(std::chrono::milliseconds timeout) const {
  return timeout.count() > 0 ? timeout : std::chrono::milliseconds(context_->config.timeout_ms);
}

Clock::time_point CommunicatorState::deadline(std::chrono::milliseconds timeout) const {
  return deadline_after(Clock::now(), limit_of(timeout));
}

Algorithm CommunicatorState::algorithm_for(const CollectiveCall& call, bool registered) const {
  CheckedCall checked;
  checked.collective = call.collective;
  checked.count = call.count;
  checked.dtype = call.dtype;
  checked.op = call.op;
  return collectives_->algorithm_for(checked, call.options.algorithm, registered);
}

// Under the submission lock. The call's buffers have been checked, and nothing has happened if it throws. Until the
// next call of this.
const std::shared_ptr<PreparedCall>& CommunicatorState::prepare(const CollectiveCall& call) {
  if (call.uneven) {
    return not_kept_ = collectives_->prepare(check_call(call, rank(), size()), call.options.algorithm);
  }
  const CallKey key = key_of(call);
  if (const std::shared_ptr<PreparedCall>* kept = prepared_.find(key)) {
    PreparedCall& known = **kept;
    if (call.input != known.input || call.output != known.output || says_anything(call.options.wire)) {
      check_call(call, rank(), size());
      known.input = call.input;
      known.output = call.output;
    }
    return *kept;
  }
  return prepared_.keep(key, collectives_->prepare(check_call(call, rank(), size()), call.options.algorithm));
}

std::shared_ptr<CollectiveOperation> CommunicatorState::submit(std::shared_ptr<PreparedCall> prepared,
                                                               const CollectiveCall& call) {
  const auto timeout = prepared->call.timeout;
  auto operation = std::make_shared<CollectiveOperation>(std::move(prepared), static_cast<const std::byte*>(call.input),
                                                         static_cast<std::byte*>(call.output));
  operation->wire = call.options.wire;
  operation->engine = collectives_;
  operation->deadline = deadline(timeout);
  collectives_->submit(operation);
  return operation;
}

std::vector<std::shared_ptr<CollectiveOperation>> CommunicatorState::submit_all(std::vector<Part> parts) {
  check_usable();
  context_->log.note_thread();
  std::vector<std::shared_ptr<CollectiveOperation>> operations;
  operations.reserve(parts.size());
  std::lock_guard lock(submit_mutex_);
  for (Part& part : parts) {
    const CheckedCall& call = part.call;
    auto operation = std::make_shared<CollectiveOperation>(prepare(call, part.asked), call.input, call.output);
    operation->engine = collectives_;
    // Of a call on a stream it begins when the stream has come to it (Collectives::tick).
    operation->deadline = part.gate ? Clock::time_point::max() : deadline(call.timeout);
    operation->gate = std::move(part.gate);
    operation->packing = std::move(part.packing);
    operations.push_back(std::move(operation));
  }
  for (const auto& operation : operations) collectives_->submit(operation);
  return operations;
}

std::shared_ptr<PreparedCall> CommunicatorState::prepare(const CheckedCall& call, Algorithm asked) {
  if (call.uneven) return collectives_->prepare(call, asked);
  const CallKey key = key_of(call, asked);
  if (const std::shared_ptr<PreparedCall>* kept = prepared_.find(key)) return *kept;
  return prepared_.keep(key, collectives_->prepare(call, asked));
}

// At once on this thread, while nothing else is under way.
void CommunicatorState::run(const CollectiveCall& call) {
  check_usable();
  if (call.options.stream) return device().run(call);
  if (DeviceSide* const device = attached()) device->check_host(call);
  context_->log.note_thread();
  std::unique_lock lock(submit_mutex_);
  const std::shared_ptr<PreparedCall>& prepared = prepare(call);
  // No owner of it: counting owners is a twentieth of an 8-byte call.
  CollectiveOperation operation({std::shared_ptr<void>(), prepared.get()}, static_cast<const std::byte*>(call.input),
                                static_cast<std::byte*>(call.output));
  operation.wire = call.options.wire;
  if (collectives_->begin_now(operation)) {
    if (running_ != prepared) running_ = prepared;
    lock.unlock();
    collectives_->run_held(operation);
    if (operation.failed()) throw Exception(operation.error());
    return;
  }
  const auto queued = submit(prepared, call);
  lock.unlock();
  collectives_->wait(*queued, Clock::time_point::max());
  if (queued->failed()) throw Exception(queued->error());
}

void CommunicatorState::ready_progress_thread() {
  check_usable();
  try {
    progress_thread_->start();
  } catch (const Exception& e) {
    fail(e.error());
    check_usable();
  }
}

std::shared_ptr<Operation> CommunicatorState::start(const CollectiveCall& call) {
  ready_progress_thread();
  if (call.options.stream) return device().start(call);
  if (DeviceSide* const device = attached()) device->check_host(call);
  context_->log.note_thread();
  std::shared_ptr<Operation> operation;
  {
    std::lock_guard lock(submit_mutex_);
    operation = submit(prepare(call), call);
  }
  leave_to_progress_thread(*collectives_);
  return operation;
}

void CommunicatorState::meet_neighbors(Clock::time_point until) {
  if (size() == 1) return;
  std::shared_ptr<CollectiveOperation> operation;
  {
    std::lock_guard lock(submit_mutex_);
    operation = collectives_->submit_opening(until);
  }
  collectives_->wait(*operation, Clock::time_point::max());
  if (operation->failed()) throw Exception(operation->error());
}

void CommunicatorState::check_peer(const char* call, int peer, int tag, bool receives) const {
  if (!(receives && peer == kAnySource) && (peer < 0 || peer >= size())) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} on rank {}: peer is {}; it must be a rank of the group, 0 to {}{}", call, rank(),
                                peer, size() - 1, receives ? ", or -1 for any" : ""));
  }
  if (tag < 0 && !(receives && tag == kAnyTag)) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: tag is {}; it must be 0 to 2147483647{}", call,
                                                     rank(), tag, receives ? ", or -1 for any" : ""));
  }
}

void CommunicatorState::refuse_stream(const char* call, const CallOptions& options) const {
  if (!options.stream) return;
  throw Exception(ErrorCode::kUnsupported,
                  fmt::format("{} on rank {}: messages on a stream have no asynchronous form; send(), recv() and "
                              "sendrecv() take one",
                              call, rank()));
}

void CommunicatorState::check_timeout(const char* call, const CallOptions& options) const {
  if (options.timeout.count() >= 0) return;
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("{} on rank {}: timeout is {} ms; it must be positive, or 0 for the configured one", call,
                              rank(), options.timeout.count()));
}

void CommunicatorState::submit_message(std::shared_ptr<MessageOperation> operation, const CallOptions& options,
                                       Waited waited) {
  operation->background = waited == Waited::kInBackground;
  operation->engine = messages_;
  operation->limit = limit_of(options.timeout);
  context_->log.note_thread();
  messages_->submit(std::move(operation));
}

void CommunicatorState::end_unsubmitted(MessageOperation& operation, const Error& error) const {
  operation.engine = messages_;  // whose progress thread calls the functions of its end
  operation.fail(error);
  operation.announce_end();
}

uint64_t CommunicatorState::send_bytes(const Outgoing& out, DType dtype, int tag) const {
  check_usable();
  const uint64_t bytes = checked_bytes("send", rank(), out.count, dtype);
  check_peer("send", out.peer, tag, false);
  if (bytes > 0 && out.data == nullptr) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("send on rank {}: data is null but {} bytes are to be sent", rank(), bytes));
  }
  return bytes;
}

std::shared_ptr<MessageOperation> CommunicatorState::make_send(const void* data, uint64_t count, DType dtype, int peer,
                                                               int tag) const {
  const uint64_t bytes = send_bytes({data, count, peer}, dtype, tag);
  return std::make_shared<SendOperation>(static_cast<const std::byte*>(data), bytes, dtype, peer, tag);
}

std::shared_ptr<MessageOperation> CommunicatorState::start_send(const void* data, uint64_t count, DType dtype, int peer,
                                                                int tag, const CallOptions& options) {
  check_timeout("send", options);
  refuse_stream("send_async", options);
  auto operation = make_send(data, count, dtype, peer, tag);
  submit_message(operation, options, Waited::kInBackground);
  return operation;
}

uint64_t CommunicatorState::recv_bytes(const Incoming& in, DType dtype, int tag) const {
  check_usable();
  const uint64_t bytes = checked_bytes("recv", rank(), in.count, dtype);
  check_peer("recv", in.peer, tag, true);
  if (bytes > 0 && in.data == nullptr) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("recv on rank {}: data is null but {} bytes may come", rank(), bytes));
  }
  return bytes;
}

std::shared_ptr<MessageOperation> CommunicatorState::make_recv(void* data, uint64_t count, DType dtype, int peer,
                                                               int tag) const {
  const uint64_t bytes = recv_bytes({data, count, peer}, dtype, tag);
  return std::make_shared<RecvOperation>(static_cast<std::byte*>(data), bytes, dtype, peer, tag);
}

std::shared_ptr<MessageOperation> CommunicatorState::start_recv(void* data, uint64_t count, DType dtype, int peer,
                                                                int tag, const CallOptions& options) {
  check_timeout("recv", options);
  refuse_stream("recv_async", options);
  auto operation = make_recv(data, count, dtype, peer, tag);
  submit_message(operation, options, Waited::kInBackground);
  return operation;
}

void CommunicatorState::run_messages(SendOperation* send, RecvOperation* recv, const CallOptions& options) {
  context_->log.note_thread();
  if (send != nullptr) send->limit = limit_of(options.timeout);
  if (recv != nullptr) recv->limit = limit_of(options.timeout);
  messages_->run(send, recv);
  if (send != nullptr) throw_failure(*send);
  if (recv != nullptr) throw_failure(*recv);
}

void CommunicatorState::send(const Outgoing& out, DType dtype, int tag, const CallOptions& options) {
  if (options.stream) return void(device().run_messages(&out, nullptr, dtype, tag, options));
  check_timeout("send", options);
  const uint64_t bytes = send_bytes(out, dtype, tag);
  if (DeviceSide* const device = attached()) device->check_host("send", out.data);
  SendOperation send(static_cast<const std::byte*>(out.data), bytes, dtype, out.peer, tag);
  run_messages(&send, nullptr, options);
}

Work::Message CommunicatorState::recv(const Incoming& in, DType dtype, int tag, const CallOptions& options) {
  if (options.stream) return device().run_messages(nullptr, &in, dtype, tag, options);
  check_timeout("recv", options);
  const uint64_t bytes = recv_bytes(in, dtype, tag);
  if (DeviceSide* const device = attached()) device->check_host("recv", in.data);
  RecvOperation recv(static_cast<std::byte*>(in.data), bytes, dtype, in.peer, tag);
  run_messages(nullptr, &recv, options);
  return message_of(recv);
}

Work::Message CommunicatorState::sendrecv(const Outgoing& out, const Incoming& in, DType dtype, int tag,
                                          const CallOptions& options) {
  if (options.stream) return device().run_messages(&out, &in, dtype, tag, options);
  const uint64_t recv_size = recv_bytes(in, dtype, tag);
  check_timeout("send", options);
  const uint64_t send_size = send_bytes(out, dtype, tag);
  SendOperation send(static_cast<const std::byte*>(out.data), send_size, dtype, out.peer, tag);
  RecvOperation recv(static_cast<std::byte*>(in.data), recv_size, dtype, in.peer, tag);
  run_messages(&send, &recv, options);
  return message_of(recv);
}

// A rank with messages under way beside what it waits for may still end what another rank waits for.
CallState CommunicatorState::call_state(uint64_t sequence) {
  CallState state = context_->log.state(sequence);
  state.threads |= messages_->in_background();
  state.p2p_moved = messages_->moved_bytes();
  return state;
}

DeviceSide& CommunicatorState::device() {
  check_usable();
  std::lock_guard lock(device_mutex_);
  if (!device_owner_) {
    device_owner_ = std::make_unique<DeviceSide>(*this);
    device_.store(device_owner_.get(), std::memory_order_release);
  }
  return *device_owner_;
}

void CommunicatorState::attach_device() { device().attach({}); }

Allocations& CommunicatorState::allocations() {
  if (!context_->mark.same_process()) check_usable();
  return allocations_;
}

std::shared_ptr<CommunicatorState> CommunicatorState::subgroup(uint64_t id, std::vector<int> members) {
  Options options;
  options.fabric = context_->fabric;
  options.id = id;
  options.members = members;
  options.config = context_->config;
  options.progress_thread = progress_thread_;
  options.observer = context_->observed.observer;
  std::shared_ptr<CommunicatorState> group;
  try {
    group = std::make_shared<CommunicatorState>(std::move(options));
  } catch (const Exception& e) {
    // The others would wait for this rank until their deadline.
    const int world_rank = context_->world_rank(rank());
    const Error error{e.code(), context_->fabric->peer_name(world_rank) + ": " + e.what(), {world_rank}};
    context_->fabric->decline(id, members, error);
    const auto own = std::find(members.begin(), members.end(), world_rank);
    throw Exception(Error{error.code, error.message, {static_cast<int>(own - members.begin())}});
  }
  group->meet_neighbors(deadline(std::chrono::milliseconds(context_->config.start_timeout_ms)));
  return group;
}

uint64_t CommunicatorState::next_split() {
  std::lock_guard lock(submit_mutex_);
  return ++splits_;
}

std::shared_ptr<CommunicatorState> CommunicatorState::split(int color, int key) {
  struct Choice {
    int32_t color, key;
  };
  const Choice own{color, key};
  std::vector<Choice> all(static_cast<size_t>(size()));
  CollectiveCall call;
  call.collective = Collective::kAllGather;
  call.input = &own;
  call.output = all.data();
  call.count = 2;
  call.dtype = DType::kInt32;
  call.options.algorithm = for_plain_buffers();
  run(call);
  const uint64_t number = next_split();
  if (color < 0) return nullptr;
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<size_t>(r)].color == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key; });
  for (int& r : ranks) r = context_->world_rank(r);
  const uint64_t id = Hash64().add("split").add(context_->id).add(number).add(static_cast<uint64_t>(color)).value();
  return subgroup(id, std::move(ranks));
}

std::shared_ptr<CommunicatorState> CommunicatorState::new_group(std::span<const int> ranks) {
  check_usable();
  const auto refuse = [this](const std::string& why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("new_group on rank {}: {}", rank(), why));
  };
  std::vector<int> members;
  for (const int r : ranks) {
    if (r < 0 || r >= size()) refuse(fmt::format("{} is not a rank of this group of {}", r, size()));
    if (std::count(ranks.begin(), ranks.end(), r) > 1) refuse(fmt::format("rank {} is given twice", r));
    members.push_back(context_->world_rank(r));
  }
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) {
    refuse("this rank is not among those given; only members make the call");
  }
  uint64_t number = 0;
  {
    std::lock_guard lock(submit_mutex_);
    number = ++groups_made_[members];
  }
  const uint64_t id =
      Hash64().add("group").add(context_->id).add_all(std::span<const int>(members)).add(number).value();
  return subgroup(id, std::move(members));
}

void CommunicatorState::on_failure(const Error& error) {
  Error own = error;
  std::vector<int> ranks;
  for (const int world_rank : error.ranks) {
    if (const int r = context_->group_rank(world_rank); r >= 0) ranks.push_back(r);
  }
  own.ranks = std::move(ranks);
  context_->failure.set(own);
  if (context_->observed.on()) context_->observed.observer->failed(context_->observed.communicator, own);
  collectives_->notify();
  messages_->notify();
}

void CommunicatorState::on_peer_left(int peer, uint64_t last_sequence) {
  context_->fabric->catch_up(peer);
  const int left = context_->group_rank(peer);
  collectives_->peer_left(left, last_sequence);
  messages_->peer_left(left);
}

void CommunicatorState::abort(const std::string& reason) {
  if (!context_->mark.same_process() || destroyed_.load()) return;
  context_->fabric->abort(context_->id,
                          {ErrorCode::kAborted,
                           fmt::format("rank {} aborted the group{}{}", rank(), reason.empty() ? "" : ": ", reason),
                           {context_->world_rank(rank())}});
  // The fabric tells the others, and this rank by its own thread; calls after abort() must fail at once.
  on_failure({ErrorCode::kAborted,
              fmt::format("rank {} aborted the group{}{}", rank(), reason.empty() ? "" : ": ", reason),
              {context_->world_rank(rank())}});
}

void CommunicatorState::destroy() {
  if (!context_->mark.same_process()) return;  // the parent's; the child must not speak for it
  std::lock_guard lock(destroy_mutex_);
  if (destroyed_.exchange(true)) return;
  const uint64_t last = context_->log.last_finished();
  const auto until = Clock::now() + std::chrono::milliseconds(context_->config.destroy_timeout_ms);
  context_->failure.set(
      {ErrorCode::kClosed, fmt::format("the communicator was destroyed on rank {}", rank()), {rank()}});
  collectives_->notify();
  messages_->finish(until);
  context_->fabric->close(context_->id, last, until);
  collectives_->shut_down();
  messages_->shut_down();
  if (DeviceSide* const device = attached()) device->close(until);
  if (!in_end_function()) progress_thread_->finish_calls();
}

}  // namespace rondo
