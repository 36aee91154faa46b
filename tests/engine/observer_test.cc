// What an observer keeps of the communicators of a join, and of its traces. This binary has its own posix_fallocate(),
// during which a test can do something.
#include "ring/engine/observe/observer.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <numeric>
#include <string>
#include <vector>

#include "ring/base/file_text.h"
#include "tests/support/temp_folder.h"

namespace {

std::function<void()> while_a_file_is_made;

}  // namespace

extern "C" int posix_fallocate(int file, off_t at, off_t bytes) {
  if (while_a_file_is_made) while_a_file_is_made();
  return ::ftruncate(file, at + bytes) == 0 ? 0 : errno;
}

namespace rondo {
namespace {

TEST_CASE("however many communicators of the same ranks come and go, what is kept of them grows no more") {
  constexpr uint64_t kPastTheNumbers = 5'000, kMany = 20'000;
  constexpr size_t kNoise = 64 * 1024;
  std::vector<int> members(64);
  std::iota(members.begin(), members.end(), 0);
  ObservedRank about;
  about.world = static_cast<int>(members.size());
  Observer observer(about);
  for (uint64_t id = 0; id < kPastTheNumbers; ++id) observer.communicator(id, members);
  const size_t before = mallinfo2().uordblks;
  for (uint64_t id = 0; id < kMany; ++id) observer.communicator(id, members);
  CHECK(mallinfo2().uordblks < before + kNoise);
}

// Mappings of traces in this process: files that were replaced are among them.
int traces_mapped() {
  const std::string maps = file_text("/proc/self/maps");
  int found = 0;
  for (size_t at = 0; (at = maps.find(".rondo-trace", at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST_CASE("however many traces a program starts, the file of the one that is written alone is mapped") {
  const testing::TempFolder folder;
  ObservedRank about;
  about.trace_bytes = 64 * 1024;
  Observer observer(about);
  for (int i = 0; i < 3; ++i) {
    observer.start_trace(folder.path());
    CHECK(traces_mapped() == 1);
    observer.start_trace(folder.path());  // ends the one before
    CHECK(traces_mapped() == 1);
    observer.stop_trace();
    CHECK(traces_mapped() == 0);
  }
  const std::string trace = file_text(folder.path("rank-0.rondo-trace"));
  CHECK(trace.find(R"("what":"rank")") != std::string::npos);
}

TEST_CASE("the file of a trace may take long to make: a failure meanwhile is told to the trace under way") {
  const testing::TempFolder folder;
  ObservedRank about;
  about.trace_bytes = 64 * 1024;
  Observer observer(about);
  const uint32_t communicator = observer.communicator(1, {0});
  observer.start_trace(folder.path("first"));
  std::future<void> failure;
  bool told = false;
  while_a_file_is_made = [&] {
    failure = std::async(std::launch::async, [&] {
      observer.failed(communicator, {ErrorCode::kAborted, "enough", {}});
    });
    told = failure.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  };
  observer.start_trace(folder.path("second"));
  while_a_file_is_made = nullptr;
  failure.get();
  CHECK(told);
  CHECK(file_text(folder.path("first/rank-0.rondo-trace")).find(R"("message":"enough")") != std::string::npos);
}

}  // namespace
}  // namespace rondo
