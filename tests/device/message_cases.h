#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/device/island_cases.h"

// Messages on streams, for tests of processes and of threads: a program whose ranks were threads forks no processes.
namespace rondo::testing {

constexpr int64_t value_of(int rank, uint64_t index) {
  return (rank + int64_t{1}) * 1'000'000'000 + static_cast<int64_t>(index);
}

// A buffer with an image on the device. of: whose values it holds; -1: -1 everywhere.
struct DeviceBuffer {
  DeviceBuffer(Mirror& mirror, size_t count, int of) : values(count, -1, &mirror), device(mirror.image(values.data())) {
    for (size_t i = 0; i < count && of >= 0; ++i) values[i] = value_of(of, i);
  }
  // The message of so many elements is here, and nothing behind it.
  void expect_message(int from, uint64_t count) const {
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t expected = i < count ? value_of(from, i) : -1;
      expect(values[i] == expected, [&] {
        return "element " + std::to_string(i) + " is " + std::to_string(values[i]) + " instead of " +
               std::to_string(expected);
      });
    }
  }
  std::pmr::vector<int64_t> values;
  void* device;
};

// Sizes in elements of 8 bytes: nothing, eager, one piece, and several, the last of them short.
inline std::vector<uint64_t> message_counts() { return {0, 5, 20'000, 524'288, 1'600'001}; }

// Each rank sends to the next one, in batches; every buffer is longer than its message.
inline void ring_of_messages(Communicator& group) {
  const int next = (group.rank() + 1) % group.size(), before = (group.rank() + group.size() - 1) % group.size();
  for (const uint64_t count : message_counts()) {
    Mirror mirror;
    DeviceBuffer out(mirror, count + 1, group.rank()), in(mirror, count + 1000, -1);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    group.batch_begin();
    Work received = group.recv_async(in.device, in.values.size(), DType::kInt64, before, 3, options);
    Work sent = group.send_async(out.device, count, DType::kInt64, next, 3, options);
    group.batch_end_async();
    mirror.to_host();
    mirror.synchronize();
    in.expect_message(before, count);
    received.wait();
    sent.wait();
    const Message message = received.message();
    expect(message.peer == before && message.tag == 3 && message.bytes == 8 * count, "the wrong message");
    const Message both =
        group.sendrecv(out.device, count, next, in.device, in.values.size(), before, DType::kInt64, 4, options);
    expect(both.peer == before && both.tag == 4 && both.bytes == 8 * count, "sendrecv says another message");
    mirror.to_host();
    mirror.synchronize();
    in.expect_message(before, count);
  }
}

// The calls of a batch beside its messages: rank 0's receive stands before the collective that rank 1 makes first.
inline void messages_beside_collectives(Communicator& group) {
  Mirror mirror;
  DeviceBuffer out(mirror, 100'000, group.rank()), in(mirror, 100'000, -1), sum(mirror, 50, -1);
  std::fill(sum.values.begin(), sum.values.end(), 1);
  mirror.to_device();
  const CallOptions options{.stream = mirror.stream()};
  const int peer = group.rank() ^ 1;
  const bool alone = peer >= group.size();
  const auto reduce = [&](Op op) { group.all_reduce(sum.device, sum.device, 50, DType::kInt64, op, options); };
  group.batch_begin();
  if (!alone) group.recv(in.device, 100'000, DType::kInt64, peer, 1, options);
  reduce(Op::kSum);
  if (!alone) group.send(out.device, 100'000, DType::kInt64, peer, 1, options);
  reduce(Op::kMax);
  group.batch_end();
  mirror.to_host();
  mirror.synchronize();
  if (!alone) in.expect_message(peer, 100'000);
  for (const int64_t value : sum.values) expect(value == group.size(), "the wrong sum");
}

}  // namespace rondo::testing
