#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "nccl/driver.h"
#include "nccl/failure.h"

// A communicator: one of Rondo's, and the device of the thread that asked for it. It is there before it is made: those
// of a group are made at its end, those with blocking=0 by a thread of the library. Any thread, but for its end. The
// program owns it from the call that makes it to ncclCommDestroy() or ncclCommAbort(). Calls of other threads at that
// end are counted (use()), and waited for. Memory that was freed is read by there(): a program that uses a destroyed
// communicator mostly gets an error, which is all that can be promised.
struct ncclComm {
 public:
  // The rank of a job that a communicator was made of or split from. Two seats of one job in one process are two ranks
  // that wait for each other.
  struct Seat {
    std::string job;
    int rank;
    bool operator==(const Seat&) const = default;
  };
  // Its device is the calling thread's.
  ncclComm(Seat seat, bool blocking);
  // After leave(). It joins the threads of run_beside(), and frees works.
  ~ncclComm();
  ncclComm(const ncclComm&) = delete;

  // False: it was destroyed, as far as freed memory still tells.
  bool there() const { return mark_ == kThere; }
  const Seat& seat() const { return seat_; }
  bool blocks() const { return blocks_; }
  int device() const { return device_; }

  // Rondo's communicator, once it is made, for which this waits. Throws why it could not be. The caller must not be the
  // one that is to make it: in a group it is made by the group's end.
  rondo_comm_t group();
  // What is under way of it ends on all ranks, and its making on this one. Does not wait. Any thread, also while
  // another one waits in group() or make().
  void abort(const char* reason);
  // Its making is over, and has made nothing. Any thread.
  bool came_to_nothing();
  // ncclInProgress until it is made, and while jobs of it run beside the program; then what has failed since, but for
  // an end by revoke(). It does not wait, but for the lock.
  ncclResult_t async_error();
  // What is under way ends on all ranks; only communicators of those that live are made of it then.
  void revoke();
  bool revoked();
  // Makes Rondo's communicator by `maker`, which throws why it cannot. Called once, on a thread with this device, whose
  // waits abort() ends.
  void make(const std::function<rondo_comm_t()>& maker);
  // Nobody will make it, if that has not been done. Threads that wait in group() go on, and throw.
  void give_up() noexcept;

  rondo::cuda::Context context() const { return context_; }
  // From now on the calling thread's device is this one's.
  void enter() const { rondo::nccl::use_context(context_); }
  // Runs it on a thread with this device, after those before it. The call that began it has returned: failures go to
  // tell(), and that of a making to async_error(), too.
  void run_beside(std::function<void()> work);
  // Waits for them, so that what the calling thread does with it comes behind.
  void await_beside();

  // A thread uses it from use() to let_go().
  void use();
  void let_go() noexcept;
  // Waits until none does. Then Rondo's communicator, which the caller ends; nullptr: there is none.
  rondo_comm_t leave();

  // A call is in its stream; its work is this one's from now on. Some 64 of those that have ended stay, or as many as
  // are under way, and those behind a message that is.
  void add(rondo_work_t work);
  // Waits until the streams have passed all calls, each of them has failed, or abort() was called.
  void finish();

  // Factors of operations that the program made for it, by number.
  int add_factor(double factor);
  void drop_factor(int number);
  double factor(int number);

 private:
  // "nccl" in ASCII.
  static constexpr unsigned kThere = 0x6e63636c;

  unsigned mark_ = kThere;  // 0 after the destructor
  const Seat seat_;
  const bool blocks_;
  const rondo::cuda::Context context_;
  const int device_;
  std::atomic<bool> aborted_{false};  // asked by the thread that makes it, while it waits

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool made_ = false, revoked_ = false;          // made_: nothing waits any more, with or without a group_
  rondo_comm_t group_ = nullptr;                 // owned; Living::end() destroys it (communicators.cc)
  std::optional<rondo::nccl::Failure> failure_;  // in its making
  std::vector<std::optional<double>> factors_;   // by number; empty: free for the next operation
  std::vector<std::thread> threads_;             // of run_beside(), until they are joined
  uint64_t begun_ = 0, ended_ = 0;               // works of threads_: numbers are their turns
  int users_ = 0;                                // threads between use() and let_go()
  std::deque<rondo_work_t> works_;               // of calls that may be under way, the oldest first
  size_t next_look_ = 0;                         // with so many works add() frees those that have ended
};

namespace rondo::nccl {

// Throws Failure(ncclInvalidArgument) where it is none.
ncclComm& there(ncclComm_t comm);

// The calling thread uses a communicator for as long as this lives: an end by another thread waits for it. For calls
// that may wait, and are no jobs (group.h). Throws as there() does.
class InUse {
 public:
  explicit InUse(ncclComm_t comm) : comm_(there(comm)) { comm_.use(); }
  ~InUse() { comm_.let_go(); }
  InUse(const InUse&) = delete;
  ncclComm* operator->() const { return &comm_; }

 private:
  ncclComm& comm_;
};

}  // namespace rondo::nccl
