// Every collective on device memory gives the reference result, in the order of its stream: over a device that is made
// of threads and memory that the host cannot touch, with one queue for all streams.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/device/device_cases.h"

namespace rondo::testing {
namespace {

void expect_not_done(Work& work) {
  try {
    work.wait();
  } catch (const Exception& e) {
    return expect(e.code() == ErrorCode::kInvalid, "waiting before the end of the batch: another error");
  }
  expect(false, "a batch was done before its end");
}

}  // namespace

TEST_CASE("every collective, uneven ones too, processes over shared memory and TCP") {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int world : {1, 2, 3, 4}) {
      CAPTURE(transport);
      CAPTURE(world);
      const auto cases = all_shapes({world, {0, 1, uint64_t(world + 1), 1237}, {world / 2}});
      CHECK(run_processes(device_group(world, transport), [&](Communicator& group) { run_on_device(group, cases); }) ==
            "");
    }
  }
}

TEST_CASE("8 processes") {
  const auto cases = all_shapes({8, {777}, {3}});
  CHECK(run_processes(device_group(8, "auto"), [&](Communicator& group) { run_on_device(group, cases); }) == "");
}

TEST_CASE("every dtype with every op") {
  const auto cases = all_reductions(2);
  CHECK(run_processes(device_group(2, "shm"), [&](Communicator& group) { run_on_device(group, cases); }) == "");
}

TEST_CASE("buffers of several pieces") {
  // 11 MB: three pieces of all_reduce, more of those with a block a rank.
  std::vector<CollectiveCase> cases;
  for (CollectiveCase what : all_shapes({2, {2'800'001}, {1}})) {
    if (!what.counts.empty() || what.misalign != 0 || what.in_place) continue;
    what.dtype = DType::kFloat32;
    cases.push_back(what);
  }
  for (const char* transport : {"shm", "tcp"}) {
    CAPTURE(transport);
    CHECK(run_processes(device_group(2, transport), [&](Communicator& group) { run_on_device(group, cases); }) == "");
  }
}

TEST_CASE("uneven calls and lists of several pieces, staged") {
  for (const char* transport : {"shm", "tcp"}) {
    CAPTURE(transport);
    const RankGroup ranks = staged_group(3, transport);
    std::vector<CollectiveCase> cases;
    for (CollectiveCase what : all_shapes({3, {1'100'003}, {1}})) {
      if (what.counts.empty() || what.misalign != 0) continue;
      what.dtype = DType::kFloat32;
      cases.push_back(what);
    }
    CHECK(!cases.empty());
    CHECK(run_processes(ranks, [&](Communicator& group) { run_on_device(group, cases); }) == "");
    CHECK(run_processes(ranks, [](Communicator& group) {
            Mirror mirror;
            std::pmr::vector<float> large(2'500'001, 1.0f, &mirror), small(7, 1.0f, &mirror);
            std::pmr::vector<int64_t> whole(300'000, 2, &mirror);
            mirror.to_device();
            const auto ref = [&](auto& values, DType dtype) {
              return TensorRef{mirror.image(values.data()), mirror.image(values.data()), values.size(), dtype};
            };
            const std::vector<TensorRef> refs{ref(small, DType::kFloat32), ref(whole, DType::kInt64),
                                              ref(large, DType::kFloat32)};
            for (int i = 0; i < 2; ++i) group.all_reduce_many(refs, Op::kSum, {.stream = mirror.stream()});
            mirror.to_host();
            mirror.synchronize();
            for (const float value : large) expect(value == 9.0f, "the wrong sum in a list");
            for (const float value : small) expect(value == 9.0f, "the wrong sum in a list");
            for (const int64_t value : whole) expect(value == 18, "the wrong sum in a list");
          }) == "");
  }
}

TEST_CASE("calls wait for what the stream had before, and what comes later waits for them") {
  // Many calls under way at once, on two streams, each on the result of the one before; the host waits once.
  CHECK(run_processes(device_group(3, "shm"), [](Communicator& group) {
          Mirror mirror;
          DeviceStream other = nullptr;
          mirror.driver().make_stream(mirror.device(), &other);
          std::pmr::vector<int64_t> values(1000, group.rank() + 1, &mirror);
          std::pmr::vector<int64_t> second(1000, 1, &mirror);
          mirror.to_device();
          int64_t* const on_device = mirror.image_of(values.data());
          Work last;
          for (int i = 0; i < 20; ++i) {
            group.all_reduce(on_device, on_device, 1000, DType::kInt64, Op::kMax, {.stream = mirror.stream()});
            last = group.all_reduce_async(on_device, on_device, 1000, DType::kInt64, Op::kSum,
                                          {.stream = mirror.stream()});
          }
          // The other stream goes on after the last of them.
          last.wait_on(other);
          int64_t* const second_on_device = mirror.image_of(second.data());
          const DeviceCopy copy{second_on_device, on_device, 8000, 8000, 8000, 1};
          mirror.driver().copy(copy, other);
          group.all_reduce(second_on_device, second_on_device, 1000, DType::kInt64, Op::kMin, {.stream = other});
          mirror.driver().synchronize(other);
          mirror.to_host();
          mirror.synchronize();
          last.wait();
          int64_t expected = 3;
          for (int i = 0; i < 20; ++i) expected *= 3;
          expect(values.front() == expected && values.back() == expected, "the wrong sum in the first stream");
          expect(second.front() == expected && second.back() == expected, "the wrong value in the second stream");
          mirror.driver().destroy_stream(other);
        }) == "");
}

TEST_CASE("more calls than a stream holds: the caller waits for room, and all of them are done") {
  CHECK(run_processes(device_group(2, "shm"), [](Communicator& group) {
          Mirror mirror;
          std::pmr::vector<int32_t> values(16, 1, &mirror);
          mirror.to_device();
          int32_t* const on_device = mirror.image_of(values.data());
          for (int i = 0; i < 300; ++i) {
            group.all_reduce(on_device, on_device, 16, DType::kInt32, Op::kMax, {.stream = mirror.stream()});
          }
          mirror.to_host();
          mirror.synchronize();
          expect(values[15] == 1, "the wrong maximum");
        }) == "");
}

TEST_CASE("lists") {
  for (const char* transport : {"shm", "tcp"}) {
    CHECK(run_processes(device_group(2, transport), [](Communicator& group) {
            Mirror mirror;
            std::vector<std::pmr::vector<float>> tensors;
            for (const size_t count : {3, 0, 1000, 70'000, 1})
              tensors.emplace_back(count, group.rank() + 1.0f, &mirror);
            mirror.to_device();
            std::vector<TensorRef> refs;
            for (auto& tensor : tensors) {
              void* const data = mirror.image(tensor.data());
              refs.push_back({data, data, tensor.size(), DType::kFloat32});
            }
            group.all_reduce_many(refs, Op::kSum, {.stream = mirror.stream()});
            Work work = group.all_reduce_many_async(refs, Op::kMax, {.stream = mirror.stream()});
            mirror.to_host();
            mirror.synchronize();
            work.wait();
            for (const auto& tensor : tensors) {
              for (const float value : tensor) expect(value == 3.0f, "the wrong sum in a list");
            }
          }) == "");
  }
}

TEST_CASE("batches: calls are put into their streams at the end, in their order") {
  for (const char* transport : {"shm", "tcp"}) {
    CAPTURE(transport);
    CHECK(run_processes(device_group(3, transport), [](Communicator& group) {
            Mirror mirror;
            DeviceStream other = nullptr;
            mirror.driver().make_stream(mirror.device(), &other);
            const CallOptions here{.stream = mirror.stream()}, there{.stream = other};
            std::pmr::vector<int32_t> first(1000, 1, &mirror), second(70'000, 1, &mirror), third(10, 1, &mirror);
            std::pmr::vector<int32_t> all(6, 0, &mirror);
            mirror.to_device();
            mirror.synchronize();
            const auto sum = [&](std::pmr::vector<int32_t>& values, const CallOptions& options) {
              void* const data = mirror.image(values.data());
              return group.all_reduce_async(data, data, values.size(), DType::kInt32, Op::kSum, options);
            };
            const auto gather = [&] {
              const std::vector<uint64_t> counts{1, 2, 3};  // gone before the end of the batch
              group.all_gather_v(mirror.image(first.data()), mirror.image(all.data()), counts, {}, DType::kInt32, here);
            };
            group.batch_begin();
            Work work = sum(first, here);
            sum(second, here);
            sum(third, there);
            gather();
            sum(first, here);
            expect_not_done(work);
            Work ended = group.batch_end_async();
            ended.wait();
            expect(work.done() && !work.error(), "the batch's work is not done");
            group.batch_begin();
            group.batch_end();
            group.batch_begin();
            sum(first, here);
            work = sum(third, here);
            group.batch_end();  // returns when it is in the stream
            work.wait_on(other);
            sum(third, there);
            mirror.driver().synchronize(other);
            mirror.to_host();
            mirror.synchronize();
            expect(first[999] == 27 && second[69'999] == 3 && third[9] == 27, "the wrong sum in a batch");
            for (const int32_t value : all) expect(value == 3, "the wrong value gathered in a batch");
            mirror.driver().destroy_stream(other);
          }) == "");
  }
}

TEST_CASE("messages, small and large, from a stream to a stream and to host memory") {
  for (const char* transport : {"shm", "tcp"}) {
    CAPTURE(transport);
    CHECK(run_processes(device_group(2, transport), [](Communicator& group) {
            Mirror mirror;
            const int peer = 1 - group.rank();
            std::pmr::vector<int32_t> out(500'000, group.rank(), &mirror), in(600'000, -1, &mirror);
            std::vector<int32_t> host(10, -1);
            mirror.to_device();
            const CallOptions options{.stream = mirror.stream()};
            void *const from = mirror.image(out.data()), *const to = mirror.image(in.data());
            for (const uint64_t count : {5'000, 500'000}) {
              const auto both = group.sendrecv(from, count, peer, to, 600'000, peer, DType::kInt32, 7, options);
              expect(both.bytes == 4 * count && both.peer == peer && both.tag == 7, "sendrecv says another message");
            }
            if (group.rank() == 0) {
              group.send(from, 10, DType::kInt32, peer, 1, options);
              group.send(from, 0, DType::kInt32, peer, 2, options);
              group.send(from, 10, DType::kInt32, peer, 3, options);
            } else {
              expect(group.recv(to, 6'000, DType::kInt32, kAnySource, 1, options).bytes == 40,
                     "recv says another length");
              expect(group.recv(to, 6'000, DType::kInt32, peer, 2, options).bytes == 0, "recv says another length");
              group.recv(host.data(), 10, DType::kInt32, peer, 3);
              expect(host[9] == 0, "the wrong message in host memory");
            }
            mirror.to_host();
            mirror.synchronize();
            expect(in[0] == peer && in[499'999] == peer && in[500'000] == -1, "the wrong message");
          }) == "");
  }
}

TEST_CASE("a stream of another device than the thread's current one") {
  CHECK(run_processes(device_group(2, "shm"), [](Communicator& group) {
          std::unique_ptr<Mirror> mirror = std::make_unique<Mirror>();
          if (mirror->driver().use(1) != 0) return;  // a GPU may be alone
          mirror = std::make_unique<Mirror>();
          std::pmr::vector<int32_t> values(100, 1, mirror.get());
          mirror->to_device();
          mirror->driver().use(0);
          int32_t* const on_device = mirror->image_of(values.data());
          group.all_reduce(on_device, on_device, 100, DType::kInt32, Op::kSum, {.stream = mirror->stream()});
          mirror->to_host();
          mirror->synchronize();
          expect(values[99] == 2, "the wrong sum");
        }) == "");
}

TEST_CASE("the legacy stream waits for blocking streams, and they for it; queues for one stream and for several") {
  for (const char* queues : {"1", "8"}) {
    for (const uint64_t window : {Config().device_window_bytes, uint64_t{0}}) {
      CAPTURE(queues);
      CAPTURE(window);
      RankGroup ranks = device_group(2, "shm", {{"FAKE_CUDA_QUEUES", queues}});
      ranks.config.device_window_bytes = window;
      CHECK(run_processes(ranks, [](Communicator& group) {
              Mirror mirror;
              std::pmr::vector<int32_t> values(30'000, 1, &mirror);
              mirror.to_device();
              mirror.synchronize();
              int32_t* const data = mirror.image_of(values.data());
              const auto make = fake_function<void*()>("fake_cuda_blocking_stream");
              if (make == nullptr) return;  // a GPU: no such function
              void* const blocking = make();
              for (int i = 0; i < 5; ++i) {
                group.all_reduce(data, data, 30'000, DType::kInt32, Op::kSum, {.stream = nullptr});
                group.all_reduce(data, data, 30'000, DType::kInt32, Op::kSum, {.stream = blocking});
              }
              const DeviceCopy copy{values.data(), data, 120'000, 120'000, 120'000, 1};
              mirror.driver().copy(copy, nullptr);
              mirror.driver().synchronize(nullptr);
              expect(values.front() == 1024 && values.back() == 1024, "the wrong sum");
              mirror.driver().destroy_stream(blocking);
            }) == "");
    }
  }
}

TEST_CASE("a queue for each stream: calls keep their order by events alone") {
  RankGroup ranks = device_group(3, "shm", {{"FAKE_CUDA_QUEUES", "32"}});
  for (const uint64_t window : {Config().device_window_bytes, uint64_t{0}}) {
    CAPTURE(window);
    ranks.config.device_window_bytes = window;
    CHECK(run_processes(ranks, [](Communicator& group) {
            Mirror mirror;
            DeviceStream streams[3] = {};
            for (DeviceStream& stream : streams) mirror.driver().make_stream(mirror.device(), &stream);
            std::pmr::vector<int64_t> values(40'000, 1, &mirror);
            mirror.to_device();
            mirror.synchronize();
            int64_t* const data = mirror.image_of(values.data());
            Work last;
            for (int i = 0; i < 12; ++i) {
              DeviceStream const stream = streams[i % 3];
              if (i > 0) last.wait_on(stream);
              last = group.all_reduce_async(data, data, 40'000, DType::kInt64, Op::kSum, {.stream = stream});
            }
            last.wait_on(mirror.stream());
            mirror.to_host();
            mirror.synchronize();
            expect(values.front() == 531'441 && values.back() == 531'441, "the wrong sum");
            for (DeviceStream stream : streams) mirror.driver().destroy_stream(stream);
          }) == "");
  }
}

}  // namespace rondo::testing
