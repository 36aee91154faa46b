#include "ring/base/control_groups.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/temp_folder.h"
#include "transport/shared_memory.h"

namespace rondo {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A directory of files that look like the kernel's.
class Facts : public testing::TempFolder {
 public:
  Facts() { write("groups", "0::/\n"); }
  uint64_t available() const { return available_memory({path("meminfo"), path("groups"), path()}); }
};

class SomeWindow final : public Window {
 public:
  SomeWindow(std::byte* data, size_t bytes) : Window(1, data, bytes) {}
};

TEST_CASE("what the machine has, where nothing limits the process") {
  const Facts facts;
  CHECK(facts.available() == UINT64_MAX);
  facts.write("meminfo", "MemTotal: 4096 kB\nMemFree: 100 kB\nMemAvailable: 2048 kB\nBuffers: 7 kB\n");
  CHECK(facts.available() == 2 * kMiB);
  facts.write("memory.max", "max\n");
  facts.write("memory.current", "1000\n");
  CHECK(facts.available() == 2 * kMiB);
}

TEST_CASE("what a container's limit leaves; pages of files that were read are no loss") {
  const Facts facts;
  facts.write("meminfo", "MemAvailable: 1048576 kB\n");
  facts.write("memory.max", std::to_string(100 * kMiB));
  facts.write("memory.current", std::to_string(99 * kMiB));
  CHECK(facts.available() == 1 * kMiB);
  facts.write("memory.stat", "anon 5000000\nfile 80000000\ninactive_file " + std::to_string(60 * kMiB) +
                                 "\nactive_file " + std::to_string(20 * kMiB) + "\nslab_reclaimable " +
                                 std::to_string(2 * kMiB) + "\n");
  CHECK(facts.available() == 83 * kMiB);
  facts.write("memory.stat", "inactive_file " + std::to_string(200 * kMiB) + "\n");  // told a moment later
  CHECK(facts.available() == 100 * kMiB);
  facts.write("memory.current", std::to_string(101 * kMiB));
  facts.write("memory.stat", "");
  CHECK(facts.available() == 0);
  facts.write("meminfo", "MemAvailable: 1024 kB\n");
  facts.write("memory.current", "0");
  CHECK(facts.available() == 1 * kMiB);
}

TEST_CASE("the limits of nested control groups, of both versions: the one that leaves least counts") {
  const Facts facts;
  facts.write("meminfo", "MemAvailable: 1048576 kB\n");
  facts.write("groups", "4:cpu:/job\n3:memory:/slurm/job_7/step_0\n0::/user/scope\n");
  facts.write("memory/memory.limit_in_bytes", "9223372036854771712");
  facts.write("memory/slurm/job_7/memory.limit_in_bytes", std::to_string(300 * kMiB));
  facts.write("memory/slurm/job_7/memory.usage_in_bytes", std::to_string(250 * kMiB));
  facts.write("memory/slurm/job_7/memory.stat", "inactive_file 0\ntotal_inactive_file " + std::to_string(50 * kMiB));
  facts.write("memory/slurm/job_7/step_0/memory.limit_in_bytes", std::to_string(400 * kMiB));
  CHECK(facts.available() == 100 * kMiB);
  facts.write("user/memory.max", std::to_string(80 * kMiB));
  facts.write("user/scope/memory.max", "max");
  CHECK(facts.available() == 80 * kMiB);
  facts.write("unified/user/scope/memory.max", std::to_string(70 * kMiB));
  CHECK(facts.available() == 70 * kMiB);
  facts.write("memory/slurm/job_8/memory.limit_in_bytes", "0");  // another's
  CHECK(facts.available() == 70 * kMiB);
  facts.write("groups", "3:memory:/of/the/host\n");  // not to be seen in a container, whose own is at the mount
  facts.write("memory/memory.limit_in_bytes", std::to_string(60 * kMiB));
  CHECK(facts.available() == 60 * kMiB);
}

TEST_CASE("a place in a window: what a peer says is not believed") {
  std::byte memory[4096];
  const SomeWindow window(memory, sizeof(memory));
  const auto at = [&](uint64_t offset, uint64_t bytes) { return data_at(window, {1, offset}, bytes); };
  CHECK(at(0, 4096) == memory);
  CHECK(at(4000, 96) == memory + 4000);
  CHECK(at(4096, 0) == memory + 4096);
  CHECK(at(4000, 97) == nullptr);
  CHECK(at(4097, 0) == nullptr);
  CHECK(at(1ull << 40, 8) == nullptr);
  CHECK(at(UINT64_MAX, 2) == nullptr);
  CHECK(at(8, UINT64_MAX) == nullptr);
}

}  // namespace
}  // namespace rondo
