// A device that fails under a call, between two, or while ranks attach: who waits for it hears so soon and in words, on
// every rank, and nothing of the program's is used after its end.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/device_cases.h"

namespace rondo::testing {

TEST_CASE("a device that fails under a call: who waits hears of it within seconds, without a deadline") {
  if (on_a_gpu()) return;  // a GPU is not to fail
  // The stream comes to the call too late: its device has failed before. Afterwards it runs nothing more.
  for (const std::string what : {"kernel", "staged", "staged, on another device", "send", "receive"}) {
    CAPTURE(what);
    const int device = what == "staged, on another device" ? 1 : 0;  // of rank 0
    RankGroup ranks = what == "kernel" ? device_group(2) : staged_group(2);
    ranks.config.destroy_timeout_ms = 500;
    check_processes({ranks}, [&](Communicator& group) {
      const Mirror opens;
      group.attach_device();
      opens.driver().use((opens.device() + device) % 2);
      Sum buffer(group, nullptr, 1000);
      const auto start = [&] {
        const int other = 1 - group.rank();
        if (what == (group.rank() == 0 ? "send" : "receive"))
          return group.send_async(buffer.data(), 1000, DType::kInt32, other, 0, buffer.options());
        if (what == "send" || what == "receive")
          return group.recv_async(buffer.data(), 1000, DType::kInt32, other, 0, buffer.options());
        return buffer.start();
      };
      buffer.call();  // the first one on the device: waits for what is in its streams
      buffer.mirror.synchronize();
      const auto begin = Clock::now();
      const Error error = error_of([&] {
        if (group.rank() == 0) {
          buffer.mirror.driver().call_host([](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(300)); },
                                           nullptr, buffer.mirror.stream());
          std::thread([device] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            fake_function<void(int)>("fake_cuda_break")(device);
          }).detach();
        }
        Work work = start();
        work.wait();
        group.barrier();
      });
      const std::string failed = "device " + std::to_string(device) + " has failed: an illegal memory access";
      const std::string why = group.rank() == 0 ? failed : "rank 0";
      expect(error.message.find(why) != std::string::npos, error.message);
      expect(Clock::now() - begin < std::chrono::seconds(10), "it took longer than 10 s");
      if (group.rank() == 0) _exit(0);  // nothing can be given back
    });
  }
}

// Its stream refers to the call until it has passed it.
TEST_CASE("a device fails, and a call in a stream of another one ends when that has passed it") {
  if (on_a_gpu()) return;  // a GPU is not to fail
  RankGroup ranks = staged_group(2);
  ranks.config.destroy_timeout_ms = 500;
  check_processes({ranks}, [](Communicator& group) {
    Sum buffer(group, nullptr, 1000);
    group.attach_device();
    buffer.mirror.driver().use(1);
    Sum(group, nullptr, 1000).start().wait();
    buffer.mirror.driver().use(0);
    std::atomic<bool> goes_on{false};
    const auto sleep = [](void* over) {
      std::this_thread::sleep_for(std::chrono::seconds(2));  // longer than between two looks at the devices
      static_cast<std::atomic<bool>*>(over)->store(true);
    };
    if (group.rank() == 0) buffer.mirror.driver().call_host(sleep, &goes_on, buffer.mirror.stream());
    Work work = buffer.start();
    if (group.rank() == 0) fake_function<void(int)>("fake_cuda_break")(1);
    const Error error = error_of([&] { work.wait(); });
    expect_error(error, ErrorCode::kSystem, "device 1 has failed");
    if (group.rank() == 1) return;
    expect(goes_on, "the call has ended before its stream came to it");
    buffer.mirror.synchronize();
    _exit(0);  // what lies on device 1 cannot be given back
  });
}

// In the trial, in which the kernel of rank 0 waits for that of rank 1.
TEST_CASE("a device that fails while the ranks attach: attach_device() ends") {
  if (on_a_gpu()) return;  // a GPU is not to fail
  RankGroup ranks = device_group(2, "shm", {{"FAKE_CUDA_LATE_US", "2000000", 1}});
  ranks.config.destroy_timeout_ms = 500;
  check_processes({ranks}, [](Communicator& group) {
    const Mirror opens;
    std::thread breaks([&] {
      if (group.rank() != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      fake_function<void(int)>("fake_cuda_break")(0);
    });
    const auto begin = Clock::now();
    error_of([&] { group.attach_device(); });  // calls are staged, or it says that the device has failed
    expect(Clock::now() - begin < std::chrono::seconds(20), "it took longer than 20 s");
    breaks.join();
    group.barrier();
    if (group.rank() == 0) _exit(0);  // nothing can be given back
  });
}

// Its stream never tells the end of the call. Address sanitizer sees who looks at what is gone.
TEST_CASE("a device that fails under a call: its Work ends, though its communicator is gone") {
  if (on_a_gpu()) return;  // a GPU is not to fail
  for (const RankGroup& kind : both_ways(2)) {
    RankGroup ranks = kind;
    ranks.config.destroy_timeout_ms = 500;
    check_processes({ranks}, [](Communicator& group) {
      Work work;
      Sum buffer(group, nullptr, 100'000);
      {
        Communicator gone = group.dup();
        gone.attach_device();
        gone.barrier();
        if (group.rank() == 0) {
          buffer.mirror.driver().call_host([](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); },
                                           nullptr, buffer.mirror.stream());
          void* const data = buffer.data();
          work = gone.all_reduce_async(data, data, 100'000, DType::kInt32, Op::kSum, buffer.options());
          fake_function<void(int)>("fake_cuda_break")(0);
        }
      }
      if (group.rank() == 0) {
        const auto begin = Clock::now();
        expect(error_of([&] { work.wait(); }).code != ErrorCode::kOk, "no error");
        expect(Clock::now() - begin < std::chrono::seconds(10), "it took longer than 10 s");
      }
      group.barrier();
      if (group.rank() == 0) _exit(0);  // nothing can be given back
    });
  }
}

TEST_CASE("a device that fails between two calls: the next one says so, and the other ranks hear of it at once") {
  if (on_a_gpu()) return;  // a GPU is not to fail
  for (RankGroup ranks : both_ways(2)) {
    // What rank 1 has seen: the end of its first call, the error. The group itself cannot say: rank 0 may return from a
    // call that rank 1 is still in, and its failure ends that one.
    const OfAllProcesses<std::atomic<int>> seen;
    const auto await_seen = [&](int what) {
      const auto begin = Clock::now();
      while (seen->load() < what) {
        expect(Clock::now() - begin < std::chrono::seconds(20), "rank 1 does not come");
        std::this_thread::yield();
      }
    };
    ranks.config.destroy_timeout_ms = 500;
    check_processes({ranks}, [&](Communicator& group) {
      Sum buffer(group, nullptr, 1000);
      buffer.call();
      expect(buffer.value() == 2, "the wrong sum");
      if (group.rank() == 1) seen->store(1);
      if (group.rank() == 0) {
        await_seen(1);
        fake_function<void(int)>("fake_cuda_break")(0);
      }
      const auto begin = Clock::now();
      const Error error = error_of([&] {
        buffer.start().wait();
        group.barrier();
      });
      expect_error(error, ErrorCode::kSystem, "device 0 has failed: an illegal memory access");
      expect(Clock::now() - begin < std::chrono::seconds(3), "it took longer than 3 s");
      if (group.rank() == 1) return seen->store(2);
      await_seen(2);
      _exit(0);  // nothing can be given back
    });
  }
}

}  // namespace rondo::testing
