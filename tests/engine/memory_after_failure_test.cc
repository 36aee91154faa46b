// Memory of a rank whose call has failed: it is the caller's again at once, though others may not have heard of the
// failure and are still at work on it. Ranks as processes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/ranks.h"
#include "tests/support/rank_group.h"

namespace {

int reads_before_pause = -1;               // slices of other processes' memory; negative: no pause
constexpr size_t kSliceBytes = 64 * 1024;  // what is shorter is a trial whether such memory can be read
std::function<void()> pause_read = [] {};

}  // namespace

// In the place of the C library's.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                    unsigned long there_count, unsigned long flags) {
  const bool slice = here->iov_len >= kSliceBytes;
  if (slice && reads_before_pause >= 0 && reads_before_pause-- == 0) pause_read();
  return syscall(SYS_process_vm_readv, process, here, here_count, there, there_count, flags);
}

namespace rondo::testing {
namespace {

constexpr size_t kCount = 64 * 1024;  // float32, 2 ranks: two slices of each block
constexpr int kReads = 4;             // of one all_reduce by "pull": two slices folded, two copied

struct Buffers {
  std::vector<float> input = std::vector<float>(kCount, 1);
  std::vector<float> output = std::vector<float>(kCount, 0);

  Call sum() {
    Call call;
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

enum class Fails { kAborts, kIsLate, kDestroys };

// Fails in the middle of its call, and uses its memory again as soon as that has failed.
void fail_and_refill(Here& here, Communicator& group, Fails fails) {
  Buffers buffers;
  Call call = buffers.sum();
  if (fails == Fails::kIsLate) call.options.timeout = std::chrono::milliseconds(300);
  std::thread other([&] {
    here.await();
    if (fails == Fails::kAborts) group.abort("enough");
    if (fails == Fails::kDestroys) group.destroy();
  });
  const std::string ended = outcome([&] { group.run(call); });
  buffers.refill();
  here.say(ended);
  other.join();
}

// Rank 0 is stopped before its read number `reads`, rank 1 fails meanwhile: how the call of each ended.
std::vector<std::string> outcomes(int reads, Fails fails) {
  Job job;
  job.start(
      2,
      [reads, fails](Here& here) {
        Communicator group = Communicator::join(here.options);
        Buffers first;
        group.run(first.sum());
        expect(first.output == std::vector<float>(kCount, 2), "the first sum is wrong");
        here.say("ready");
        if (here.rank() == 0) {
          read_slowly(here, group, reads);
        } else {
          fail_and_refill(here, group, fails);
        }
      },
      fault_config("shm"));
  job.expect_all("ready");
  CHECK(job[0].hear() == "reading");
  job[1].tell("fail");
  std::vector<std::string> ended{"", job[1].hear()};
  job[0].tell("read on");
  ended[0] = job[0].hear();
  return ended;
}

}  // namespace

TEST_CASE("a slow reader of memory that a failed rank uses again: it fails, or its sum is right") {
  // Proves: a rank that is stopped in the middle of reading longer than its peer waits for it does not take what it
  // read for the peer's data.
  for (int reads = 0; reads < kReads; ++reads) {
    CAPTURE(reads);
    const auto aborted = outcomes(reads, Fails::kAborts);
    CHECK(aborted[0].find("ABORTED [1] rank 1 aborted the group: enough") == 0);
    CHECK(aborted[1] == aborted[0]);
  }
}

TEST_CASE("the same with a deadline that passes, and with a communicator that is destroyed in the middle of a call") {
  const auto late = outcomes(kReads - 1, Fails::kIsLate);
  CHECK(late[0].find("TIMEOUT") == 0);
  CHECK(late[1].find("TIMEOUT") == 0);
  const auto destroyed = outcomes(kReads - 1, Fails::kDestroys);
  CHECK(destroyed[0].find("PEER_LEFT [1]") == 0);
  CHECK(destroyed[1].find("CLOSED") == 0);
}

}  // namespace rondo::testing
