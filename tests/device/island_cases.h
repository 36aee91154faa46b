#pragma once

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
  Sum(Communicator& of, void* registered, size_t count)
      : group(of), mirror(registered, 1u << 20), values(count, 1, &mirror) {
    mirror.to_device();
    mirror.synchronize();
  }
  Work start() {
    void* const data = mirror.image(values.data());
    return group.all_reduce_async(data, data, values.size(), DType::kInt32, Op::kSum, {.stream = mirror.stream()});
  }
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

}  // namespace rondo::testing
