#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/device/device_cases.h"

// For the tests of device islands, of processes and of threads: a program whose ranks were threads forks no processes.
namespace rondo::testing {

// Windows so small that calls are cut into many pieces.
inline RankGroup small_windows(int world) {
  RankGroup group = device_group(world, "auto");
  group.config.device_window_bytes = 64 * 1024;
  return group;
}

inline std::vector<CollectiveCase> large_shapes(int world) {
  std::vector<CollectiveCase> cases;
  for (CollectiveCase what : all_shapes({world, {50'001}, {world - 1}})) {
    if (!what.counts.empty() || what.in_place != (what.misalign == 0)) continue;
    cases.push_back(what);
  }
  return cases;
}

// Ranks that ask for the ring by setting.
inline RankGroup ring_group(int world, uint64_t window_bytes = Config().device_window_bytes) {
  RankGroup group = device_group(world, "auto");
  group.config.algorithm = Algorithm::kRing;
  group.config.device_window_bytes = window_bytes;
  return group;
}

// Runs the cases by passes over the memory of all ranks. BufferKind::kOddRegistered: both kinds of buffers in a call.
inline void run_all(Communicator& group, const std::vector<CollectiveCase>& cases,
                    BufferKind kind = BufferKind::kOddRegistered) {
  const int before = passes_over_ranks();
  run_on_device(group, cases, kind);
  const int after = passes_over_ranks();
  expect(group.size() == 1 || after < 0 || (after > 0 && after != before), "the calls were staged");
}

inline Error error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Exception& e) {
    return e.error();
  }
  return {};
}

inline void expect_error(const Error& error, ErrorCode code, const std::string& text) {
  expect(error.code == code && error.message.find(text) != std::string::npos, [&] {
    return "expected " + std::string(error_code_name(code)) + " with \"" + text + "\"; it is " +
           error_code_name(error.code) + ": " + error.message;
  });
}

// One int32 all_reduce in place on registered memory, or plain.
struct Sum {
  Sum(Communicator& of, void* registered, size_t count, size_t bytes = 1u << 20)
      : group(of), mirror(registered, bytes), values(count, 1, &mirror) {
    mirror.to_device();
    mirror.synchronize();
  }
  void* data() const { return mirror.image(values.data()); }
  CallOptions options() const { return {.stream = mirror.stream()}; }
  Work start() { return group.all_reduce_async(data(), data(), values.size(), DType::kInt32, Op::kSum, options()); }
  // Without a Work.
  void call() { group.all_reduce(data(), data(), values.size(), DType::kInt32, Op::kSum, options()); }
  int32_t value() {
    mirror.to_host();
    mirror.synchronize();
    return values.back();
  }
  Communicator& group;
  Mirror mirror;
  std::pmr::vector<int32_t> values;
};

// Rank 1 makes one call, the others 20. On processes the streams wait, on threads the callers.
inline void fail_between_passes(Communicator& group) {
  void* const memory = group.allocate(1u << 20, Memory::kDevice);
  Sum sum(group, group.rank() == 0 ? memory : nullptr, 1000);
  if (group.rank() == 1) {
    sum.start().wait();
    group.abort("enough");
  } else {
    const Error error = error_of([&] {
      std::vector<Work> works;
      for (int i = 0; i < 20; ++i) works.push_back(sum.start());
      works.back().wait();
    });
    expect_error(error, ErrorCode::kAborted, "enough");
  }
  sum.value();  // the device goes on
}

// Rank 1 aborts with calls in flight. Every rank writes to its memory as soon as its own calls have failed; nothing
// that another rank has still in a stream may change it then.
inline void write_after_failure(Communicator& group) {
  const std::vector<int> all{0, 1, 2};
  Communicator second = group.new_group(all);  // goes on
  void* const memory = group.allocate(1u << 20, Memory::kDevice);
  Sum sum(group, memory, 200'000);
  group.barrier();
  std::vector<Work> works;
  const Error error = error_of([&] {
    for (int i = 0; i < 6; ++i) works.push_back(sum.start());
    works.front().wait();
    if (group.rank() == 1) group.abort("enough");
    while (true) sum.start().wait();
  });
  expect_error(error, ErrorCode::kAborted, "enough");
  for (Work& work : works) error_of([&] { work.wait(); });
  std::fill(sum.values.begin(), sum.values.end(), 1000 + group.rank());
  sum.mirror.to_device();
  sum.mirror.synchronize();
  second.barrier();
  expect(sum.value() == 1000 + group.rank() && sum.values.front() == 1000 + group.rank(),
         "memory has changed after its rank's calls had failed");
}

// Calls by the ring, over all memory and staged in turn, many of them under way.
inline void call_in_turn(Communicator& group) {
  Mirror mirror;
  constexpr size_t kCount = 30'000;
  std::pmr::vector<uint32_t> values(kCount, 1, &mirror), gathered(3 * kCount, 0, &mirror);
  mirror.to_device();
  void *const data = mirror.image(values.data()), *const all = mirror.image(gathered.data());
  const Algorithm kTurns[] = {Algorithm::kRing, Algorithm::kRegistered, Algorithm::kRing, Algorithm::kTree};
  Work last;
  for (int i = 0; i < 40; ++i) {
    const CallOptions options{.algorithm = kTurns[i % 4], .stream = mirror.stream()};
    const CallOptions other{.algorithm = kTurns[(i + 1) % 2], .stream = mirror.stream()};
    last = group.all_reduce_async(data, data, kCount, DType::kUint32, i % 4 == 0 ? Op::kSum : Op::kMax, options);
    group.all_gather(data, all, kCount, DType::kUint32, other);
  }
  last.wait();
  mirror.to_host();
  mirror.synchronize();
  uint32_t expected = 1;
  for (int i = 0; i < 10; ++i) expected *= 3;
  for (const uint32_t value : values) expect(value == expected, "the wrong sum");
  for (const uint32_t value : gathered) expect(value == expected, "the wrong value gathered");
}

}  // namespace rondo::testing
