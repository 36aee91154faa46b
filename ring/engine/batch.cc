#include "ring/engine/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <thread>
#include <utility>

#include "ring/base/caught.h"
#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

// A bound against a program that never ends its batch: some 20 MB.
constexpr size_t kMaxCalls = 65'536;

// Identifies the calling thread: an address that no other thread has, and whether the thread lives. A
// std::thread::id is used again after its thread.
thread_local std::shared_ptr<const char> thread_here;

// Whether the second call on a stream belongs to the list that the first one is in.
bool run_together(const BatchCall& first, const BatchCall& second) {
  const CheckedCall &one = first.call, &other = second.call;
  return one.collective == Collective::kAllReduce && other.collective == Collective::kAllReduce && one.op == other.op &&
         first.fusable && second.fusable && first.stream == second.stream && one.asked == other.asked &&
         one.timeout == other.timeout;
}

// Calls on streams, cut into lists. A call that is alone is the same call as outside a batch, so ranks need not
// group it alike.
std::vector<std::span<const BatchCall>> runs_of(std::span<const BatchCall> items) {
  std::vector<std::span<const BatchCall>> runs;
  for (size_t first = 0, end = 0; first < items.size(); first = end) {
    end = first + 1;
    while (end < items.size() && run_together(items[first], items[end])) ++end;
    runs.push_back(items.subspan(first, end - first));
  }
  return runs;
}

}  // namespace

// --- BatchOperation

// Parts are polled without the lock, since the end of one may poll this again. Exactly one thread ends it; the
// others wait the moment until it has.
bool BatchOperation::poll() {
  if (done()) return true;
  if (!flow->in_its_process()) return false;  // another thread may have had the lock at fork()
  Operation* next = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (done()) return true;
    if (state() == State::kMade) return false;
    if (ended_ < parts_.size()) next = parts_[ended_].get();
  }
  if (next != nullptr) next->poll();  // without the lock: its end may call this
  const Error* failure = nullptr;
  bool ends = false;
  {
    std::lock_guard lock(mutex_);
    while (ended_ < parts_.size() && parts_[ended_]->done()) ++ended_;
    if (ended_ < parts_.size()) return false;
    ends = !std::exchange(ending_, true);
    const auto first = std::find_if(parts_.begin(), parts_.end(), [](const auto& part) { return part->failed(); });
    if (first != parts_.end()) failure = &(*first)->error();
  }
  if (ends) end(failure);  // without the lock: it may call the functions
  while (!done()) std::this_thread::yield();
  return true;
}

void BatchOperation::on_end(EndFunction function) {
  flow->check_process();
  if (!poll()) check_submitted("on_end()");
  watch_parts();  // first: where it throws, the function is not taken
  add_end_function(std::move(function));
}

// Gives each part a function that polls this when it ends. Some parts get it twice if it has thrown before, or
// if another thread does the same; that does no harm.
void BatchOperation::watch_parts() {
  if (done() || watched_.load()) return;
  for (const auto& part : parts_) {
    part->on_end([self = OperationRef(*this)](const Error&) { self->poll(); });
  }
  watched_.store(true);
}

// Waits for the parts one after the other; each wait moves the others, too.
bool BatchOperation::wait(Clock::time_point until) {
  if (poll()) return true;
  flow->check_process();
  check_submitted("wait()");
  for (const auto& part : parts_) {
    if (!part->wait(until)) return false;
  }
  return poll();
}

void BatchOperation::wait_on(void* stream) {
  if (!poll()) check_submitted("wait_on()");
  if (parts_.empty() && !failed()) return;  // of no call: there is nothing to wait for
  if (!on_streams_) return Operation::wait_on(stream);
  for (const auto& part : parts_) part->wait_on(stream);
}

// --- Batch

const void* Batch::this_thread() { return thread_here.get(); }

Batch::~Batch() {
  if (owner_.load() == nullptr) return;  // none is open; the error below needs memory
  abandon({ErrorCode::kClosed, "the communicator was destroyed before its batch had ended", {group_.rank()}});
}

// A batch of a thread that has ended can only be abandoned: its owner's address stays taken (owner_lives_), so
// no later thread is taken for the owner.
void Batch::open() {
  group_.context().check_usable();
  std::lock_guard lock(mutex_);
  if (owner_.load() != nullptr) {
    const char* const where = collecting()             ? "; batches do not nest"
                              : owner_lives_.expired() ? ", of a thread that has ended: batch_abandon() closes it"
                                                       : ", on another thread; batches do not nest";
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("batch_begin on rank {}: a batch of this communicator is open already{}", group_.rank(), where));
  }
  calls_ = {};
  group_.context().with_memory([&] {
    calls_.operation = make();
    if (!thread_here) thread_here = std::make_shared<const char>();  // one block of memory, which a weak_ptr keeps
  });
  owner_lives_ = thread_here;
  owner_.store(this_thread());
}

OutsideBatch Batch::outside(const char* call) const {
  if (!collecting()) return {};
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("{} on rank {}: not in a batch, which keeps the exchanges that it is made of; end the "
                              "batch first",
                              call, group_.rank()));
}

// Throws if the batch cannot take so many more calls. Under mutex_: another thread may have abandoned it.
void Batch::check_open(bool on_stream, size_t more) const {
  group_.context().check_usable();
  if (!collecting()) {
    throw Exception(ErrorCode::kInvalid, fmt::format("the batch on rank {} was abandoned", group_.rank()));
  }
  if (calls_.size() + more > kMaxCalls) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("a batch on rank {} has more than {} calls", group_.rank(), kMaxCalls));
  }
  if (calls_.size() > 0 && on_stream != calls_.on_stream()) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("a batch on rank {} has calls with a stream and calls without one; end the one batch "
                                "before the other",
                                group_.rank()));
  }
}

// The call is checked before the lock is taken, since the first call on a stream attaches, which is collective.
OperationRef<Operation> Batch::add(const Call& call) try {
  BatchCall item = group_.calls().lists().item_of(call);
  if (item.stream) group_.device().check({&item, 1});
  std::lock_guard lock(mutex_);
  check_open(item.stream.has_value());
  if (!item.stream) {
    group_.calls().lists().refuse_options(call.options);
    group_.check_on_host(call);
  }
  calls_.items.push_back(std::move(item));
  return calls_.operation;
} catch (const std::bad_alloc&) {
  group_.context().fail_for_memory();
}

OperationRef<Operation> Batch::add(std::span<const TensorRef> tensors, Op op, const CallOptions& options) try {
  std::vector<BatchCall> items;
  group_.calls().lists().append(items, tensors, op, options, !differs_by_rank(op, options));
  if (options.stream && !items.empty()) group_.device().check(items);
  std::lock_guard lock(mutex_);
  check_open(options.stream.has_value());
  std::ranges::move(items, std::back_inserter(calls_.items));
  return calls_.operation;
} catch (const std::bad_alloc&) {
  group_.context().fail_for_memory();
}

OperationRef<Operation> Batch::add(std::span<const MessageCall> messages) try {
  if (messages.front().options.stream) {
    std::vector<OperationRef<StreamCall>> made;
    for (const MessageCall& call : messages) made.push_back(group_.device().make(call, DeviceSide::Blocking::kNo));
    std::lock_guard lock(mutex_);
    check_open(true, made.size());
    std::ranges::move(made, std::back_inserter(calls_.streamed));
    return calls_.streamed.back();
  }
  std::lock_guard lock(mutex_);
  check_open(false, messages.size());
  std::vector<OperationRef<MessageOperation>> made;
  for (const MessageCall& call : messages) made.push_back(group_.message_calls().make(call));
  std::ranges::move(made, std::back_inserter(calls_.messages));
  return calls_.messages.back();
} catch (const std::bad_alloc&) {
  group_.context().fail_for_memory();
}

// The batch is closed before anything is submitted, so it is closed whatever that throws.
OperationRef<BatchOperation> Batch::end(Left left) {
  Calls calls;
  {
    std::lock_guard lock(mutex_);
    if (!collecting()) {
      const bool other = owner_.load() != nullptr;
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("batch_end on rank {}: {}", group_.rank(),
                                  other ? "another thread has opened the batch; it must end it" : "no batch is open"));
    }
    owner_.store(nullptr);
    calls = std::exchange(calls_, {});
  }
  auto operation = calls.operation;
  submit(std::move(calls), left);
  return operation;
}

// The thread that owns the batch finds at its next call that it is gone (check_open()).
void Batch::abandon(const Error& error) {
  Calls calls;
  {
    std::lock_guard lock(mutex_);
    if (owner_.load() == nullptr) return;
    owner_.store(nullptr);
    calls = std::exchange(calls_, {});
  }
  end(calls, error);
}

// Messages have operations of their own, so each Work sees the error, whatever it refers to.
void Batch::end(const Calls& calls, const Error& error) {
  calls.operation->end(&error);
  for (const auto& message : calls.streamed) message->abandon(error);
  for (const auto& message : calls.messages) {
    if (message) message->end(&error);
  }
}

OperationRef<BatchOperation> Batch::make() const {
  auto made = Operation::make<BatchOperation>();
  made->flow = group_.calls().flow();
  return made;
}

OperationRef<BatchOperation> Batch::start_list(std::span<const TensorRef> tensors, Op op, const CallOptions& options,
                                               Left left) {
  group_.context().check_usable();
  Calls calls;
  group_.context().with_memory([&] {
    calls.operation = make();
    group_.calls().lists().append(calls.items, tensors, op, options, true);
  });
  auto operation = calls.operation;
  submit(std::move(calls), left);
  return operation;
}

// Both messages are made before the first is submitted: an error in the second leaves nothing under way.
OperationRef<BatchOperation> Batch::start_pair(std::span<const MessageCall> pair) {
  group_.context().check_usable();
  Calls calls;
  group_.context().with_memory([&] {
    calls.operation = make();
    calls.operation->pair_ = true;
    for (const MessageCall& call : pair) {
      if (call.options.stream) {
        calls.streamed.push_back(group_.device().make(call, DeviceSide::Blocking::kNo));
      } else {
        calls.messages.push_back(group_.message_calls().make(call));
      }
    }
  });
  auto operation = calls.operation;
  submit(std::move(calls), Left::kToWorker);
  return operation;
}

// Checks calls on streams once more: their memory may have been given back since they were added.
void Batch::check(const Calls& calls) const {
  for (const auto run : runs_of(calls.items)) group_.device().check(run);
  for (const auto& message : calls.streamed) group_.device().check(*message);
}

// Puts them into their streams. If it throws, some of them may be there already.
std::vector<OperationRef<Operation>> Batch::put(const Calls& calls) const {
  DeviceSide& device = group_.device();
  std::vector<OperationRef<Operation>> operations(calls.streamed.begin(), calls.streamed.end());
  const auto put_messages = [&](bool sends) {
    for (const auto& message : calls.streamed) {
      if (message->sends() == sends) device.enqueue(*message);
    }
  };
  put_messages(true);
  for (const auto run : runs_of(calls.items)) operations.push_back(device.start(run));
  put_messages(false);
  return operations;
}

// Until all calls are checked an error leaves the communicator usable. After that some may be in their streams,
// and the other ranks wait for the rest, so it fails.
void Batch::enqueue(Calls calls) {
  bool checked = false;
  try {
    group_.context().check_usable();
    group_.context().with_memory([&] { check(calls); });
    checked = true;
    calls.operation->parts_ = put(calls);
    calls.operation->on_streams_ = true;
  } catch (...) {
    const Error error = caught();
    if (checked) group_.context().fail(error);  // the others wait for this rank
    end(calls, error);
    throw Exception(error);
  }
  calls.operation->become(BatchOperation::State::kRunning);
  calls.operation->poll();
}

// The collectives go first, all together: no call of another thread comes between them.
void Batch::submit(Calls calls, Left left) {
  if (calls.on_stream()) return enqueue(std::move(calls));
  BatchOperation& operation = *calls.operation;
  // While the caller drives the collectives, the worker drives the messages (finish).
  const bool by_worker = left == Left::kToWorker || (!calls.items.empty() && !calls.messages.empty());
  const auto waited = by_worker ? MessageCalls::Waited::kInBackground : MessageCalls::Waited::kByCaller;
  try {
    group_.context().check_usable();
    if (by_worker) group_.ready_worker();
    auto collectives = group_.calls().lists().operations_of(calls.items);
    operation.parts_.reserve(collectives.size() + calls.messages.size());
    if (!collectives.empty()) group_.calls().submit_all(collectives);
    std::ranges::move(collectives, std::back_inserter(operation.parts_));
    for (auto& message : calls.messages) {
      group_.message_calls().submit(*message, waited);
      operation.parts_.push_back(std::move(message));
    }
  } catch (...) {
    refuse_all(calls);
  }
  operation.become(BatchOperation::State::kRunning);
  operation.poll();
  if (left == Left::kToWorker) leave_to_worker(operation);
}

// In a catch block. Waits for what is under way before it throws: until then that uses the caller's memory.
void Batch::refuse_all(const Calls& calls) {
  Error error = caught();
  if (error.code != ErrorCode::kInvalid && error.code != ErrorCode::kUnsupported) {
    group_.context().fail(error);  // the others wait for this rank
    error = *group_.context().failure.get();
  }
  for (const auto& part : calls.operation->parts_) part->wait(Clock::time_point::max());
  end(calls, error);
  throw Exception(error);
}

void Batch::leave_to_worker(const BatchOperation& operation) {
  if (operation.parts_.empty()) return;
  Flow& first = *operation.parts_.front()->flow;
  Flow& last = *operation.parts_.back()->flow;
  first.notify();
  if (&last != &first) last.notify();
}

void Batch::finish(BatchOperation& operation) {
  if (!operation.on_streams_ && !operation.parts_.empty()) {
    // While this thread drives the collectives, the messages must move, too: a peer may wait for one before it comes to
    // the collective.
    const bool both = operation.parts_.front()->flow != operation.parts_.back()->flow;
    if (both) leave_to_worker(operation);
    for (const auto& part : operation.parts_) part->wait(Clock::time_point::max());
  }
  operation.poll();
  if (operation.failed()) throw Exception(operation.error());
}

}  // namespace rondo
