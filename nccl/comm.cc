#include "nccl/comm.h"

#include <algorithm>
#include <string>
#include <utility>

using rondo::nccl::check;
using rondo::nccl::Failure;
using rondo::nccl::refuse;

ncclComm::ncclComm(Seat seat, bool blocking)
    : seat_(std::move(seat)),
      blocks_(blocking),
      context_(rondo::nccl::current_context()),
      device_(rondo::nccl::current_device()) {}

// A thread takes the lock last of all, so the mutex must be there until the joins.
ncclComm::~ncclComm() {
  for (std::thread& thread : threads_) thread.join();
  for (const rondo_work_t work : works_) rondo_work_free(work);
  mark_ = 0;
}

// Waits for the making of the communicator, which another thread may do.
rondo_comm_t ncclComm::group() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return made_; });
  if (failure_) throw Failure(*failure_);
  if (group_ == nullptr)
    refuse(ncclInvalidUsage, "the communicator was not made: another call of its group has failed");
  return group_;
}

void ncclComm::abort(const char* reason) {
  const std::lock_guard lock(mutex_);  // nobody frees it meanwhile
  aborted_ = true;
  if (group_ != nullptr) rondo_abort(group_, reason);
}

bool ncclComm::came_to_nothing() {
  const std::lock_guard lock(mutex_);
  return made_ && group_ == nullptr;
}

// With blocking = 0 programs poll this.
ncclResult_t ncclComm::async_error() {
  const std::lock_guard lock(mutex_);
  if (!made_ || ended_ < begun_) return ncclInProgress;
  if (failure_) return failure_->result;
  if (group_ == nullptr) return ncclInvalidUsage;
  if (revoked_) return ncclSuccess;
  return rondo::nccl::result_of(rondo_error(group_));
}

// The abort comes first: a program that sees revoked() finds the communicator failed.
void ncclComm::revoke() {
  rondo_abort(group(), "ncclCommRevoke was called");
  const std::lock_guard lock(mutex_);
  revoked_ = true;
}

bool ncclComm::revoked() {
  const std::lock_guard lock(mutex_);
  return revoked_;
}

// The maker runs without the lock, since it waits for other ranks. Waiters in group() go on either way.
void ncclComm::make(const std::function<rondo_comm_t()>& maker) {
  constexpr const char* kAborted = "ncclCommAbort was called while the communicator was made";
  rondo_comm_t made = nullptr;
  std::optional<Failure> failure;
  check(rondo_set_thread_interrupt(
      [](void* aborted) { return static_cast<const std::atomic<bool>*>(aborted)->load() ? 1 : 0; }, &aborted_));
  try {
    made = maker();
  } catch (...) {
    failure = aborted_ ? Failure{ncclInvalidUsage, kAborted} : rondo::nccl::caught();
  }
  rondo_set_thread_interrupt(nullptr, nullptr);
  {
    const std::lock_guard lock(mutex_);
    if (aborted_ && made != nullptr) rondo_abort(made, kAborted);
    made_ = true;
    group_ = made;
    failure_ = failure;
    changed_.notify_all();
  }
  if (failure) throw Failure(*failure);
}

void ncclComm::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  made_ = true;
  changed_.notify_all();
}

// A thread for each job. Numbers keep the jobs in order. The next job or the destructor joins threads that have ended.
void ncclComm::run_beside(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (ended_ == begun_) {
    for (std::thread& thread : threads_) thread.join();  // they need the lock no more
    threads_.clear();
  }
  threads_.emplace_back([this, number = begun_, work = std::move(work)]() mutable {
    {
      std::unique_lock turn(mutex_);
      changed_.wait(turn, [&] { return ended_ == number; });
    }
    rondo::nccl::guarded("a call with blocking=0", [&] {
      enter();
      work();
      return ncclSuccess;
    });
    work = nullptr;  // it may take the lock
    const std::lock_guard end(mutex_);
    ++ended_;
    changed_.notify_all();
  });
  ++begun_;
}

void ncclComm::await_beside() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_ == begun_; });
}

// Counted by Started (group.cc), for as long as its jobs are there.
void ncclComm::use() {
  const std::lock_guard lock(mutex_);
  ++users_;
}

void ncclComm::let_go() noexcept {
  const std::lock_guard lock(mutex_);
  --users_;
  changed_.notify_all();
}

// The lock is free while it waits. No thread can begin to use it, for the program has given it up.
rondo_comm_t ncclComm::leave() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return users_ == 0; });
  return group_;
}

// To test a work under way is a pass over all that are. A look does it once, and comes after 64 calls at least: a call
// costs the test of one work that has ended, and 1/64 of a pass.
void ncclComm::add(rondo_work_t work) {
  // A work that is not over ends the look, as those behind it mostly are not over either.
  constexpr size_t kLeastBetweenLooks = 64;
  const std::lock_guard lock(mutex_);
  works_.push_back(work);
  if (works_.size() < next_look_) return;
  for (int done = 1; works_.size() > 1; works_.pop_front()) {
    if (rondo_test(works_.front(), &done) == RONDO_OK && done == 0) break;
    rondo_work_free(works_.front());
  }
  next_look_ = works_.size() + std::max(kLeastBetweenLooks, works_.size());
}

// Takes the works out first: waiting under the lock would block calls of other threads. After an abort streams may
// never pass what stands behind a kernel of the program.
void ncclComm::finish() {
  constexpr int64_t kBetweenLooksMs = 100;
  std::deque<rondo_work_t> works;
  {
    const std::lock_guard lock(mutex_);
    works.swap(works_);
  }
  for (const rondo_work_t work : works) {
    while (!aborted_ && rondo_wait(work, kBetweenLooksMs) == RONDO_IN_PROGRESS) continue;
    rondo_work_free(work);
  }
}

// Takes the first free number.
int ncclComm::add_factor(double factor) {
  const std::lock_guard lock(mutex_);
  size_t number = 0;
  while (number < factors_.size() && factors_[number]) ++number;
  if (number == factors_.size()) factors_.emplace_back();
  factors_[number] = factor;
  return static_cast<int>(number);
}

// factor() refuses a number that is none.
void ncclComm::drop_factor(int number) {
  factor(number);
  const std::lock_guard lock(mutex_);
  factors_[static_cast<size_t>(number)].reset();
}

double ncclComm::factor(int number) {
  const std::lock_guard lock(mutex_);
  if (number < 0 || static_cast<size_t>(number) >= factors_.size() || !factors_[static_cast<size_t>(number)]) {
    refuse(ncclInvalidArgument, "operation " + std::to_string(number + ncclNumOps) + " is none of this communicator's");
  }
  return *factors_[static_cast<size_t>(number)];
}

ncclComm& rondo::nccl::there(ncclComm_t comm) {
  if (comm == nullptr) refuse(ncclInvalidArgument, "the communicator is NULL");
  if (!comm->there()) refuse(ncclInvalidArgument, "the communicator was destroyed");
  return *comm;
}
