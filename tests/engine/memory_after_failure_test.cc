// Memory of a rank whose call has failed: it is the caller's again at once, though others may not have heard of the
// failure and are still at work on it. Ranks as processes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/ranks.h"
#include "tests/support/rank_group.h"

namespace {

int reads_before_pause = -1;  // of other processes' memory; negative: no pause
std::function<void()> pause_read = [] {};

}  // namespace

// In the place of the C library's.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                    unsigned long there_count, unsigned long flags) {
  if (reads_before_pause >= 0 && reads_before_pause-- == 0) pause_read();
  return syscall(SYS_process_vm_readv, process, here, here_count, there, there_count, flags);
}

namespace rondo::testing {
namespace {

constexpr size_t kCount = 64 * 1024;  // float32, 2 ranks: two slices of each block
constexpr int kReads = 4;             // of one all_reduce by "pull": two slices folded, two copied

struct Buffers {
  std::vector<float> input = std::vector<float>(kCount, 1);
  std::vector<float> output = std::vector<float>(kCount, 0);

  Communicator::Call sum() {
    Communicator::Call call;
    call.input = input.data();
    call.output = output.data();
    call.count = kCount;
    call.options.algorithm = Algorithm::kPull;
    return call;
  }
  void refill() {
    std::fill(input.begin(), input.end(), 1e6f);
    std::fill(output.begin(), output.end(), 1e6f);
  }
};

Config shm_config() {
  Config config = fault_config();
  config.transport = "shm";
  return config;
}

// Pauses before its read number `reads`; says how its call ended, and whether a sum that it was told to be one is.
void read_slowly(Here& here, Communicator& group, int reads) {
  Buffers buffers;
  pause_read = [&here] {
    here.say("reading");
    here.await();
  };
  reads_before_pause = reads;
  const std::string ended = outcome([&] { group.run(buffers.sum()); });
  const bool right = buffers.output == std::vector<float>(kCount, 2);
  here.say(ended == "ok" && !right ? "a wrong sum" : ended);
}

// Aborts in the middle of its call, and uses its memory again as soon as that has failed.
void fail_and_refill(Here& here, Communicator& group) {
  Buffers buffers;
  std::thread aborter([&] {
    here.await();
    group.abort("enough");
  });
  const std::string ended = outcome([&] { group.run(buffers.sum()); });
  buffers.refill();
  here.say(ended);
  aborter.join();
}

}  // namespace

TEST_CASE("a slow reader of memory that a failed rank uses again: it fails, or its sum is right") {
  // Proves: a rank that is stopped in the middle of reading longer than its peer waits for it does not take what it
  // read for the peer's data.
  for (int reads = 0; reads < kReads; ++reads) {
    CAPTURE(reads);
    Job job;
    job.start(
        2,
        [reads](Here& here) {
          Communicator group = Communicator::join(here.options);
          Buffers first;
          group.run(first.sum());
          expect(first.output == std::vector<float>(kCount, 2), "the first sum is wrong");
          here.say("ready");
          if (here.rank() == 0) {
            read_slowly(here, group, reads);
          } else {
            fail_and_refill(here, group);
          }
        },
        shm_config());
    job.expect_all("ready");
    CHECK(job[0].hear() == "reading");
    job[1].tell("abort");
    const std::string failed = job[1].hear();
    CHECK(failed.find("ABORTED [1] rank 1 aborted the group: enough") == 0);
    job[0].tell("read on");
    const std::string ended = job[0].hear();
    CAPTURE(ended);
    CHECK(ended.find("ABORTED [1]") == 0);
  }
}

}  // namespace rondo::testing
