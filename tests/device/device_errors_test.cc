// What goes wrong with calls and messages on device memory is said in words before anything happens, or ends the
// streams' waits on every rank; the device goes on.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/device_cases.h"
#include "tests/support/eventually.h"

namespace rondo::testing {
namespace {

void expect_sum_on_host(Communicator& group) {
  std::vector<int32_t> values(10, 1);
  group.all_reduce(values);
  expect(values[9] == group.size(), "the communicator does not go on");
}

// One rank's driver, or its device, cannot be used: all hear of it, and calls on host memory go on.
void expect_refused(RankGroup ranks, int at_fault, const std::string& why) {
  check_processes({std::move(ranks)}, [&](Communicator& group) {
    const std::string text = group.rank() == at_fault ? why : "rank " + std::to_string(at_fault);
    expect_error(error_of([&] { group.attach_device(); }), ErrorCode::kUnsupported, text);
    expect_sum_on_host(group);
  });
}

// How a rank that others wait for ends their wait.
struct End {
  const char* how;
  ErrorCode code;
  const char* text;
};
constexpr End kEnds[] = {{"abort", ErrorCode::kAborted, "rank 1"},
                         {"timeout", ErrorCode::kTimeout, ""},
                         {"death", ErrorCode::kPeerLost, "rank 1"},
                         {"destroy", ErrorCode::kPeerLeft, "rank 1"}};
constexpr int kBegun = 99;  // the tag of the message that rank 0 has begun to wait

// Rank 1 does so when rank 0 has made its call: both have attached.
void end_wait(Communicator& group, const std::string& how) {
  char begun = 0;
  group.recv(&begun, 1, DType::kInt8, 0, kBegun);
  if (how == "death") _exit(0);
  if (how == "abort") group.abort("enough");
  if (how == "destroy") group.destroy();
  while (how == "timeout" && !group.error()) std::this_thread::yield();
}

// An operation of the program's: until it is over, its rank looks at no call behind its own.
struct Hold {
  std::function<bool()> over;
  std::atomic<bool> begun{false};
  static void fold(const void*, void*, size_t, void* hold) {
    static_cast<Hold*>(hold)->begun = true;
    eventually(static_cast<Hold*>(hold)->over);
  }
};

}  // namespace

TEST_CASE("a caller's mistakes: nothing happens, and the communicator goes on") {
  check_processes({device_group(2)}, [](Communicator& group) {
    Sum buffer(group, nullptr, 100);
    void* const data = buffer.data();
    void* const stream = buffer.mirror.stream();
    const auto call = [&](const void* input, void* output, void* on) {
      return error_of([&] { group.all_reduce(input, output, 100, DType::kInt32, Op::kSum, {.stream = on}); });
    };
    group.attach_device();
    std::vector<int32_t> host(100, 1);
    expect_error(call(host.data(), host.data(), stream), ErrorCode::kInvalid, "is host memory");
    expect_error(call(data, host.data(), stream), ErrorCode::kInvalid, "output");
    expect_error(call(host.data(), data, stream), ErrorCode::kInvalid, "input");
    expect_error(error_of([&] { group.all_reduce(data, data, 100, DType::kInt32); }), ErrorCode::kInvalid,
                 "give CallOptions::stream");
    expect_error(error_of([&] { group.send(data, 1, DType::kInt32, 0); }), ErrorCode::kInvalid,
                 "give CallOptions::stream");
    expect_error(call(nullptr, nullptr, stream), ErrorCode::kInvalid, "null");
    void* freed = nullptr;
    const int own = buffer.mirror.device(), other = 1 - own;
    buffer.mirror.driver().allocate(own, 400, &freed);
    buffer.mirror.driver().release(own, freed);
    expect_error(call(freed, freed, stream), ErrorCode::kInvalid, "is host memory");
    if (DeviceStream elsewhere = nullptr;
        buffer.mirror.driver().make_stream(other, &elsewhere) == 0) {  // a GPU may be alone
      expect_error(
          call(data, data, elsewhere), ErrorCode::kInvalid,
          "memory of device " + std::to_string(own) + ", and the stream is of device " + std::to_string(other));
      buffer.mirror.driver().destroy_stream(elsewhere);
    }
    for (const auto& host_call : std::vector<std::function<void()>>{
             [&] { group.send_async(data, 1, DType::kInt32, 0); }, [&] { group.recv_async(data, 1, DType::kInt32, 0); },
             [&] { group.sendrecv(data, 1, 0, host.data(), 1, 0, DType::kInt32); },
             [&] {
               group.all_reduce_many(std::vector<TensorRef>{{data, data, 1, DType::kInt32}});
             }}) {
      expect_error(error_of(host_call), ErrorCode::kInvalid, "give CallOptions::stream");
      group.batch_begin();
      expect_error(error_of(host_call), ErrorCode::kInvalid, "give CallOptions::stream");
      group.batch_abandon();
    }
    expect_error(error_of([&] { group.send_async(host.data(), 1, DType::kInt32, 0, 0, {.stream = stream}); }),
                 ErrorCode::kInvalid, "is host memory");
    expect_error(error_of([&] { group.recv_async(host.data(), 1, DType::kInt32, 0, 0, {.stream = stream}); }),
                 ErrorCode::kInvalid, "is host memory");
    expect_error(error_of([&] {
                   group.all_reduce(data, data, 100, DType::kFloat32, Op::kSum,
                                    {.wire = {.format = WireFormat::kBfloat16}, .stream = stream});
                 }),
                 ErrorCode::kUnsupported, "no wire format (bfloat16");
    group.batch_begin();
    group.barrier();
    expect_error(call(data, data, stream), ErrorCode::kInvalid, "calls with a stream and calls without one");
    group.batch_abandon();
    group.batch_begin();
    expect_error(call(host.data(), host.data(), stream), ErrorCode::kInvalid, "is host memory");
    expect_error(call(data, data, stream), ErrorCode::kOk, "");
    expect_error(error_of([&] { group.barrier(); }), ErrorCode::kInvalid, "calls with a stream and calls");
    expect_error(error_of([&] { group.send(host.data(), 1, DType::kInt32, 0); }), ErrorCode::kInvalid,
                 "calls with a stream and calls");
    expect_error(call(data, data, stream), ErrorCode::kOk, "");
    expect_error(error_of([&] { group.batch_end(); }), ErrorCode::kInvalid, "overlap");
    Work on_host = group.barrier_async();
    expect_error(error_of([&] { on_host.wait_on(stream); }), ErrorCode::kInvalid, "it runs on no stream");
    on_host.wait();
    buffer.call();
    expect(buffer.value() == 2, "the wrong sum after mistakes");
    expect_sum_on_host(group);
  });
}

// Before the communicator is attached, too.
TEST_CASE("a stream that is captured, where calls are staged: nothing happens, and the capture goes on") {
  check_processes({staged_group(2)}, [](Communicator& group) {
    Sum buffer(group, nullptr, 100);
    const auto capture = fake_function<bool(void*, int)>("fake_cuda_capture");
    if (capture == nullptr) return;  // a GPU: no such function
    void* const data = buffer.data();
    const TensorRef tensor{data, data, 100, DType::kInt32};
    const CallOptions options = buffer.options();
    for (int round = 0; round < 2; ++round) {
      capture(buffer.mirror.stream(), cuda::kCaptureGlobal);
      expect_error(error_of([&] { buffer.call(); }), ErrorCode::kUnsupported,
                   "all_reduce on rank " + std::to_string(group.rank()) + ": the stream is being captured");
      expect_error(error_of([&] { group.all_reduce_many(std::vector{tensor}, Op::kSum, options); }),
                   ErrorCode::kUnsupported, "all_reduce on rank");
      expect_error(error_of([&] { group.send(data, 1, DType::kInt32, 0, 0, options); }), ErrorCode::kUnsupported,
                   "send on rank");
      expect(capture(buffer.mirror.stream(), -1), "the capture is spoilt");
      buffer.call();
      buffer.mirror.synchronize();
    }
    expect(!group.error(), "the communicator has failed");
  });
}

TEST_CASE("no driver, or no device: all ranks hear of it, and calls on host memory go on") {
  RankGroup missing = device_group(2);
  missing.config.device_library = "/nowhere/libcuda.so.1";
  check_processes({missing}, [](Communicator& group) {
    expect_error(error_of([&] { group.attach_device(); }), ErrorCode::kUnsupported, "RONDO_DEVICE_LIBRARY");
    expect_sum_on_host(group);
  });
  expect_refused(device_group(2, "auto", {{"FAKE_CUDA_COUNT", "0", 1}, {"CUDA_VISIBLE_DEVICES", "-1", 1}}), 1,
                 "sees no device");
}

TEST_CASE("a driver that is too old, or lacks a function, or a device that is too old: refused on that rank") {
  if (on_a_gpu()) return;
  expect_refused(device_group(2, "auto", {{"FAKE_CUDA_VERSION", "12030", 1}}), 1, "is a driver of CUDA 12.3; CUDA 1");
  expect_refused(device_group(2, "auto", {{"FAKE_CUDA_LACKS", "cuMemMap", 1}}), 1, "has no cuMemMap");
  expect_refused(device_group(2, "auto", {{"FAKE_CUDA_MAJOR", "7", 0}}), 0, "compute capability 7.0");
}

TEST_CASE("different calls: both are shown, and the streams go on") {
  check_processes({device_group(2)}, call_differently);
}

// Rank 0 sees both ends in one look; rank 1 looks once rank 0 has judged the first one.
TEST_CASE("different calls behind equal ones: these end well, though the kernels of both are over") {
  const OfAllProcesses<std::atomic<bool>> judged;
  check_processes({device_group(2)}, [&](Communicator& group) {
    Sum sum(group, nullptr, 100);
    group.attach_device();
    std::atomic<bool> over{false};
    Hold hold{[&] { return group.rank() == 0 ? over.load() : judged->load(); }};
    std::thread holds([&] {
      const uint8_t in[2] = {};
      uint8_t out = 0;
      CallOptions options{.algorithm = Algorithm::kRing};  // each rank folds, and needs nothing of the others then
      options.user = {Hold::fold, &hold, 1, true};
      error_of([&] { group.reduce_scatter(in, &out, 1, DType::kUint8, Op::kUser, options); });
    });
    const bool held = eventually([&] { return hold.begun.load(); });
    Work equal = sum.start(), different = sum.start(group.rank() == 0 ? Op::kSum : Op::kMax);
    sum.mirror.synchronize();
    over = true;
    const Error first = error_of([&] { equal.wait(); });
    if (group.rank() == 0) judged->store(true);
    const Error second = error_of([&] { different.wait(); });
    holds.join();
    expect(held, "the kernels have been looked at before");
    expect(group.rank() == 1 || first.ok(), first.message);
    expect_error(second, ErrorCode::kMismatch);
  });
}

TEST_CASE("one rank calls with host memory: a mismatch") {
  check_processes({device_group(2)}, [](Communicator& group) {
    group.attach_device();
    Sum buffer(group, nullptr, 100);
    std::vector<int32_t> host(100, 1);
    const Error error = error_of([&] {
      if (group.rank() == 0) group.all_reduce(host);
      buffer.start().wait();
    });
    expect_error(error, ErrorCode::kMismatch, "on device memory");
    buffer.mirror.synchronize();
  });
}

TEST_CASE("abort, a deadline, a rank that dies and one that leaves end the streams' waits, in calls and receives") {
  for (const End& end : kEnds) {
    for (const bool receives : {false, true}) {
      CAPTURE(std::string(end.how));
      CAPTURE(receives);
      check_processes({device_group(2, receives ? "tcp" : "auto")}, [&](Communicator& group) {
        Sum buffer(group, nullptr, 4'000'000);
        group.attach_device();
        if (group.rank() == 1) return end_wait(group, end.how);
        const CallOptions options{.timeout = std::chrono::milliseconds(end.code == ErrorCode::kTimeout ? 300 : 60'000),
                                  .stream = buffer.mirror.stream()};
        const auto since = Clock::now();
        const Error error = error_of([&] {
          Work work = receives ? group.recv_async(buffer.data(), 4'000'000, DType::kInt32, 1, 0, options)
                               : buffer.start(Op::kSum, options);
          char begun = 0;
          group.send(&begun, 1, DType::kInt8, 1, kBegun);
          work.wait();
        });
        expect_error(error, end.code, *end.text == 0 && !receives ? "have not made the call: 1" : end.text);
        expect(Clock::now() - since < std::chrono::seconds(10), "the wait has not ended in time");
        buffer.mirror.to_host();  // the device goes on
        expect(!receives || buffer.value() == 1, "a message that has not come has changed memory");
      });
    }
  }
}

TEST_CASE("one rank has no host memory to lock for a call, or a message: the other one does not wait for it") {
  if (on_a_gpu()) return;  // a GPU has more
  for (const bool message : {false, true}) {
    CAPTURE(message);
    check_processes({staged_group(2)}, [&](Communicator& group) {
      Sum buffer(group, nullptr, 100'000);
      group.attach_device();
      const auto start = [&] {
        group.barrier();  // rank 0 is out of attach_device(); this may end by rank 1's failure
        if (group.rank() == 1) setenv("FAKE_CUDA_LOCKABLE", "0", 1);
        if (!message) return buffer.start();
        if (group.rank() == 1) return group.send_async(buffer.data(), 100'000, DType::kInt32, 0, 0, buffer.options());
        return group.recv_async(buffer.data(), 100'000, DType::kInt32, 1, 0, buffer.options());
      };
      const auto begin = Clock::now();
      const Error error = error_of([&] { start().wait(); });
      expect_error(error, ErrorCode::kSystem, "locking host memory failed: out of memory");
      expect(group.rank() == 1 || error.message.find("rank 1") != std::string::npos, error.message);
      expect(Clock::now() - begin < std::chrono::seconds(10), "it took longer than 10 s");
      buffer.mirror.synchronize();
    });
  }
}

// Nothing could wait for its end.
TEST_CASE("a stream of one rank takes no event: its call fails on all ranks") {
  if (on_a_gpu()) return;  // a GPU's take them
  check_processes(both_ways(2), [](Communicator& group) {
    Sum buffer(group, nullptr, 1000);
    group.attach_device();
    const Error error = error_of([&] {
      group.barrier();  // which ends by the failure where this rank is late
      if (group.rank() == 1) setenv("FAKE_CUDA_RECORDS", "0", 1);
      buffer.start().wait();
      group.barrier();
    });
    expect_error(error, ErrorCode::kSystem, "putting an event into the stream failed: out of memory");
    buffer.mirror.synchronize();
  });
}

TEST_CASE("a driver whose streams cannot wait for memory: what is staged waits on the host, kernels as ever") {
  if (on_a_gpu()) return;
  const Settings none{{"FAKE_CUDA_MEMORY_OPERATIONS", "0"}};
  for (const Taken taken : {Taken::kAsKernels, Taken::kStaged}) {
    const RankGroup ranks = taken == Taken::kStaged ? staged_group(3, "auto", none) : device_group(3, "auto", none);
    check_processes({ranks}, [&](Communicator& group) {
      run_on_device(group, all_shapes({3, {1, 1237}, {1}}), BufferKind::kOddRegistered, taken);
    });
    check_processes({ranks}, ring_of_messages);
  }
}

TEST_CASE("an abort ends a call that waits for room in its stream") {
  // Calls that rank 0 has put into its stream; rank 1 makes none.
  const OfAllProcesses<std::atomic<int>> calls;
  for (const RankGroup& ranks : both_ways(2)) {
    calls->store(0);
    check_processes({ranks}, [&](Communicator& group) {
      Sum buffer(group, nullptr, 100);
      group.attach_device();
      if (group.rank() == 1) {
        // Until rank 0 has made no call for a while: nothing says that it waits for room.
        for (int seen = -1; seen <= 0 || seen != calls->load();) {
          seen = calls->load();
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        return group.abort("enough");
      }
      const Error error = error_of([&] {
        for (int i = 0; i < 1000; ++i) {
          buffer.call();
          calls->fetch_add(1);
        }
      });
      expect_error(error, ErrorCode::kAborted, "enough");
      buffer.mirror.synchronize();  // the stream's waits have ended
    });
  }
}

TEST_CASE("a deadline begins when the stream comes to the call") {
  check_processes(both_ways(2), [](Communicator& group) {
    Sum sum(group, nullptr, 1000), in(group, nullptr, 1000);
    const int peer = 1 - group.rank();
    const CallOptions options{.timeout = std::chrono::seconds(2), .stream = sum.mirror.stream()};
    group.attach_device();
    // The stream is busy for longer than the deadline.
    sum.mirror.driver().call_host([](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(2500)); }, nullptr,
                                  sum.mirror.stream());
    sum.call(Op::kSum, options);
    group.send_async(sum.data(), 1000, DType::kInt32, peer, 0, options);
    Work received = group.recv_async(in.data(), 1000, DType::kInt32, peer, 0, options);
    expect(sum.value() == 2, "the wrong sum");
    received.wait();
    expect(in.value() == 2, "the wrong message");
  });
}

TEST_CASE("destroy with calls or messages in flight: they end, and their memory is the program's") {
  for (const bool receives : {false, true}) {
    CAPTURE(receives);
    check_processes({device_group(2, receives ? "tcp" : "auto")}, [&](Communicator& group) {
      Sum buffer(group, nullptr, 4'000'000);
      group.attach_device();
      std::vector<Work> works;
      if (group.rank() == 0) {
        for (int i = 0; i < 10; ++i) {
          works.push_back(receives ? group.recv_async(buffer.data(), 4'000'000, DType::kInt32, 1, i, buffer.options())
                                   : buffer.start());
        }
        group.send(&works, 0, DType::kInt8, 1, kBegun);
      } else {
        group.recv(&works, 0, DType::kInt8, 0, kBegun);
      }
      group.destroy();
      for (Work& work : works) expect(work.done() && work.error().has_value(), "a call goes on after destroy()");
      buffer.mirror.synchronize();
    });
  }
}

}  // namespace rondo::testing
