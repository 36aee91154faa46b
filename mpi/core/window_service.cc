#include "mpi/core/window_service.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "mpi/core/fold.h"
#include "mpi/core/world.h"

namespace rondo_mpi {
namespace {

// One run more than the most: a pair of a value and an index may be two.
constexpr size_t kBufferBytes = sizeof(WindowRequest) + (kMostRequestRuns + 1) * sizeof(WindowRun) + kMostRequestBytes;
const std::byte kDone{1};

// Thrown through Work::on_end(), it fails the communicator on all ranks: a rank that sends such a request is broken.
void check(bool holds) {
  if (!holds) throw rondo::Exception(rondo::ErrorCode::kProtocol, "a request to a window is malformed");
}

}  // namespace

// Runs of this rank's memory, and the data that came with them. Both refer to the request's buffer.
struct WindowService::Runs {
  std::span<const WindowRun> runs;
  std::span<const std::byte> data;

  size_t bytes() const {
    size_t sum = 0;
    for (const WindowRun& run : runs) sum += run.bytes;
    return sum;
  }
  void write(const std::byte* from) const {
    for (const WindowRun& run : runs) {
      std::memcpy(reinterpret_cast<void*>(run.begin), from, run.bytes);
      from += run.bytes;
    }
  }
  // The bytes of all runs, one run after the other.
  std::vector<std::byte> read() const {
    std::vector<std::byte> found;
    found.reserve(bytes());
    for (const WindowRun& run : runs) {
      const auto* from = reinterpret_cast<const std::byte*>(run.begin);
      found.insert(found.end(), from, from + run.bytes);
    }
    return found;
  }
};

WindowService::WindowService(const std::shared_ptr<Comm>& comm)
    : request_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)), comm_(comm) {}

void WindowService::add(const void* base, MPI_Aint bytes) {
  std::lock_guard lock(mutex_);
  pieces_.push_back({reinterpret_cast<uintptr_t>(base), static_cast<size_t>(bytes)});
}
void WindowService::remove(const void* base) {
  std::lock_guard lock(mutex_);
  std::erase_if(pieces_, [&](const Piece& piece) { return piece.begin == reinterpret_cast<uintptr_t>(base); });
}

// The receive under way ends with the communicator.
void WindowService::close() {
  std::lock_guard lock(mutex_);
  comm_ = nullptr;
}

// Receives the next request. Its end holds a share of this.
void WindowService::listen() {
  std::shared_ptr<Comm> comm;
  {
    std::lock_guard lock(mutex_);
    comm = comm_;
  }
  if (comm == nullptr) return;
  rondo::CallOptions options;
  options.timeout = kForever;  // the next request may be away for as long as the program runs
  rondo::Work coming = comm->engine->recv_async(request_.get(), kBufferBytes, rondo::DType::kUint8, rondo::kAnySource,
                                                kRequests, options);
  coming.on_end([self = shared_from_this(), coming](const rondo::Error& error) {
    if (error.ok()) self->came(coming.message());
  });
}

// One request at a time: the buffer is free again when serve() has returned. The share of the communicator keeps it
// while the mutex is free: close() may let go of it meanwhile.
void WindowService::came(const rondo::Message& message) {
  std::shared_ptr<Comm> comm;
  std::vector<Answer> answers;
  try {
    {
      std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return;
      comm = comm_;
      serve(message);
      answers.swap(answers_);
    }
    for (Answer& answer : answers) send(*comm->engine, std::move(answer));
    listen();
  } catch (const rondo::Exception&) {
    if (!comm->engine->error()) throw;  // fails it; after a failure there is nothing to serve
  }
}

// Lengths come from another rank: they are checked before use. Requests come in the order in which each rank has sent
// them; the data lies behind the runs.
void WindowService::serve(const rondo::Message& message) {
  WindowRequest request;
  check(message.bytes >= sizeof request);
  std::memcpy(&request, request_.get(), sizeof request);
  const size_t begin = sizeof request + request.runs * sizeof(WindowRun);
  check(message.bytes >= begin);
  const Runs runs{{reinterpret_cast<const WindowRun*>(request_.get() + sizeof request), request.runs},
                  {request_.get() + begin, message.bytes - begin}};
  switch (request.action) {
    case WindowAction::kLockShared:
    case WindowAction::kLockExclusive:
      waiting_.push_back({message.peer, request.answer, request.action == WindowAction::kLockExclusive});
      return grant();
    case WindowAction::kUnlock:
      locked_ = locked_ > 1 ? locked_ - 1 : 0;
      return grant();
    default:
      return move(message.peer, request, runs);
  }
}

// First come, first served: a rank that wants the lock alone waits for those before it only.
void WindowService::grant() {
  while (!waiting_.empty()) {
    const Waiting& next = waiting_.front();
    if (next.exclusive ? locked_ != 0 : locked_ < 0) return;
    locked_ = next.exclusive ? -1 : locked_ + 1;
    answer(next.rank, next.answer, {kDone});
    waiting_.pop_front();
  }
}

// Does not overflow, whatever the numbers are. A run lies in one piece, or is refused.
bool WindowService::has(const WindowRun& run) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return run.begin >= piece.begin && run.bytes <= piece.bytes && run.begin - piece.begin <= piece.bytes - run.bytes;
  });
}

// Memory is touched after all runs have been found to be in the window.
void WindowService::move(int rank, const WindowRequest& request, const Runs& runs) {
  // A run outside the window is answered by no byte, which the origin reports as MPI_ERR_RMA_RANGE. This rank goes on.
  const auto inside = [&](const WindowRun& run) { return has(run); };
  if (!std::all_of(runs.runs.begin(), runs.runs.end(), inside)) return answer(rank, request.answer, {});
  const size_t bytes = runs.bytes();
  check(bytes <= kMostRequestBytes);
  switch (request.action) {
    case WindowAction::kPut:
      check(runs.data.size() == bytes);
      runs.write(runs.data.data());
      return answer(rank, request.answer, {kDone});
    case WindowAction::kGet:
      return answer(rank, request.answer, runs.read());
    case WindowAction::kUpdate:
      return answer(rank, request.answer, update(request, runs));
    case WindowAction::kSwap: {
      check(runs.data.size() == 2 * bytes);
      std::vector<std::byte> before = runs.read();
      if (std::memcmp(before.data(), runs.data.data() + bytes, bytes) == 0) runs.write(runs.data.data());
      return answer(rank, request.answer, std::move(before));
    }
    default:
      check(false);
  }
}

// Returns the answer. Named types and operations go by their places, since handles may be addresses.
std::vector<std::byte> WindowService::update(const WindowRequest& request, const Runs& runs) {
  check(request.op < world().named_ops.size() && request.type < world().named_types.size());
  const Op& op = *world().named_ops[request.op];
  const std::shared_ptr<const Type>& type = world().named_types[request.type];
  check_fold(op, *type);
  const bool changes = op.handle != MPI_NO_OP;
  const size_t bytes = runs.bytes();
  check(runs.data.size() == (changes ? bytes : 0) && type->size > 0);
  std::vector<std::byte> before = request.fetches ? runs.read() : std::vector{kDone};
  const MPI_Count elements = static_cast<MPI_Count>(bytes) / type->size;
  if (op.handle == MPI_REPLACE) {
    runs.write(runs.data.data());
  } else if (changes && runs.runs.size() == 1 && type->dense &&
             runs.runs[0].begin % static_cast<size_t>(type->alignment) == 0) {
    fold(op, type, runs.data.data(), reinterpret_cast<void*>(runs.runs[0].begin), elements);
  } else if (changes) {
    std::vector<std::byte> sum = request.fetches ? before : runs.read();
    fold_packed(op, type, runs.data.data(), sum.data(), elements);
    runs.write(sum.data());
  }
  return before;
}

// Does not wait: the rank that asked has a receive for it. The message's memory is freed at its end.
void WindowService::send(rondo::Communicator& engine, Answer answer) {
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(answer.bytes));  // by the send alone
  rondo::Work sent = engine.send_async(kept->data(), kept->size(), rondo::DType::kUint8, answer.rank, answer.tag);
  sent.on_end([kept](const rondo::Error&) {});
}

}  // namespace rondo_mpi
