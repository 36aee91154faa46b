#pragma once

#include <sys/mman.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/cases.h"
#include "tests/support/errors.h"
#include "tests/support/fake_cuda/mirror.h"
#include "tests/support/rank_group.h"

// Calls on device memory, by processes and by threads: a program whose ranks were threads forks no processes.
namespace rondo::testing {

// --- ranks

// A setting of the fake driver, for processes. rank: the only one that has it; -1: all have it.
struct Setting {
  const char* name;
  std::string value;
  int rank = -1;
};
using Settings = std::vector<Setting>;
// Ranks on the devices that they see, in turn; of the fake ones there are two. As threads: on one of all.
RankGroup device_group(int world, const char* transport = "auto", const Settings& settings = {});
// The same, which stage all calls.
RankGroup staged_group(int world, const char* transport = "auto", const Settings& settings = {});
// The same, which ask for the ring, or for passes over all memory, of short calls, too.
RankGroup ring_group(int world, const Settings& settings = {});
RankGroup registered_group(int world);
// The calling thread, of this rank, goes on on one of so many devices, which ranks use in turn; of GPUs, on one of as
// many as there are.
void use_device(int rank, int devices);
// Processes that do so.
RankGroup on_devices(int devices, RankGroup group);
// Windows so small that calls are cut into many pieces.
RankGroup small_windows(RankGroup group);
// Over shared memory, by kernels, and over TCP, staged.
std::vector<RankGroup> both_transports(int world);
// By kernels, and staged over shared memory.
std::vector<RankGroup> both_ways(int world, const Settings& settings = {});

// All ranks of each group end well.
void check_processes(const std::vector<RankGroup>& groups, const RankBody& body);
void check_threads(const std::vector<RankGroup>& groups, const RankBody& body);
using Check = void (*)(const std::vector<RankGroup>& groups, const RankBody& body);
using Clock = std::chrono::steady_clock;

// Zeroes that processes share which are forked while it lives.
template <class T>
class OfAllProcesses {
 public:
  OfAllProcesses() { expect(memory_ != MAP_FAILED, "mmap"); }
  ~OfAllProcesses() { munmap(memory_, sizeof(T)); }
  OfAllProcesses(const OfAllProcesses&) = delete;
  T* operator->() const { return static_cast<T*>(memory_); }

 private:
  void* const memory_ = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
};

// --- cases

// Where the buffers of a case lie: in device memory of their own, or in memory of Communicator::allocate() on all ranks
// or on those of odd number.
enum class BufferKind : uint8_t { kPlain, kRegistered, kOddRegistered };
constexpr BufferKind kKinds[] = {BufferKind::kPlain, BufferKind::kRegistered, BufferKind::kOddRegistered};
// Whether calls are kernels over the memory of several ranks; a GPU does not tell.
enum class Taken : uint8_t { kAsKernels, kStaged };

// Runs the cases on device memory on this rank, one after the other; throws what is wrong. Nothing but the stream waits
// for a call.
void run_on_device(Communicator& group, const std::vector<CollectiveCase>& cases,
                   BufferKind buffers = BufferKind::kOddRegistered, Taken taken = Taken::kAsKernels);
// Calls of many pieces, with small_windows().
std::vector<CollectiveCase> large_shapes(int world);
// Every collective with every root and many counts, and every dtype with every op; and some of them.
std::vector<CollectiveCase> full_matrix(int world);
std::vector<CollectiveCase> drawn_of_matrix(int world, size_t count, uint64_t seed);

// --- the fake driver

// Passes over the memory of several ranks; -1: a GPU does not tell.
inline int passes_over_ranks() { return counted("fake_cuda_placed"); }

// --- buffers

// int32 values of 1, of which all_reduces are made in place. memory: what they lie in, of allocate(); nullptr: plain.
struct Sum {
  Sum(Communicator& group, void* memory, size_t count, size_t bytes = 1u << 20);
  void* data() const { return mirror.image(values.data()); }
  CallOptions options() const { return {.stream = mirror.stream()}; }
  Work start(Op op = Op::kSum) { return start(op, options()); }
  Work start(Op op, const CallOptions& options);
  // Without a Work.
  void call(Op op = Op::kSum) { call(op, options()); }
  void call(Op op, const CallOptions& options);
  // Once the mirror's stream has done what is in it; throws where they are not all the same.
  int32_t value();

  Communicator& group;
  Mirror mirror;
  std::pmr::vector<int32_t> values;
};

constexpr int64_t value_of(int rank, uint64_t index) {
  return (rank + int64_t{1}) * 1'000'000'000 + static_cast<int64_t>(index);
}
// A message of int64. of: whose values it holds; -1: -1 everywhere.
struct DeviceBuffer {
  DeviceBuffer(Mirror& mirror, size_t count, int of);
  // The message of so many elements is here, and nothing behind it.
  void expect_message(int from, uint64_t count) const;
  std::pmr::vector<int64_t> values;
  void* device;
};

// --- what ranks do, of processes and of threads

// Rank 1 aborts with calls in flight. Every rank writes to its memory as soon as its own calls have failed; nothing
// that another rank has still in a stream may change it then.
void write_after_failure(Communicator& group);
// Calls by the ring, over all memory and staged in turn, many of them under way.
void call_in_turn(Communicator& group);
// Ranks 0 and 1 make different calls; the device goes on.
void call_differently(Communicator& group);
// Each rank sends to the next one, in batches; every buffer is longer than its message.
void ring_of_messages(Communicator& group);
// The calls of a batch beside its messages: rank 0's receive stands before the collective that rank 1 makes first.
void messages_beside_collectives(Communicator& group);

}  // namespace rondo::testing
