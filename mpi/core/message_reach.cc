#include "mpi/core/message_reach.h"

#include <algorithm>
#include <cstring>

#include "mpi/core/agreement.h"
#include "mpi/core/errors.h"
#include "mpi/core/type.h"

namespace rondo_mpi {
namespace {

constexpr auto kBytes = rondo::DType::kUint8;

int tag_of(Reach::Word what) { return what == Reach::Word::kPosted ? kPosted : kCompleted; }

}  // namespace

// Memory that one rank cannot get is an error on all, by agree(). No service starts before all have their memory.
MessageReach::MessageReach(const std::shared_ptr<Comm>& comm, int flavor, void* base, MPI_Aint size)
    : comm_(comm), bases_(comm->members.size()) {
  agree(*comm_, [&] {
    service_ = std::make_shared<WindowService>(comm);
    if (flavor == MPI_WIN_FLAVOR_ALLOCATE) {
      allocated_.reset(std::calloc(static_cast<size_t>(std::max<MPI_Aint>(size, 1)), 1));
      require(allocated_ != nullptr, MPI_ERR_NO_MEM, "there is no memory for the window");
      base = allocated_.get();
    }
    if (flavor != MPI_WIN_FLAVOR_DYNAMIC) service_->add(base, size);
  });
  const int64_t own[1] = {reinterpret_cast<int64_t>(base)};
  std::vector<int64_t> all(bases_.size());
  comm_->engine->all_gather(own, all);
  for (size_t r = 0; r < bases_.size(); ++r) bases_[r] = reinterpret_cast<std::byte*>(all[r]);
  service_->start();
}

std::byte* MessageReach::memory(int rank) const {
  return rank == comm_->rank ? bases_[static_cast<size_t>(rank)] : nullptr;
}

// In the process of that rank. An address of another process: a number here, which that process checks.
std::byte* MessageReach::address(const Place& place) const {
  return reinterpret_cast<std::byte*>(reinterpret_cast<intptr_t>(bases_[static_cast<size_t>(place.rank)]) +
                                      place.begin);
}

// Sends the request, and waits for an answer of this length. Several threads may wait: each has its own tag.
// MPI_ERR_RMA_RANGE where the target says that a run is not in its window.
void MessageReach::ask(int rank, WindowRequest request, std::span<const WindowRun> runs,
                       std::span<const std::byte> data, std::span<std::byte> answer) {
  constexpr uint32_t kTags = 1u << 30;  // more than can be under way
  request.answer = static_cast<int32_t>(kAnswers + asked_.fetch_add(1, std::memory_order_relaxed) % kTags);
  request.runs = static_cast<uint32_t>(runs.size());
  std::vector<std::byte> message(sizeof request + runs.size_bytes() + data.size());
  std::memcpy(message.data(), &request, sizeof request);
  if (!runs.empty()) std::memcpy(message.data() + sizeof request, runs.data(), runs.size_bytes());
  if (!data.empty()) std::memcpy(message.data() + sizeof request + runs.size_bytes(), data.data(), data.size());
  const rondo::MessageCall sent{rondo::MessageKind::kSend, message.data(), message.size(), kBytes, rank, kRequests};
  if (answer.empty()) {
    comm_->engine->run(sent);
    return;
  }
  const rondo::Message came = comm_->engine->run(
      sent, {rondo::MessageKind::kReceive, answer.data(), answer.size(), kBytes, rank, request.answer});
  require(came.bytes == answer.size(), MPI_ERR_RMA_RANGE, "the data lies outside the memory of the target's window");
}

// The place in pieces, a request each: function(runs, bytes) gets them in order. No piece ends inside an element, which
// has `element` bytes.
template <typename Function>
void MessageReach::for_requests(const Place& place, MPI_Count element, const Function& function) const {
  const auto most = static_cast<MPI_Count>(kMostRequestBytes) / element * element;
  std::vector<WindowRun> runs;
  MPI_Count bytes = 0;
  const auto go = [&] {
    function(std::span<const WindowRun>(runs), static_cast<size_t>(bytes));
    runs.clear();
    bytes = 0;
  };
  auto add = [&](std::byte* at, MPI_Count left) {
    while (left > 0) {
      const MPI_Count now = std::min(left, most - bytes);
      const auto begin = reinterpret_cast<uint64_t>(at);
      if (!runs.empty() && runs.back().begin + runs.back().bytes == begin) {
        runs.back().bytes += static_cast<uint64_t>(now);
      } else {
        runs.push_back({begin, static_cast<uint64_t>(now)});
      }
      bytes += now;
      at += now;
      left -= now;
      if (bytes == most || (runs.size() >= kMostRequestRuns && bytes % element == 0)) go();
    }
    return true;
  };
  for_runs(place.type, address(place), place.count, add);
  if (bytes > 0) go();
}

// The answer says that the data is there.
void MessageReach::put(const Place& to, const std::byte* from) {
  if (memory(to.rank) != nullptr) {
    unpack(to.type, address(to), to.count, from, to.bytes());
    return;
  }
  for_requests(to, 1, [&](std::span<const WindowRun> runs, size_t bytes) {
    std::byte done[1];
    ask(to.rank, {WindowAction::kPut}, runs, {from, bytes}, done);
    from += bytes;
  });
}
void MessageReach::get(const Place& from, std::byte* to) {
  if (memory(from.rank) != nullptr) return pack(from.type, address(from), from.count, to);
  for_requests(from, 1, [&](std::span<const WindowRun> runs, size_t bytes) {
    ask(from.rank, {WindowAction::kGet}, runs, {}, {to, bytes});
    to += bytes;
  });
}

// The target folds. Its service takes one request after the other, so updates exclude each other.
void MessageReach::update(const Place& at, const Op& op, const std::shared_ptr<const Type>& basic, const std::byte* in,
                          std::byte* before) {
  const WindowRequest request{WindowAction::kUpdate, op.place, basic->place, before != nullptr};
  for_requests(at, basic->size, [&](std::span<const WindowRun> runs, size_t bytes) {
    std::byte done[1];
    ask(at.rank, request, runs, {in, in == nullptr ? 0 : bytes},
        before == nullptr ? std::span(done) : std::span(before, bytes));
    if (in != nullptr) in += bytes;
    if (before != nullptr) before += bytes;
  });
}

// One request: the comparison and the store must not come apart.
void MessageReach::swap(const Place& at, const std::byte* in, const std::byte* compare, std::byte* before) {
  require(2 * at.bytes() <= static_cast<MPI_Count>(kMostRequestBytes), MPI_ERR_TYPE,
          "the element to be swapped is too large");
  for_requests(at, at.bytes(), [&](std::span<const WindowRun> runs, size_t bytes) {
    std::vector<std::byte> both(in, in + bytes);
    both.insert(both.end(), compare, compare + bytes);
    ask(at.rank, {WindowAction::kSwap}, runs, both, {before, bytes});
  });
}

void MessageReach::lock(int rank, Lock how) {
  std::byte granted[1];
  ask(rank, {how == Lock::kShared ? WindowAction::kLockShared : WindowAction::kLockExclusive}, {}, {}, granted);
}
// What was done under the lock has been answered: nothing is to be waited for.
void MessageReach::unlock(int rank, Lock) { ask(rank, {WindowAction::kUnlock}, {}, {}, {}); }

// Messages of one pair arrive in order, and requests before it were answered: a rank that gets it finds their data.
void MessageReach::tell(Word what, const std::vector<int>& ranks) {
  for (const int rank : ranks) comm_->engine->send_async(nullptr, 0, kBytes, rank, tag_of(what));
}
// An event is an empty message of each rank named.
bool MessageReach::hear(Word what, const std::vector<int>& ranks, bool wait) {
  const auto told = [&](int rank) { return comm_->engine->iprobe(rank, tag_of(what)).has_value(); };
  if (!wait && !std::all_of(ranks.begin(), ranks.end(), told)) return false;
  for (const int rank : ranks) comm_->engine->recv(nullptr, 0, kBytes, rank, tag_of(what));
  return true;
}

}  // namespace rondo_mpi
