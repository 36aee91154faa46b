// A message that comes slowly, while its sender is in a collective already: no mismatch. Ranks as processes over TCP;
// the receiver's kernel gives the bytes away one by one, as if the link were slow and its buffers large.
#undef _FORTIFY_SOURCE  // else clang has a recv of its own from the C library's headers
#include <doctest/doctest.h>
#include <errno.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/support/rank_group.h"

namespace {

using Clock = std::chrono::steady_clock;

// Bytes that this thread may read from now on: so many for each millisecond. 0: all.
thread_local size_t bytes_per_ms = 0;
thread_local size_t bytes_read = 0;
thread_local Clock::time_point since{};

size_t allowed(size_t wanted) {
  if (bytes_per_ms == 0) return wanted;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count();
  const size_t so_far = static_cast<size_t>(ms) * bytes_per_ms;
  return std::min(wanted, so_far - std::min(so_far, bytes_read));
}

ssize_t counted(ssize_t moved) {
  if (moved > 0) bytes_read += static_cast<size_t>(moved);
  return moved;
}

ssize_t later() {
  errno = EAGAIN;
  return -1;
}

}  // namespace

// In the place of the C library's.
extern "C" ssize_t recv(int socket, void* data, size_t bytes, int flags) {
  const size_t may = allowed(bytes);
  return may == 0 ? later() : counted(syscall(SYS_recvfrom, socket, data, may, flags, nullptr, nullptr));
}

extern "C" ssize_t readv(int file, const iovec* parts, int count) {
  if (bytes_per_ms == 0) return syscall(SYS_readv, file, parts, count);
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len == 0) continue;
    const size_t may = allowed(parts[i].iov_len);
    return may == 0 ? later() : counted(syscall(SYS_read, file, parts[i].iov_base, may));
  }
  return 0;
}

namespace rondo::testing {

// How its sender gets into the barrier beside it.
enum class Sends { kBefore, kMeanwhile, kInABatch };

TEST_CASE("a barrier waits for a rank whose message is still on its way") {
  // Proves: longer than the others' patience.
  for (const Sends sends : {Sends::kBefore, Sends::kMeanwhile, Sends::kInABatch}) {
    CAPTURE(static_cast<int>(sends));
    RankGroup shape = ranks_over("tcp");
    shape.config.stall_ms = 50;
    CHECK(run_processes(shape, [&](Communicator& group) {
            // 64 kB are sent before they are asked for, 128 kB are not.
            std::vector<int32_t> values(sends == Sends::kBefore ? 16'000 : 32'000, group.rank());
            group.barrier();
            if (group.rank() == 0) {
              since = Clock::now();
              bytes_per_ms = values.size() * sizeof(int32_t) / 1000;  // for a second
              group.recv(values, 1);
              bytes_per_ms = 0;
              expect(values == std::vector<int32_t>(values.size(), 1), "a wrong message");
              return group.barrier();
            }
            if (sends == Sends::kInABatch) {
              BatchScope calls(group);
              group.send(values, 0);
              group.barrier();
              return calls.end();
            }
            Work sent = group.send_async(values, 0);
            if (sends == Sends::kBefore) sent.wait();
            group.barrier();
            sent.wait();
          }) == "");
  }
}

}  // namespace rondo::testing
