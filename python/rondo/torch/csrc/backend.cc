#include "csrc/backend.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <variant>

#include "csrc/background.h"
#include "csrc/errors.h"
#include "csrc/forks.h"
#include "csrc/run.h"
#include "csrc/store.h"

namespace rondo_torch {

namespace {

// The groups of this process in the order of their making. The last weak pointer to a group that nobody has any more
// destroys it, which waits for the other ranks: these pointers end without the lock.
class Groups {
 public:
  using Pointer = c10::intrusive_ptr<RondoBackend>;

  // Never destroyed: groups may end after static objects.
  static Groups& get() {
    static auto* groups = new Groups;
    return *groups;
  }

  void add(const Pointer& backend, bool is_default) {
    state_.with([&](State& state) {
      std::vector<Weak> gone;
      const auto live =
          std::stable_partition(state.alive.begin(), state.alive.end(), [](const Weak& w) { return !w.expired(); });
      std::move(live, state.alive.end(), std::back_inserter(gone));
      state.alive.erase(live, state.alive.end());
      state.alive.emplace_back(backend);
      if (is_default && state.default_group) gone.push_back(std::move(*state.default_group));
      if (is_default) state.default_group.emplace(backend);
      return gone;
    });
  }

  Pointer get_default() {
    const auto weak = state_.with([](const State& state) { return state.default_group; });
    return weak ? weak->lock() : nullptr;
  }

  // "": the default group. The last of a name counts: the others have been destroyed.
  Pointer find(std::string_view name) {
    if (name.empty()) return get_default();
    for (const Weak& weak : newest_first()) {
      Pointer backend = weak.lock();
      if (backend && backend->name() == name) return backend;
    }
    return nullptr;
  }

  // The last that was made comes first.
  std::vector<Pointer> all() {
    std::vector<Pointer> found;
    for (const Weak& weak : newest_first()) {
      if (Pointer backend = weak.lock()) found.push_back(std::move(backend));
    }
    return found;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<RondoBackend>;
  struct State {
    std::vector<Weak> alive;
    std::optional<Weak> default_group;  // other groups are made from it
  };

  std::vector<Weak> newest_first() {
    return state_.with([](const State& state) { return std::vector<Weak>(state.alive.rbegin(), state.alive.rend()); });
  }

  Locked<State> state_;
};

// Groups of one name follow each other in one store, and torch removes no keys: the n-th of each rank meet.
int next_number(const std::string& name) {
  using Numbers = std::map<std::string, int>;
  static auto* numbers = new Locked<Numbers>;
  return numbers->with([&name](Numbers& next) { return next[name]++; });
}

// A prefix of keys, equal on the group's ranks. torchrun starts ranks again with the store of those that failed.
std::string job_of(const std::string& name) {
  const char* restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return name + "." + std::to_string(next_number(name)) + (restart != nullptr ? std::string(".restart") + restart : "");
}

// torch's timeout of a group is also that of its start, unless the environment says another.
std::vector<std::string> start_settings(std::chrono::milliseconds timeout) {
  constexpr int64_t kLongestMs = 30LL * 24 * 3600 * 1000;  // of every time in docs/environment.md
  if (std::getenv("RONDO_START_TIMEOUT_MS") != nullptr) return {};
  return {"RONDO_START_TIMEOUT_MS=" + std::to_string(std::clamp<int64_t>(timeout.count(), 1, kLongestMs))};
}

rondo_comm_t join(const c10::intrusive_ptr<c10d::Store>& store, const GroupDescription& group, const std::string& job) {
  const NamedStore named{store, job + "/"};
  const rondo_store_t functions = functions_of(named);
  const std::vector<std::string> texts = start_settings(group.timeout);
  std::vector<const char*> settings;
  for (const std::string& text : texts) settings.push_back(text.c_str());
  rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
  options.rank = group.rank;
  options.world = group.size;
  options.job_id = job.c_str();
  options.settings = settings.data();
  options.setting_count = settings.size();
  options.store = &functions;
  rondo_comm_t comm = nullptr;
  check(rondo_join(&comm, &options));
  return comm;
}

std::string new_handle(int rank) {
  std::random_device random;
  return "rondo:" + std::to_string(rank) + ":" + std::to_string(random()) + ":" + std::to_string(random());
}

}  // namespace

RondoBackend::RondoBackend(const c10::intrusive_ptr<c10d::Store>& store, const GroupDescription& group,
                           rondo_comm_t comm)
    : c10d::Backend(group.rank, group.size),
      options_(c10::make_intrusive<Options>("rondo", group.timeout)),
      comm_(comm),
      memory_(std::make_shared<GroupMemory>(comm)),
      store_(store),
      handle_(new_handle(group.rank)),
      reconfigurable_(group.waits),
      forks_(forks_so_far()),
      closed_(comm == nullptr) {
  options_->group_name = group.name;
  if constexpr (requires { options_->global_ranks_in_group; }) {
    options_->global_ranks_in_group.assign(group.global_ranks.begin(), group.global_ranks.end());
  }
}

// A forked child does not split its parent's communicator, whose connections and threads belong to the parent: it joins
// by the store.
c10::intrusive_ptr<RondoBackend> RondoBackend::create(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const GroupDescription& group) {
  const std::string job = job_of(group.name);
  rondo_comm_t comm = nullptr;
  const c10::intrusive_ptr<RondoBackend> parent = group.global_ranks.empty() ? nullptr : Groups::get().get_default();
  if (group.waits) {
    // reconfigure() makes it.
  } else if (parent && !parent->closed_ && parent->forks_ == forks_so_far()) {
    Use use(*parent);
    const std::vector<int> ranks(group.global_ranks.begin(), group.global_ranks.end());
    check(rondo_new_group(parent->comm_, ranks.data(), ranks.size(), &comm));
  } else {
    comm = join(store, group, job);
  }
  auto backend = c10::make_intrusive<RondoBackend>(store, group, comm);
  Groups::get().add(backend, group.is_default);
  return backend;
}

c10::intrusive_ptr<c10d::Backend> RondoBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return nullptr;
  Use use(*this);
  rondo_comm_t comm = nullptr;
  check(rondo_new_group(comm_, ranks.data(), ranks.size(), &comm));
  const GroupDescription group{static_cast<int>(own - ranks.begin()),
                               static_cast<int>(ranks.size()),
                               options->timeout,
                               options->group_name,
                               {ranks.begin(), ranks.end()},
                               false};
  auto backend = c10::make_intrusive<RondoBackend>(store, group, comm);
  Groups::get().add(backend, false);
  return backend;
}

// The shrunken communicator numbers its ranks anew, so they exchange their old ranks to find who is missing. One more
// may die in that exchange: then they shrink again. Both are kept, since a call that was interrupted or timed out may
// be made again.
std::vector<int64_t> RondoBackend::lost() {
  Use use(*this);
  const int64_t timeout_ms = options_->timeout.count();
  if (shrunk_ == nullptr) check(rondo_shrink(comm_, timeout_ms, &shrunk_));
  while (lost_.empty()) {
    int size = 0;
    check(rondo_size(shrunk_, &size));
    std::vector<int32_t> living(static_cast<size_t>(size));
    const int32_t own = rank_;
    const bool was_well = rondo_error(shrunk_) == RONDO_OK;
    const rondo_result_t code = rondo_all_gather(shrunk_, &own, living.data(), 1, RONDO_INT32, nullptr);
    if (code == RONDO_OK) {
      for (int r = 0; r < size_; ++r) {
        if (std::find(living.begin(), living.end(), r) == living.end()) lost_.push_back(r);
      }
      break;
    }
    // Where an earlier call was interrupted the others have failed by it, and shrink, too.
    if (code == RONDO_INTERRUPTED && was_well) check(code);
    rondo_comm_t next = nullptr;  // one more has died
    check(rondo_shrink(shrunk_, timeout_ms, &next));
    check(rondo_destroy(std::exchange(shrunk_, next)));
  }
  return lost_;
}

c10::intrusive_ptr<c10d::Backend> RondoBackend::shrink(const std::vector<int64_t>& excluded, int abort,
                                                       const c10::intrusive_ptr<Options>& options) {
  TORCH_CHECK_VALUE(!options, "rondo shrink_group: pg_options were given; pass None");
  rondo_comm_t comm = nullptr;
  if (abort != 0) {
    const std::vector<int64_t> lost = this->lost();
    TORCH_CHECK_VALUE(excluded == lost, "rondo shrink_group: ranks ", excluded, " are to be excluded, but ", lost,
                      " are lost: pass rondo.torch.lost_ranks()");
    comm = std::exchange(shrunk_, nullptr);
  } else {
    Use use(*this);
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r) {
      if (std::find(excluded.begin(), excluded.end(), r) == excluded.end()) ranks.push_back(r);
    }
    check(rondo_new_group(comm_, ranks.data(), ranks.size(), &comm));
  }
  int rank = 0, size = 0;
  check(rondo_rank(comm, &rank));
  check(rondo_size(comm, &size));
  const GroupDescription group{rank, size, options_->timeout, "", {}, false};
  auto backend = c10::make_intrusive<RondoBackend>(store_, group, comm);
  backend->set_recoverable(recoverable_);
  Groups::get().add(backend, Groups::get().get_default().get() == this);
  return backend;
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
WorkPointer RondoBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  using Ordered = std::vector<c10d::ReconfigureHandle>;
  const bool ordered = std::holds_alternative<Ordered>(options.handles);
  Ordered handles = std::visit([](const auto& all) { return Ordered(all.begin(), all.end()); }, options.handles);
  if (!ordered) std::sort(handles.begin(), handles.end());
  const auto own = std::find(handles.begin(), handles.end(), handle_);
  TORCH_CHECK_VALUE(own != handles.end(), "rondo reconfigure: this process's handle, ", handle_, ", is none of ",
                    handles);
  TORCH_CHECK(uuids_.insert(options.uuid).second, "rondo reconfigure: uuid ", options.uuid,
              " was already used by this process group; pass a new one");
  end_communicator();
  const GroupDescription group{static_cast<int>(own - handles.begin()),
                               static_cast<int>(handles.size()),
                               options.timeout.value_or(options_->timeout),
                               name(),
                               {},
                               false};
  const std::string job = "reconfigured." + std::to_string(options.uuid) + "." + handles[0];
  comm_ = join(store_, group, job);
  memory_ = std::make_shared<GroupMemory>(comm_);
  rank_ = group.rank;
  size_ = group.size;
  lost_.clear();
  closed_ = false;
  return barrier({});
}
#endif

void RondoBackend::end_communicator() {
  if (!stop_calls()) return;
  run_in_background([memory = memory_] {
    try {
      memory->end();
    } catch (const c10::Error&) {
      // It has failed before, and its calls said so.
    }
  });
}

c10::intrusive_ptr<RondoBackend> RondoBackend::named(std::string_view name) {
  c10::intrusive_ptr<RondoBackend> backend = Groups::get().find(name);
  TORCH_CHECK_VALUE(backend, "rondo: this process has no process group named \"", name,
                    "\" of the backend rondo: pass the group_name of one, or \"\" for the default group");
  return backend;
}

std::shared_ptr<Arena> RondoBackend::arena(size_t bytes) {
  Use use(*this);
  using Kept = std::shared_ptr<Arena>;
  const auto serves = [bytes](const Kept& arena) { return arena && arena->bytes() >= bytes; };
  Kept arena = arena_.with([](const Kept& kept) { return kept; });
  if (serves(arena)) return arena;
  arena = std::make_shared<Arena>(memory_, bytes);
  return arena_.with([&](Kept& kept) {
    if (!serves(kept)) std::swap(kept, arena);  // else another thread has made one
    return kept;
  });
}

RondoBackend::~RondoBackend() {
  try {
    shutdown();
  } catch (...) {
    // It has failed before, and its calls said so.
  }
}

void RondoBackend::leave_all(const std::string& exception) {
  for (const auto& backend : Groups::get().all()) {
    try {
      if (!exception.empty() && !backend->closed_) rondo_abort(backend->comm_, exception.c_str());
      backend->shutdown();
    } catch (...) {
      // It has failed before, and its calls said so.
    }
  }
}

constinit thread_local const RondoBackend::Use* RondoBackend::Use::innermost_ = nullptr;

RondoBackend::Use::Use(RondoBackend& backend) : backend_(backend), outer_(innermost_) {
  backend_.uses_.fetch_add(1, std::memory_order_seq_cst);
  const bool closed = backend_.closed_.load(std::memory_order_seq_cst);
  if (!closed && forks_so_far() == backend_.forks_) [[likely]] {
    innermost_ = this;
    return;
  }
  backend_.uses_.fetch_sub(1, std::memory_order_release);
  if (closed && backend_.reconfigurable_) fail("this process group has no communicator: reconfigure it first");
  if (closed) fail("this process group has been destroyed");
  fail("this process was forked from rank " + std::to_string(backend_.getRank()) +
       ": it cannot use that rank's process group; call init_process_group in processes of their own");
}

RondoBackend::Use::~Use() {
  innermost_ = outer_;
  backend_.uses_.fetch_sub(1, std::memory_order_release);
}

int RondoBackend::Use::here(const RondoBackend& backend) {
  int count = 0;
  for (const Use* use = innermost_; use != nullptr; use = use->outer_) count += &use->backend_ == &backend ? 1 : 0;
  return count;
}

void RondoBackend::shutdown() {
  if (stop_calls()) memory_->end();
}

// Pairs with Use::Use(): each side writes its own flag and then reads the other's, both seq_cst. So either the call
// sees that the group is closed, or this sees the call. A weaker order lets both miss, and the call would use a freed
// communicator.
bool RondoBackend::stop_calls() {
  if (forks_so_far() != forks_ || closed_.exchange(true, std::memory_order_seq_cst)) return false;
  if (uses_.load(std::memory_order_seq_cst) > 0) rondo_abort(comm_, "the process group was destroyed during a call");
  const int own = Use::here(*this);  // they end when the handler returns, and keep the communicator so long
  while (uses_.load(std::memory_order_seq_cst) > own) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  arena_.with([](std::shared_ptr<Arena>& kept) { return std::exchange(kept, nullptr); });
  if (shrunk_ != nullptr) rondo_destroy(std::exchange(shrunk_, nullptr));
  return true;
}

void RondoBackend::abort() {
  if (forks_so_far() != forks_ || closed_) return;
  {
    Use use(*this);
    check(rondo_abort(comm_, ("rank " + std::to_string(getRank()) + " aborted its process group").c_str()));
  }
  if (reconfigurable_) end_communicator();
}

c10d::ErrorType RondoBackend::getError() {
  if (closed_ && reconfigurable_) return c10d::ErrorType::SUCCESS;
  Use use(*this);
  switch (rondo_error(comm_)) {
    case RONDO_OK:
      return c10d::ErrorType::SUCCESS;
    case RONDO_TIMEOUT:
      return c10d::ErrorType::TIMEOUT;
    case RONDO_PEER_LOST:
    case RONDO_PEER_LEFT:
    case RONDO_ABORTED:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

// One stream for all calls that give a Work: in it they keep their order, which is equal on all ranks.
InStream RondoBackend::place_on(const at::Device& device, bool async) {
  if (!device.is_cuda()) return {at::kCPU, std::nullopt};
  if (!async && !groups_here()) return {device, std::nullopt};
  return {device, beside_.with([&](std::optional<c10::Stream>& kept) {
            if (!kept || kept->device() != device) kept = InStream::new_stream(device);
            return kept;
          })};
}

rondo_options_t RondoBackend::call_options(std::chrono::milliseconds timeout, double scalar,
                                           rondo_wire_format_t wire) const {
  rondo_options_t options = RONDO_OPTIONS_INIT;
  // torch's calls say -1 for the group's timeout.
  const std::chrono::milliseconds limit = timeout.count() < 0 ? options_->timeout : timeout;
  options.timeout_ms = std::max<int64_t>(limit.count(), 0);
  options.scalar = scalar;
  options.wire = wire;
  if (const auto& stream = InStream::here()) {
    options.on_stream = 1;
    options.stream = InStream::handle(*stream);
  }
  return options;
}

rondo_options_t RondoBackend::all_reduce_options(std::chrono::milliseconds timeout, double scalar,
                                                 rondo_wire_format_t wire) const {
  rondo_options_t options = call_options(timeout, scalar, wire);
  if (recoverable_ && wire == RONDO_WIRE_NONE && !groups_here()) options.flags |= RONDO_RECOVERABLE;
  return options;
}

void RondoBackend::check_root(int64_t root, const char* call) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "rondo ", call, ": rank ", root, " is none of 0 to ", size_ - 1);
}

void RondoBackend::check_list(const Tensors& list, const at::Tensor& one, const char* call) const {
  TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(size_), "rondo ", call, ": the list has ", list.size(),
                    " tensors; it needs one a rank, ", size_);
  for (const at::Tensor& tensor : list) {
    check_tensor(tensor, call);
    check_same_type(tensor, one, call);
  }
}

WorkPointer RondoBackend::work_of(c10d::OpType type, const char* title, const Tensors& inputs,
                                  std::shared_ptr<Operation> operation, size_t index) {
  return c10::make_intrusive<RondoWork>(rank_, type, title, inputs, std::move(operation), sequence_number_.load(),
                                        index);
}

// Its operation fails, so that a Work of a call in the group does not wait for an end that never comes.
void RondoBackend::abandon_group() {
  group_thread_ = std::thread::id();
  const std::unique_ptr<Group> group = std::move(group_);
  group->operation->start_failed(std::make_exception_ptr(
      c10::ValueError({__func__, __FILE__, __LINE__}, "rondo: the group of calls was dropped")));
  for (rondo_work_t message : group->works) rondo_work_free(message);
  check(rondo_batch_abandon(comm_));
}

void RondoBackend::startCoalescing() {
  Use use(*this);
  if (groups_here()) abandon_group();  // a group whose body raised was never ended
  check(rondo_batch_begin(comm_));
  group_ = std::make_unique<Group>();
  group_thread_ = std::this_thread::get_id();
}

WorkPointer RondoBackend::endCoalescing() { return end_group(c10d::OpType::COALESCED, "rondo:coalesced", {}); }

WorkPointer RondoBackend::end_group(c10d::OpType type, const char* title, const Tensors& inputs) {
  Use use(*this);
  TORCH_CHECK(groups_here(), "rondo: the end of a group of calls that this thread has not begun");
  group_thread_ = std::thread::id();
  const std::unique_ptr<Group> group = std::move(group_);
  const InStream place =
      group->stream ? InStream(group->stream->device(), group->stream) : InStream(at::kCPU, std::nullopt);
  rondo_work_t work = nullptr;
  try {
    check(rondo_batch_end_async(comm_, &work));
  } catch (...) {
    group->operation->start_failed(std::current_exception());
    for (rondo_work_t message : group->works) rondo_work_free(message);
    throw;
  }
  WorkPointer made = work_of(type, profiled() ? title : nullptr, inputs, group->operation);
  group->works.push_back(work);
  group->operation->start(std::move(group->works));
  return made;
}

}  // namespace rondo_torch
