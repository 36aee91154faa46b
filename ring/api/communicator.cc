#include "rondo/communicator.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "ring/api/communicator_access.h"
#include "ring/api/growth.h"
#include "ring/base/interrupt.h"
#include "ring/base/log.h"
#include "ring/base/process_starts.h"
#include "ring/engine/batch.h"
#include "ring/engine/communicator_state.h"
#include "ring/engine/device/device_side.h"
#include "rondo/rondo.h"
#include "transport/fabrics/inproc_fabric.h"
#include "transport/fabrics/process_fabric.h"
#include "transport/rendezvous/launch.h"
#include "transport/rendezvous/rendezvous_url.h"

namespace rondo {
namespace {

using Milliseconds = std::chrono::milliseconds;

// With RONDO_DEBUG=info: where this process stands in its job, and each setting in a line of its own.
void show_start(const Config& config, const Launch& launch) {
  const Logger log(config.debug, launch.place.rank);
  if (!log.shows(LogLevel::kInfo)) return;
  const Place& place = launch.place;
  log.info(fmt::format("rank {} of {}, local rank {} of {}, node {} of {}; launcher {}, job {}, rendezvous {}",
                       place.rank, place.world, place.local_rank, place.local_world, place.node, place.nodes,
                       launch.launcher, launch.job_id, without_key(launch.rendezvous)));
  log.info(fmt::format("secret: {}", launch.secret.exists() ? launch.secret.name : "none"));
  const std::string settings = config.describe();
  for (size_t begin = 0; begin < settings.size();) {
    const size_t end = std::min(settings.find('\n', begin), settings.size());
    log.info(settings.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

// What a Communicator holds: its engine, its batch, and how it grows. The last one that holds a Growth ends it,
// if the communicator is over without a failure: then nobody will take newcomers in any more.
struct Communicator::State {
  // growth: null, where no newcomers are taken in.
  explicit State(std::shared_ptr<CommunicatorState> made, std::shared_ptr<Growth> how = {})
      : group(std::move(made)), growth(std::move(how)), batch(*group) {}
  ~State() {
    const Error* failure = group->context().failure.get();
    const bool well = failure == nullptr || failure->code == ErrorCode::kClosed;
    if (growth.use_count() == 1 && well && group->context().mark.same_process()) growth->end();
  }
  const std::shared_ptr<CommunicatorState> group;
  const std::shared_ptr<Growth> growth;  // shared with the epochs before and after
  Batch batch;
};

namespace {

// Outside of the template, which is inlined into every call.
[[noreturn]] void refuse_empty() {
  throw Exception(ErrorCode::kClosed, "this Communicator is empty or has been destroyed");
}

template <typename State>
// Templates, since Communicator::State is private and is deduced. Throws Exception(kClosed) for an empty Communicator.
State& open(const std::shared_ptr<State>& state) {
  if (!state) refuse_empty();
  return *state;
}

template <typename State>
CommunicatorState& engine(const std::shared_ptr<State>& state) {
  return *open(state).group;
}

// For a call that waits. In an end function it would wait for what only its own thread moves.
template <typename State>
State& blocking(const std::shared_ptr<State>& state) {
  refuse_wait_in_end_function();
  return open(state);
}

// The start: find the ranks, connect the processes, make the communicator, meet the neighbors. If it fails for
// want of ranks in a process that had joined before, the error says that a second join is a second group.
std::shared_ptr<CommunicatorState> join_world(const Launch& launch, const JoinOptions& options,
                                              Clock::time_point deadline) {
  const StartUnderWay start;
  try {
    auto store = options.store ? options.store : open_store(launch, options.config, deadline);
    auto group = world_group(join_processes(launch, std::move(store), options.config, deadline), {options.config});
    group->calls().meet_neighbors(Purpose::kJoin, deadline);
    group->made();
    return group;
  } catch (const Exception& failure) {
    const bool waited = failure.code() == ErrorCode::kBootstrap || failure.code() == ErrorCode::kTimeout;
    if (!waited || groups_joined.load() == 0) throw;
    Error error = failure.error();
    error.message += "; this process has joined before: a second init() or join() is a second group, for all ranks";
    throw Exception(std::move(error));
  }
}

// For a call that is made of several ones: none of them may be collected by a batch.
template <typename State>
OutsideBatch outside_batch(const std::shared_ptr<State>& state, const char* call) {
  return blocking(state).batch.outside(call);
}

// A checked pair. The send's options hold for both, except those that only one kind of message has.
std::array<MessageCall, 2> at_once(const MessageCall& send, const MessageCall& receive, int rank) {
  if (send.kind != MessageKind::kSend || receive.kind != MessageKind::kReceive) {
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("two messages at once on rank {}: the first must be a send, the second a receive", rank));
  }
  std::array<MessageCall, 2> both{send, receive};
  both[1].options = send.options;
  both[1].options.synchronous = both[0].options.truncate = false;
  return both;
}

}  // namespace

const char* version() { return RONDO_VERSION; }

Communicator::Communicator() = default;
Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::join(const JoinOptions& options) {
  take_interruption();  // of an earlier call
  options.config.check();
  const auto deadline = Clock::now() + Milliseconds(options.config.start_timeout_ms);
  const std::string rendezvous = options.store ? std::string(kProgramsStore) : options.rendezvous;
  Launch launch =
      find_launch({options.rank, options.world, rendezvous, options.job_id, options.newcomers}, options.config);
  if (options.store) {
    // A launcher's variables may be set on some ranks only: all ranks ask one another for their hosts, or none does.
    launch.place = Place{launch.place.rank, launch.place.world, -1, -1, -1, -1};
    launch.one_host = false;
  }
  show_start(options.config, launch);
  auto growth = std::make_shared<Growth>(launch, options.config);
  if (is_newcomer(launch)) {
    auto entered = growth->enter(options.config, deadline);
    return Communicator(std::make_shared<State>(std::move(entered), std::move(growth)));
  }
  return Communicator(std::make_shared<State>(join_world(launch, options, deadline), std::move(growth)));
}

// Each rank gets a fabric of its own, though all are in this process. Nothing is connected yet: the first calls
// do that.
std::vector<Communicator> Communicator::inproc(int world, const Config& config) {
  config.check();
  if (world < 1 || world > 1024) {
    throw Exception(ErrorCode::kInvalid, fmt::format("inproc: world is {}; it must be 1 to 1024", world));
  }
  std::vector<Communicator> communicators;
  for (auto& fabric : make_inproc_fabrics(world, config)) {
    communicators.push_back(Communicator(std::make_shared<State>(world_group(std::move(fabric), {config}))));
  }
  return communicators;
}

bool Communicator::valid() const { return state_ != nullptr; }
int Communicator::rank() const { return engine(state_).rank(); }
int Communicator::size() const { return engine(state_).size(); }
bool Communicator::authenticated() const { return engine(state_).context().fabric->authenticated(); }
const Place& Communicator::place() const { return engine(state_).context().fabric->place(); }
const Topology& Communicator::topology() const { return engine(state_).context().topology; }
const Config& Communicator::config() const { return engine(state_).context().config; }

Algorithm Communicator::algorithm_for(Collective collective, uint64_t count, DType dtype, Op op,
                                      bool registered) const {
  return engine(state_).calls().algorithm_for({.collective = collective, .count = count, .dtype = dtype, .op = op},
                                              registered);
}

void Communicator::start_trace(const std::string& folder) {
  engine(state_).context().observed.observer->start_trace(folder);
}

void Communicator::stop_trace() { engine(state_).context().observed.observer->stop_trace(); }

std::string Communicator::metrics() { return engine(state_).metrics_text(); }

// The C++ entry of every blocking collective. Without an open batch, CollectiveCalls::run() does the rest.
void Communicator::run(const Call& call) {
  State& state = blocking(state_);
  if (state.batch.collecting()) {
    state.batch.add(call);
  } else {
    state.group->calls().run(call);
  }
}

Work Communicator::start(const Call& call) {
  State& state = open(state_);
  return Work((state.batch.collecting() ? state.batch.add(call) : state.group->calls().start(call)).leave());
}

void Communicator::all_reduce_many(std::span<const TensorRef> tensors, Op op, const CallOptions& options) {
  refuse_wait_in_end_function();
  Batch& calls = open(state_).batch;
  if (calls.collecting()) {
    calls.add(tensors, op, options);
  } else {
    calls.finish(*calls.start_list(tensors, op, options, Batch::Left::kToCaller));
  }
}

Work Communicator::all_reduce_many_async(std::span<const TensorRef> tensors, Op op, const CallOptions& options) {
  Batch& calls = open(state_).batch;
  if (calls.collecting()) return Work(calls.add(tensors, op, options).leave());
  return Work(calls.start_list(tensors, op, options, Batch::Left::kToWorker).leave());
}

void Communicator::batch_begin() { open(state_).batch.open(); }

void Communicator::batch_end() {
  refuse_wait_in_end_function();
  Batch& calls = open(state_).batch;
  calls.finish(*calls.end(Batch::Left::kToCaller));
}

Work Communicator::batch_end_async() { return Work(open(state_).batch.end(Batch::Left::kToWorker).leave()); }

void Communicator::batch_abandon() {
  if (!state_) return;
  state_->batch.abandon(
      {ErrorCode::kInvalid, fmt::format("a batch was abandoned on rank {}: nothing was done", rank()), {}});
}

Message Communicator::run(const MessageCall& call) {
  State& state = blocking(state_);
  if (!state.batch.collecting()) return state.group->message_calls().run(call);
  state.batch.add(std::span(&call, 1));
  return {};
}

Message Communicator::run(const MessageCall& send, const MessageCall& receive) {
  State& state = blocking(state_);
  const auto both = at_once(send, receive, state.group->rank());
  if (!state.batch.collecting()) return state.group->message_calls().run(both[0], both[1]);
  state.batch.add(both);
  return {};
}

Work Communicator::start(const MessageCall& send, const MessageCall& receive) {
  State& state = open(state_);
  const auto both = at_once(send, receive, state.group->rank());
  if (state.batch.collecting()) return Work(state.batch.add(both).leave());
  return Work(state.batch.start_pair(both).leave());
}

std::optional<Message> Communicator::look(const MessageCall& probe) {
  return engine(state_).message_calls().look(probe);
}

Work Communicator::start(const MessageCall& call) {
  State& state = open(state_);
  if (state.batch.collecting()) return Work(state.batch.add(std::span(&call, 1)).leave());
  return state.group->message_calls().start(call);
}

void* Communicator::allocate(size_t bytes) { return engine(state_).allocations()->allocate(bytes); }
void* Communicator::allocate(size_t bytes, Memory memory) {
  if (memory == Memory::kHost) return allocate(bytes);
  outside_batch(state_, "allocate");
  return engine(state_).device().allocate(bytes);
}
void Communicator::deallocate(void* data) { engine(state_).deallocate(data); }

void Communicator::attach_device() {
  outside_batch(state_, "attach_device");
  engine(state_).device().attach({});
}

Communicator Communicator::split(int color, int key) {
  auto group = engine(state_).groups().split(outside_batch(state_, "split"), color, key);
  return group ? Communicator(std::make_shared<State>(std::move(group))) : Communicator();
}

Communicator Communicator::split_by_host(int key) { return split(topology().host[static_cast<size_t>(rank())], key); }

Communicator Communicator::new_group(std::span<const int> ranks) {
  const OutsideBatch outside = outside_batch(state_, "new_group");
  return Communicator(std::make_shared<State>(engine(state_).groups().new_group(outside, ranks, Purpose::kNewGroup)));
}

std::pair<Communicator, Work> Communicator::new_group_async(std::span<const int> ranks, uint64_t series) {
  auto [group, opening] =
      engine(state_).groups().new_group_async(outside_batch(state_, "new_group_async"), ranks, series);
  return {Communicator(std::make_shared<State>(std::move(group))), opening ? Work(opening.leave()) : Work()};
}

Communicator Communicator::dup() {
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const OutsideBatch outside = outside_batch(state_, "dup");
  return Communicator(std::make_shared<State>(engine(state_).groups().new_group(outside, ranks, Purpose::kDup)));
}

Communicator Communicator::shrink(std::chrono::milliseconds timeout) {
  const OutsideBatch outside = outside_batch(state_, "shrink");
  return Communicator(std::make_shared<State>(engine(state_).groups().shrink(outside, timeout), state_->growth));
}

Communicator Communicator::grow(int newcomers, std::chrono::milliseconds timeout) {
  const OutsideBatch outside = outside_batch(state_, "grow");
  if (!state_->growth) {
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("grow on rank {}: only the communicator of join() takes in newcomers, and its epochs", rank()));
  }
  auto grown = state_->growth->grow(*state_->group, outside, newcomers, timeout);
  return Communicator(std::make_shared<State>(std::move(grown), state_->growth));
}

int Communicator::newcomers() {
  outside_batch(state_, "newcomers");
  return state_->growth ? state_->growth->newcomers(*state_->group) : 0;
}

uint64_t Communicator::epoch() const { return engine(state_).context().epoch; }
void Communicator::commit(int64_t step, uint64_t digest) {
  engine(state_).groups().commit(outside_batch(state_, "commit"), step, digest);
}
int64_t Communicator::committed() const { return engine(state_).groups().committed(); }

void CommunicatorAccess::check_outside_batch(const Communicator& communicator, const char* call) {
  engine(communicator.state_).context().check_usable();
  outside_batch(communicator.state_, call);
}

void CommunicatorAccess::fail(const Communicator& communicator, const Error& error) {
  engine(communicator.state_).context().fail(error);
}

std::optional<Error> Communicator::error() const {
  const Error* error = engine(state_).context().failure.get();
  return error != nullptr ? std::optional<Error>(*error) : std::nullopt;
}

void Communicator::abort(const std::string& reason) { engine(state_).abort(reason); }
void Communicator::abort_from_signal() noexcept {
  if (state_) engine(state_).abort_from_signal();
}

void Communicator::destroy() {
  if (!state_) return;
  refuse_wait_in_end_function();
  abandon_batch();
  state_->group->destroy();
}

bool Communicator::try_destroy() {
  if (!state_) return true;
  abandon_batch();
  return state_->group->try_destroy();
}

void Communicator::abandon_batch() {
  state_->batch.abandon(
      {ErrorCode::kClosed, fmt::format("the communicator was destroyed on rank {} in a batch", rank()), {rank()}});
}

}  // namespace rondo
