#include "nccl/group.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace rondo::nccl {
namespace {

using Jobs = std::vector<Job>;

thread_local int open_groups = 0;  // of this thread, one in the other
thread_local Jobs kept;            // until the outermost ends

// Calls that start together, of which some are messages.
class Batch {
 public:
  explicit Batch(ncclComm& comm) : comm_(comm), group_(comm.group()) { check(rondo_batch_begin(group_)); }
  ~Batch() {
    if (group_ != nullptr) rondo_batch_abandon(group_);
  }
  Batch(const Batch&) = delete;
  void end() {
    rondo_work_t work = nullptr;
    check(rondo_batch_end_async(std::exchange(group_, nullptr), &work));
    comm_.add(work);
  }

 private:
  ncclComm& comm_;
  rondo_comm_t group_;  // nullptr: it has ended
};

void run_calls(std::span<const Job> calls) {
  const bool any_message = std::ranges::any_of(calls, [](const Job& job) { return job.kind == Job::Kind::kMessage; });
  if (calls.size() == 1 || !any_message) {
    for (const Job& job : calls) job.run();
    return;
  }
  Batch batch(*calls.front().comm);
  for (const Job& job : calls) job.run();
  batch.end();
}

// Of one communicator, in order.
void run(std::span<const Job> jobs) {
  while (!jobs.empty()) {
    const auto making = std::ranges::find(jobs, Job::Kind::kMaking, &Job::kind);
    const auto calls = static_cast<size_t>(making - jobs.begin());
    if (calls > 0) {
      run_calls(jobs.first(calls));
      jobs = jobs.subspan(calls);
    } else {
      jobs.front().run();
      jobs = jobs.subspan(1);
    }
  }
}

std::vector<Jobs> by_communicator(Jobs jobs) {
  std::vector<Jobs> all;
  for (Job& job : jobs) {
    auto of_same = std::ranges::find_if(all, [&](const Jobs& one) { return one.front().comm == job.comm; });
    if (of_same == all.end()) of_same = all.emplace(all.end());
    of_same->push_back(std::move(job));
  }
  return all;
}

// One that does not block leaves what waits for other ranks to a thread of its own.
bool runs_beside(const Jobs& jobs) {
  return !jobs.front().comm->blocks() &&
         std::ranges::any_of(jobs, [](const Job& job) { return job.kind == Job::Kind::kMaking; });
}

ncclResult_t run_all(Jobs jobs) {
  ncclResult_t result = ncclSuccess;
  std::vector<Jobs> here;
  for (Jobs& of_one : by_communicator(std::move(jobs))) {
    if (runs_beside(of_one)) {
      ncclComm& comm = *of_one.front().comm;
      comm.run_beside([jobs = std::move(of_one)] { run(jobs); });
      result = ncclInProgress;
    } else {
      here.push_back(std::move(of_one));
    }
  }
  if (here.size() == 1) {
    run(here.front());
    return result;
  }
  std::vector<std::optional<Failure>> failures(here.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < here.size(); ++i) {
    threads.emplace_back([&jobs = here[i], &failure = failures[i]] {
      try {
        jobs.front().comm->enter();
        run(jobs);
      } catch (const Failure& why) {
        failure = why;
      } catch (const std::exception& why) {
        failure = Failure{ncclSystemError, why.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::optional<Failure>& failure : failures) {
    if (failure) throw Failure(*failure);
  }
  return result;
}

}  // namespace

ncclResult_t submit(Job job) {
  if (open_groups > 0) {
    kept.push_back(std::move(job));
    return ncclSuccess;
  }
  Jobs one;
  one.push_back(std::move(job));
  return run_all(std::move(one));
}

void start_group() { ++open_groups; }

ncclResult_t end_group() {
  if (open_groups == 0) refuse(ncclInvalidUsage, "there is no group: ncclGroupStart() was not called on this thread");
  if (--open_groups > 0) return ncclSuccess;
  return run_all(std::exchange(kept, {}));
}

Group::~Group() {
  if (!open_) return;
  kept.clear();
  --open_groups;
}

}  // namespace rondo::nccl
