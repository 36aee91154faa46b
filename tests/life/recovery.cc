#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "tests/life/rank.h"

namespace rondo::life {

// Ends all but the job and one of its groups; 0: all.
void Thread::end_other_groups(Member& job, int but) {
  finish_all();
  for (int number = groups_.rbegin()->first; number > 0; --number) {
    if (number != but && groups_.count(number) != 0) drop(number);
  }
  collect_all(job);
}

// After a loss ranks of odd number wait in a group that was made of the job, as if they had not heard of it; the others
// go to shrink(), which ends that wait.
void Thread::wait_beside(const Step& step, const Member& job, int lost) {
  const auto found = groups_.find(static_cast<int>(step.number("beside")));
  if (found == groups_.end() || found->first == 0) return;
  const auto waits = [lost](int rank) { return rank != lost && rank % 2 == 1; };
  const Member& member = found->second;
  if (!waits(job.ranks[static_cast<size_t>(job.me)])) return;
  if (std::all_of(member.ranks.begin(), member.ranks.end(), waits)) return;  // nothing would end it
  Error error;
  while (error.ok()) error = member.group->run(Call{});
  const bool has_lost = std::count(member.ranks.begin(), member.ranks.end(), lost) > 0;
  if (error.code != ErrorCode::kAborted && (error.code != ErrorCode::kPeerLost || !has_lost)) {
    fail("beside shrink() must be ABORTED or PEER_LOST, is " + said(error));
  }
}

Flight Thread::recoverable_sum(const Step& sum, Member& job) {
  Flight flight = make_flight(sum, seat(sum, job), 0, 0, memory_);
  flight.call.options.recoverable = sum.number("recoverable") != 0;
  return flight;
}

void Thread::sum_once(const Step& sum, Member& job) {
  Flight flight = recoverable_sum(sum, job);
  must(job.group->run(flight.call), "the sum: ");
  check(flight, job);
}

// The failure, behind which the input must be as it was, but for a call in place that did not ask for it.
Error Thread::sum_until_loss(const Step& sum, Member& job) {
  const bool keeps = sum.number("place") == 0 || sum.number("recoverable") != 0;
  for (;;) {
    Flight flight = recoverable_sum(sum, job);
    const auto* const input = static_cast<const std::byte*>(flight.call.in);
    const std::vector<std::byte> given(input, input + flight.call.count * dtype_bytes(flight.call.dtype));
    if (const Error error = job.group->run(flight.call); !error.ok()) {
      if (keeps && !std::equal(given.begin(), given.end(), input)) fail("the sum that failed has changed its input");
      return error;
    }
    check(flight, job);
  }
}

void Thread::lose(const Step& step, Member& job) {
  if (job.size() < 2) return;
  const auto beside = static_cast<int>(step.number("beside"));
  end_other_groups(job, beside);
  train(job);
  Step sum = step;
  sum.verb = "all_reduce";
  const int by = static_cast<int>(step.number("by")) % job.size();
  // Nobody dies while others are in the lines before; in the barrier it may.
  Error error = job.group->run(Call{});
  if (job.me == by) {
    must(error, "barrier: ");
    for (int64_t i = step.number("after"); i > 0; --i) sum_once(sum, job);
    Flight last = recoverable_sum(sum, job);
    std::unique_ptr<Handle> handle;
    if (const int64_t amid = step.number("amid"); amid != 0) {
      must(job.group->start(last.call, &handle), "start: ");
      std::this_thread::sleep_for(std::chrono::microseconds(amid));
    }
    ::kill(::getpid(), SIGKILL);
  }
  if (error.ok()) error = sum_until_loss(sum, job);
  if (error.code != ErrorCode::kPeerLost || !blames(error, by)) {
    fail("must be PEER_LOST naming " + std::to_string(by) + ", is " + said(error));
  }
  now_ = &step;
  wait_beside(step, job, job.ranks[static_cast<size_t>(by)]);
  must(job.group->shrink(), "shrink: ");
  job.ranks.erase(job.ranks.begin() + by);
  job.me -= job.me > by ? 1 : 0;
  ++job.epoch;
  begin_epoch(job);
  sum_once(sum, job);
  train(job);
  end_other_groups(job, 0);
}

void Thread::grow(const Step& step, Member& job) {
  end_other_groups(job, 0);
  const auto newcomers = static_cast<int>(step.number("newcomers"));
  must(job.group->grow(newcomers), "grow: ");
  job.ranks.resize(job.ranks.size() + static_cast<size_t>(newcomers));
  ++job.epoch;
  welcome(job);
}

// What follows is counted and kept from here on by those who were there and by newcomers.
void Thread::welcome(Member& job) {
  std::iota(job.ranks.begin(), job.ranks.end(), 0);
  reached_.clear();
  sparse_.clear();
  memory_.forget_residuals();
  report_.begin_again();
  int64_t state[] = {static_cast<int64_t>(job.epoch), job.committed};
  Call call;
  call.verb = Verb::kBroadcast;
  call.out = state;
  call.count = 2;
  call.dtype = DType::kInt64;
  must(job.group->run(call), "broadcast to newcomers: ");
  job.epoch = static_cast<uint64_t>(state[0]);
  job.committed = state[1];
  begin_epoch(job);
  train(job);
}

void Thread::train(const Member& job) {
  if (life_.all_are("numpy")) must(job.group->train(), "train: ");
}

void Thread::begin_epoch(const Member& job) {
  const auto words = [](int rank, int size, uint64_t epoch, int64_t step) {
    return "rank " + std::to_string(rank) + " of " + std::to_string(size) + " in epoch " + std::to_string(epoch) +
           " with step " + std::to_string(step);
  };
  Group& group = *job.group;
  const std::string is = words(group.rank(), group.size(), group.epoch(), group.committed());
  const std::string must_be = words(job.me, job.size(), job.epoch, job.committed);
  if (is != must_be) fail("is " + is + ", must be " + must_be);
}

void Thread::commit(const Step& step, Member& member) {
  member.committed += 1 + step.number("skip");
  must(member.group->commit(member.committed, static_cast<uint64_t>(member.committed) * 77), "");
  if (member.group->committed() != member.committed) {
    fail("step " + std::to_string(member.committed) + " is not the one that is committed, which is " +
         std::to_string(member.group->committed()));
  }
}

}  // namespace rondo::life
