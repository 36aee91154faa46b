#include "tests/support/fake_cuda/queue.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "ring/base/check.h"

namespace rondo::testing {
namespace {

thread_local bool runs_entry = false;

// The right to run entries, of a thread that does: a file of its own, open; -1 without FAKE_CUDA_SLICES.
thread_local int slice = -1;

void open_slice() {
  const char* const file = std::getenv("FAKE_CUDA_SLICES");
  if (file != nullptr) slice = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  RONDO_CHECK(file == nullptr || slice >= 0, "the file of FAKE_CUDA_SLICES cannot be opened");
}
void lock_slice(int how) {
  if (slice >= 0) RONDO_CHECK(flock(slice, how) == 0, "flock");
}

}  // namespace

void FakeQueue::let_others_run(std::chrono::microseconds pause) {
  lock_slice(LOCK_UN);
  std::this_thread::sleep_for(pause);
  lock_slice(LOCK_EX);
}

FakeQueue::FakeQueue() {
  std::thread([this] { run(); }).detach();
}

bool FakeQueue::in_entry() { return runs_entry; }

void FakeQueue::run_as_entry(const std::function<void()>& function) {
  const bool before = std::exchange(runs_entry, true);
  function();
  runs_entry = before;
}

void FakeQueue::add(const void* stream, std::function<void()> function, Entry kind) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return entries_.size() < kMostEntries; });
  ++streams_[stream].added;
  entries_.push_back({stream, std::move(function), kind});
  changed_.notify_all();
}

uint64_t FakeQueue::added(const void* stream) {
  std::lock_guard lock(mutex_);
  return streams_[stream].added;
}

bool FakeQueue::has_run(const void* stream, uint64_t count) {
  std::lock_guard lock(mutex_);
  return streams_[stream].done >= count;
}

void FakeQueue::synchronize(const void* stream) {
  std::unique_lock lock(mutex_);
  const uint64_t until = streams_[stream].added;
  changed_.wait(lock, [&] { return streams_[stream].done >= until; });
}

void FakeQueue::synchronize_all() {
  std::unique_lock lock(mutex_);
  const std::map<const void*, Count> until = streams_;
  for (const auto& stream : until) {
    changed_.wait(lock, [&] { return streams_[stream.first].done >= stream.second.added; });
  }
}

void FakeQueue::run_entry(const void* stream, const std::function<void()>& function) {
  prctl(PR_SET_TIMERSLACK, 1);  // ns: FAKE_CUDA_COPY_MBPS shall not be off by the 50 us that a sleep takes longer
  open_slice();
  runs_entry = true;
  lock_slice(LOCK_EX);
  function();
  if (slice >= 0) close(std::exchange(slice, -1));  // and unlocks it
  std::lock_guard lock(mutex_);
  Count& count = streams_[stream];
  ++count.done;
  count.runs_kernel = false;
  changed_.notify_all();
}

void FakeQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !entries_.empty(); });
    const Added entry = std::move(entries_.front());
    entries_.pop_front();
    Count& count = streams_[entry.stream];
    changed_.wait(lock, [&] { return !count.runs_kernel; });
    if (entry.kind == Entry::kKernel) {
      const char* const most = std::getenv("FAKE_CUDA_KERNELS");
      changed_.wait(lock, [&] { return most == nullptr || kernels_ < std::atoi(most); });
      count.runs_kernel = true;
      ++kernels_;
      std::thread([this, entry] {
        run_entry(entry.stream, entry.function);
        std::lock_guard ended(mutex_);
        --kernels_;
        changed_.notify_all();
      }).detach();
      continue;
    }
    lock.unlock();
    run_entry(entry.stream, entry.function);
    lock.lock();
  }
}

}  // namespace rondo::testing
