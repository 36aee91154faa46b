#include "nccl/group.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rondo::nccl {
namespace {

using Jobs = std::vector<Job>;

// No lock: groups are the thread's own.
thread_local int open_groups = 0;  // of this thread, one in the other
thread_local Jobs kept;            // until the outermost ends

// Calls that start together, of which some are messages. Where it is left without end(), the library forgets its calls.
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

// Messages start together, as a batch: ranks may post them in different orders.
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

// Runs the jobs of one communicator, in order.
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

// In the order of each communicator's first job. Jobs of one communicator keep their order. A search for each job: a
// group has few communicators, one for each device of a process.
std::vector<Jobs> by_communicator(Jobs jobs) {
  std::vector<Jobs> all;
  for (Job& job : jobs) {
    auto of_same = std::ranges::find_if(all, [&](const Jobs& one) { return one.front().comm == job.comm; });
    if (of_same == all.end()) of_same = all.emplace(all.end());
    of_same->push_back(std::move(job));
  }
  return all;
}

// Jobs of one communicator, and the use of all that they work on, until they have run, or will not. Its destructor may
// run on any thread, and takes the locks of its communicators: it must not run under one.
struct Started {
  const Jobs jobs;
  explicit Started(Jobs all) : jobs(std::move(all)) {
    for (const Job& job : jobs) {
      job.comm->use();
      if (job.made != nullptr) job.made->use();
    }
  }
  ~Started() {
    for (const Job& job : jobs) {
      if (job.made != nullptr) {
        job.made->give_up();
        job.made->let_go();
      }
      job.comm->let_go();
    }
  }
  Started(const Started&) = delete;

  ncclComm& comm() const { return *jobs.front().comm; }
  // One that does not block leaves what waits for other ranks to a thread of its own. Only making waits for other
  // ranks: calls are put into a stream and return.
  bool runs_beside() const {
    return !comm().blocks() && std::ranges::any_of(jobs, [](const Job& job) { return job.kind == Job::Kind::kMaking; });
  }
  // What runs beside the program for this communicator comes first.
  void run_here() const {
    comm().await_beside();
    run(jobs);
  }
};
using StartedRef = std::shared_ptr<const Started>;  // shared with the functions of threads
// What one thread runs, in order: all of them, though one fails.
using Lane = std::vector<StartedRef>;

// Two ranks of one job wait for each other, whatever stream they have.
bool share_a_stream(const Started& one, const Started& other) {
  const ncclComm::Seat &seat = one.comm().seat(), &others = other.comm().seat();
  if (one.comm().device() != other.comm().device() || (seat.job == others.job && seat.rank != others.rank))
    return false;
  const auto is_call = [](const Job& job) { return job.kind != Job::Kind::kMaking; };
  return std::ranges::any_of(one.jobs, [&](const Job& job) {
    return is_call(job) &&
           std::ranges::any_of(other.jobs, [&](const Job& with) { return is_call(with) && with.stream == job.stream; });
  });
}

// Joins all communicators that share a stream, directly or by another communicator. A communicator may join lanes that
// were apart before it.
std::vector<Lane> lanes_of(std::vector<StartedRef> all) {
  std::vector<Lane> lanes;
  for (StartedRef& one : all) {
    std::vector<Lane> others;
    Lane joined;
    for (Lane& lane : lanes) {
      if (std::ranges::any_of(lane, [&](const StartedRef& other) { return share_a_stream(*one, *other); })) {
        std::ranges::move(lane, std::back_inserter(joined));
      } else {
        others.push_back(std::move(lane));
      }
    }
    joined.push_back(std::move(one));
    others.push_back(std::move(joined));
    lanes = std::move(others);
  }
  return lanes;
}

// The first failure is thrown when all of the lane have run.
void run_here(const Lane& lane) {
  std::optional<Failure> failure;
  for (const StartedRef& one : lane) {
    try {
      one->run_here();
    } catch (...) {
      if (!failure) failure = caught();
    }
  }
  if (failure) throw Failure(*failure);
}

// The thread has no device of its own: it takes that of the lane's first communicator.
void run_on_thread(const Lane& lane, std::optional<Failure>& failure) noexcept {
  try {
    lane.front()->comm().enter();
    run_here(lane);
  } catch (...) {
    failure = caught();
  }
}

// Ranks on other lanes may wait for these.
void abort_all(const Lane& lane, const Failure& why) {
  for (const StartedRef& one : lane) one->comm().abort(why.text.c_str());
}

// By a thread each. Where there is none for one, the others must not wait for it. All are joined before the first
// failure is thrown: threads refer to `lanes` and `failures`.
void run_together(const std::vector<Lane>& lanes) {
  std::vector<std::optional<Failure>> failures(lanes.size());
  std::vector<std::thread> threads;
  threads.reserve(lanes.size());
  for (size_t i = 0; i < lanes.size(); ++i) {
    try {
      threads.emplace_back([&lane = lanes[i], &failure = failures[i]] { run_on_thread(lane, failure); });
    } catch (const std::exception& why) {
      failures[i] = Failure{ncclSystemError, std::string("starting a thread: ") + why.what()};
      abort_all(lanes[i], *failures[i]);
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::optional<Failure>& failure : failures) {
    if (failure) throw Failure(*failure);
  }
}

// Communicators that do not block run beside the program. This waits for all others. One alone needs no thread. Every
// job is marked as used before any begins, so ncclCommDestroy() of another thread waits for all of them.
ncclResult_t run_all(Jobs jobs) {
  std::vector<StartedRef> all, here;
  for (Jobs& of_one : by_communicator(std::move(jobs)))
    all.push_back(std::make_shared<const Started>(std::move(of_one)));
  ncclResult_t result = ncclSuccess;
  for (StartedRef& one : all) {
    if (one->runs_beside()) {
      one->comm().run_beside([one] { run(one->jobs); });
      result = ncclInProgress;
    } else {
      here.push_back(std::move(one));
    }
  }
  all.clear();
  const std::vector<Lane> lanes = lanes_of(std::move(here));
  if (lanes.size() == 1 && lanes.front().size() == 1) {
    const InContext on(lanes.front().front()->comm().context());  // whose default stream a call may name
    run_here(lanes.front());
  } else {
    run_together(lanes);
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

Group::Group() : jobs_before_(kept.size()) { start_group(); }

// Jobs of a group around it stay.
Group::~Group() {
  if (!open_) return;
  const auto own = kept.begin() + static_cast<std::ptrdiff_t>(jobs_before_);
  for (const Job& job : std::span(own, kept.end())) {
    if (job.made != nullptr) job.made->give_up();
  }
  kept.erase(own, kept.end());
  --open_groups;
}

}  // namespace rondo::nccl
