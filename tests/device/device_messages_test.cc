// Messages of device memory in the order of streams: send_async and recv_async return when they are in the stream,
// a short one leaves the rest of its buffer alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "tests/device/device_cases.h"

namespace rondo::testing {
namespace {

// A buffer of the device that the host cannot touch, and that no mirror gives back.
void* device_memory(const Mirror& mirror, size_t bytes) {
  void* data = nullptr;
  expect(mirror.driver().allocate(mirror.device(), bytes, &data) == 0, "no device memory");
  return data;
}

}  // namespace

TEST_CASE("a ring of messages, batched and by sendrecv, over shared memory and TCP; with several queues") {
  for (const int world : {1, 2, 3}) check_processes(both_transports(world), ring_of_messages);
  check_processes({device_group(2, "tcp", {{"FAKE_CUDA_QUEUES", "4"}})}, ring_of_messages);
}

TEST_CASE("without peer access pieces are copied to the host while others are copied back") {
  if (on_a_gpu()) return;                      // a GPU does not count
  static constexpr uint64_t kCount = 3 << 20;  // 6 pieces of 4 MiB
  static constexpr int kBytesPerUs = 100;      // 40 ms a piece: a sanitizer folds one in 30
  const Settings settings{
      {"FAKE_CUDA_QUEUES", "4"}, {"FAKE_CUDA_SHARES", "0"}, {"FAKE_CUDA_COPY_MBPS", std::to_string(kBytesPerUs)}};
  check_processes({device_group(2, "shm", settings)}, [](Communicator& group) {
    Mirror mirror;
    DeviceBuffer data(mirror, kCount, group.rank());
    mirror.to_device();
    mirror.synchronize();
    const CallOptions options{.stream = mirror.stream()};
    // On a loaded machine the other rank's pieces may come after the own ones have been copied: until all ranks have
    // seen it once. One after the other the copies take twice as long at least, however often they are tried.
    const double one_way = kCount * 8.0 / kBytesPerUs;
    double best = 1e9;
    std::vector<int32_t> seen{0};
    for (int i = 0; i < 50 && seen[0] < group.size(); ++i) {
      const auto begin = Clock::now();
      group.all_reduce(data.device, data.device, kCount, DType::kInt64, Op::kMax, options);
      mirror.synchronize();
      best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      seen = {best < 1.5 * one_way ? 1 : 0};
      group.all_reduce(seen);
    }
    expect(best < 1.5 * one_way, "all_reduce takes " + std::to_string(best / one_way) + " of its copies one way");
    mirror.to_host();
    data.expect_message(1, kCount);
  });
}

TEST_CASE("a receive in one stream does not hold up a send in another: no kernel is loaded at its first launch") {
  check_processes({device_group(2, "tcp", {{"FAKE_CUDA_QUEUES", "4"}})}, [](Communicator& group) {
    Mirror mirror, other;
    DeviceBuffer data(other, 1000, group.rank()), in(mirror, 1000, -1);
    mirror.to_device();
    other.to_device();
    const int peer = 1 - group.rank();
    group.recv_async(in.device, 1000, DType::kInt64, peer, 1, {.stream = mirror.stream()});
    group.send(data.device, 1000, DType::kInt64, peer, 1, {.stream = other.stream()});
    mirror.to_host();
    in.expect_message(peer, 1000);
  });
}

TEST_CASE("a batch of messages and collectives") {
  for (const int world : {2, 3}) check_processes(both_transports(world), messages_beside_collectives);
}

TEST_CASE("a batch sends what the stream had before it, whatever its collectives write") {
  check_processes(both_transports(2), [](Communicator& group) {
    constexpr uint64_t kCount = 700'000;  // two pieces
    Mirror mirror;
    DeviceBuffer data(mirror, kCount, group.rank()), in(mirror, kCount, -1);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    const int peer = 1 - group.rank();
    group.batch_begin();
    group.all_reduce(data.device, data.device, kCount, DType::kInt64, Op::kSum, options);
    group.send(data.device, kCount, DType::kInt64, peer, 0, options);
    group.recv(in.device, kCount, DType::kInt64, peer, 0, options);
    group.batch_end();
    mirror.to_host();
    in.expect_message(peer, kCount);
    for (const uint64_t i : {uint64_t{0}, kCount - 1}) {
      expect(data.values[i] == value_of(0, i) + value_of(1, i), "the wrong sum beside messages");
    }
  });
}

TEST_CASE("destroy() waits for a send that has returned and not gone") {
  check_processes({device_group(2, "tcp")}, [](Communicator& group) {
    constexpr uint64_t kCount = 1'000'000;
    Mirror mirror;
    DeviceBuffer data(mirror, kCount, group.rank()), copy(mirror, kCount, -1);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    if (group.rank() == 0) {
      group.send(data.device, kCount, DType::kInt64, 1, 1, options);
      return group.destroy();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the send cannot have gone before it is received
    group.recv(copy.device, kCount, DType::kInt64, 0, 1, options);
    mirror.to_host();
    copy.expect_message(0, kCount);
  });
}

TEST_CASE("send and receive return at once; what the stream had before is sent, what comes later finds the message") {
  check_processes({device_group(2, "tcp")}, [](Communicator& group) {
    Mirror mirror;
    const Mirror other;
    DeviceBuffer data(mirror, 1'000'000, group.rank()), copy(mirror, 1'000'000, -1);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    group.attach_device();
    if (group.rank() == 0) {
      // The receiver answers when it has returned from its call, whose message is not sent before.
      Work receive = group.recv_async(copy.device, 1'000'000, DType::kInt64, 1, 7, options);
      group.send(data.values.data(), 0, DType::kInt64, 1, 1);
      receive.wait_on(other.stream());
      // On the other stream: the message goes back.
      group.send_async(copy.device, 1'000'000, DType::kInt64, 1, 8, {.stream = other.stream()});
      receive.wait();
    } else {
      group.recv(data.values.data(), 0, DType::kInt64, 0, 1);
      Work sent = group.send_async(data.device, 1'000'000, DType::kInt64, 0, 7, options);
      group.recv_async(copy.device, 1'000'000, DType::kInt64, 0, 8, options);
      sent.wait();
    }
    mirror.to_host();
    copy.expect_message(1, 1'000'000);
    other.synchronize();
    group.barrier();
  });
}

TEST_CASE("host memory on the other side, any source, and many messages of one pair in order, of which one is short") {
  check_processes(both_transports(2), [](Communicator& group) {
    Mirror mirror;
    DeviceBuffer out(mirror, 1'000'000, 0), in(mirror, 1'000'000, -1);
    std::vector<int64_t> host(1'000'000);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    group.attach_device();
    if (group.rank() == 0) {
      group.send(out.device, 1'000'000, DType::kInt64, 1, 1, options);
      for (uint64_t i = 0; i < 200; ++i) {
        group.send(static_cast<int64_t*>(out.device) + i, 1, DType::kInt64, 1, 2, options);
      }
      mirror.synchronize();
      group.send(out.values.data(), 1'000'000, DType::kInt64, 1, 3);
      group.send(out.device, 10, DType::kInt64, 1, 4, options);
    } else {
      group.recv(host.data(), 1'000'000, DType::kInt64, 0, 1);
      expect(host[999'999] == value_of(0, 999'999), "the wrong message in host memory");
      for (uint64_t i = 0; i < 200; ++i) {
        group.recv_async(static_cast<int64_t*>(in.device) + i, 1, DType::kInt64, kAnySource, 2, options);
      }
      mirror.to_host();
      in.expect_message(0, 200);
      group.recv(in.device, 1'000'000, DType::kInt64, kAnySource, kAnyTag, options);
      mirror.to_host();
      in.expect_message(0, 1'000'000);
      expect(group.recv(in.device, 6'000, DType::kInt64, 0, 4, options).bytes == 80, "recv says another length");
      mirror.to_host();
      in.expect_message(0, 1'000'000);  // the rest is the message before
    }
    group.barrier();
  });
}

TEST_CASE("a message that is too long fails both sides, and touches nothing") {
  check_processes({device_group(2, "tcp")}, [](Communicator& group) {
    Mirror mirror;
    DeviceBuffer data(mirror, 1000, group.rank() == 0 ? 0 : -1);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    const Error error = error_of([&] {
      Work work = group.rank() == 0 ? group.send_async(data.device, 1000, DType::kInt64, 1, 0, options)
                                    : group.recv_async(data.device, 999, DType::kInt64, 0, 0, options);
      work.wait();
      group.barrier();
    });
    expect_error(error, ErrorCode::kMismatch, "8000 bytes");
    mirror.to_host();
    if (group.rank() == 1) data.expect_message(0, 0);
  });
}

// cudaFree waits for what is in the streams: a call that all make ends well, another one by its deadline.
TEST_CASE("a buffer that is freed while it is in flight") {
  for (const bool comes : {true, false}) {
    CAPTURE(comes);
    check_processes(both_ways(2), [&](Communicator& group) {
      const Mirror mirror;
      group.attach_device();
      void* const data = device_memory(mirror, 4000);
      const CallOptions options{.timeout = std::chrono::milliseconds(comes ? 60'000 : 300), .stream = mirror.stream()};
      Work work;
      if (group.rank() == 0) {
        work = group.all_reduce_async(data, data, 1000, DType::kInt32, Op::kSum, options);
        if (comes) group.send(&work, 0, DType::kInt8, 1);
        expect(mirror.driver().release(mirror.device(), data) == 0, "the buffer cannot be freed");
      } else if (comes) {
        group.recv(&work, 0, DType::kInt8, 0);
        work = group.all_reduce_async(data, data, 1000, DType::kInt32, Op::kSum, options);
      } else {
        while (!group.error()) std::this_thread::yield();
        return;
      }
      expect_error(error_of([&] { work.wait(); }), comes ? ErrorCode::kOk : ErrorCode::kTimeout, "");
    });
  }
}

TEST_CASE("a buffer that is freed before the end of its batch is seen") {
  check_processes({device_group(2)}, [](Communicator& group) {
    const Mirror mirror;
    const CallOptions options{.stream = mirror.stream()};
    group.attach_device();
    for (const bool message : {false, true}) {
      void* const data = device_memory(mirror, 4000);
      group.batch_begin();
      if (message) {
        group.send_async(data, 1000, DType::kInt32, 1 - group.rank(), 0, options);
      } else {
        group.all_reduce(data, data, 1000, DType::kInt32, Op::kSum, options);
      }
      mirror.driver().release(mirror.device(), data);
      expect_error(error_of([&] { group.batch_end(); }), ErrorCode::kInvalid, "is host memory");
      expect(!group.error(), "the communicator has failed");
    }
    group.barrier();
  });
}

}  // namespace rondo::testing
