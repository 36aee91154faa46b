// Calls on device memory keep the order of their streams, by themselves, in lists, batches and graphs, beside calls on
// host memory and in other groups: over a device that is made of threads and memory that the host cannot touch.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/device/device_cases.h"
#include "tests/device/graph.h"

namespace rondo::testing {
namespace {

// Lists of tensors of several types, of all sizes, by themselves and in a batch.
void reduce_lists(Communicator& group, size_t largest) {
  void* const memory = group.allocate(32u << 20, Memory::kDevice);
  for (const bool registered : {false, true}) {
    Mirror mirror(registered && group.rank() == 0 ? memory : nullptr, 32u << 20);
    std::vector<std::pmr::vector<float>> floats;
    for (const size_t count : {size_t{3}, size_t{0}, size_t{1000}, largest, size_t{1}})
      floats.emplace_back(count, 1.0f, &mirror);
    std::pmr::vector<int64_t> whole(largest / 8, 2, &mirror);
    mirror.to_device();
    std::vector<TensorRef> refs;
    const auto add = [&](auto& values, DType dtype) {
      void* const data = mirror.image(values.data());
      refs.push_back({data, data, values.size(), dtype});
    };
    for (auto& values : floats) add(values, DType::kFloat32);
    add(whole, DType::kInt64);
    std::swap(refs[2], refs.back());
    const CallOptions options{.stream = mirror.stream()};
    group.all_reduce_many(refs, Op::kSum, options);
    Work work = group.all_reduce_many_async(refs, Op::kMax, options);
    group.all_reduce_many_async(std::span(refs).first(1), Op::kSum, options).wait();
    group.all_reduce_many(refs, Op::kSum, options);
    mirror.to_host();
    work.wait();
    const auto size = static_cast<float>(group.size());
    for (const auto& values : floats) {
      const float expected = size * size * (&values == &floats[0] ? size : 1);
      for (const float value : values) expect(value == expected, "the wrong sum in a list");
    }
    for (const int64_t value : whole) expect(value == 2 * group.size() * group.size(), "the wrong sum of integers");
  }
}

}  // namespace

TEST_CASE("many calls under way, more than a stream holds, each on the result of the one before, over two streams") {
  const Settings queues{{"FAKE_CUDA_QUEUES", "4"}};  // of one, streams keep their order
  check_processes(both_ways(2, queues), [](Communicator& group) {
    void* const memory = group.allocate(1u << 22, Memory::kDevice);
    const Mirror beside;
    for (const size_t count : {1000, 700'000}) {
      Sum sum(group, memory, count, 1u << 22);
      Work last;
      for (int i = 0; i < 300; ++i) {
        last = sum.start(i % 10 == 0 ? Op::kSum : Op::kMax, {.stream = (i % 5 == 4 ? beside : sum.mirror).stream()});
      }
      last.wait();
      expect(sum.value() == 1 << 30, "the wrong sum");
    }
  });
}

TEST_CASE("staged and enqueued calls, host calls and groups beside each other keep their order") {
  check_processes(both_transports(4), [](Communicator& group) {
    Communicator half = group.split(group.rank() % 2);
    void* const memory = group.allocate(1u << 20, Memory::kDevice);
    Mirror mirror(memory, 1u << 20);
    std::pmr::vector<int32_t> values(1000, 1, &mirror), all(1000, 1, &mirror);
    std::vector<int32_t> host(10, 1);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    void *const data = mirror.image(values.data()), *const of_all = mirror.image(all.data());
    std::vector<uint64_t> counts(4, 250);
    for (int i = 0; i < 5; ++i) {
      half.all_reduce(data, data, 1000, DType::kInt32, Op::kSum, options);
      group.barrier(options);
      group.all_reduce(of_all, of_all, 1000, DType::kInt32, Op::kSum, options);
      group.all_gather_v(static_cast<int32_t*>(of_all) + 250 * group.rank(), of_all, counts, {}, DType::kInt32,
                         options);
      group.all_reduce(host);
    }
    mirror.to_host();
    expect(values[999] == 32 && all[999] == 1024 && host[9] == 1024, "the wrong sum");
  });
}

TEST_CASE("lists are put together in the window, in pieces where it is small, or staged") {
  check_processes({device_group(3), small_windows(device_group(3))}, [](Communicator& group) {
    const int before = passes_over_ranks();
    reduce_lists(group, 70'000);
    expect(passes_over_ranks() != before || before < 0, "the lists were staged");
  });
  // In pieces of 4 MiB.
  check_processes({staged_group(3), device_group(3, "tcp")},
                  [](Communicator& group) { reduce_lists(group, 2'500'001); });
}

TEST_CASE("lists of no tensor, and of empty ones of any type and operation: streams wait for them, and go on") {
  check_processes({device_group(2), staged_group(2)}, [](Communicator& group) {
    Sum sum(group, nullptr, 100);
    const CallOptions options = sum.options();
    const std::vector<TensorRef> empty(2, {sum.data(), sum.data(), 0, DType::kInt32});
    for (const auto& tensors : {std::span<const TensorRef>(), std::span<const TensorRef>(empty)}) {
      for (const Op op : {Op::kSum, Op::kBitXor}) {
        group.all_reduce_many(tensors, op, options);
        Work work = group.all_reduce_many_async(tensors, op, options);
        work.wait_on(sum.mirror.stream());
        work.wait();
      }
    }
    sum.call();
    expect(sum.value() == 2, "the wrong sum behind empty lists");
  });
}

TEST_CASE("lists that differ: both are shown") {
  check_processes({device_group(2)}, [](Communicator& group) {
    group.attach_device();
    Mirror mirror;
    std::pmr::vector<float> values(100, 1, &mirror);
    mirror.to_device();
    float* const data = mirror.image_of(values.data());
    const uint64_t second = group.rank() == 0 ? 10 : 11;
    const TensorRef tensors[] = {{data, data, 20}, {data + 50, data + 50, second}};
    const Error error =
        error_of([&] { group.all_reduce_many_async(tensors, Op::kSum, {.stream = mirror.stream()}).wait(); });
    expect_error(error, ErrorCode::kMismatch, "20, 10");
    expect_error(error, ErrorCode::kMismatch, "20, 11");
    mirror.synchronize();
  });
}

TEST_CASE("batches: calls are put into their streams at the end, in their order") {
  check_processes(both_transports(3), [](Communicator& group) {
    Mirror mirror;
    const Mirror beside;
    const CallOptions here{.stream = mirror.stream()}, there{.stream = beside.stream()};
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
    expect_error([&] { work.wait(); }, ErrorCode::kInvalid);  // before the end of the batch
    Work ended = group.batch_end_async();
    ended.wait();
    expect(work.done() && !work.error(), "the batch's work is not done");
    group.batch_begin();
    group.batch_end();
    group.batch_begin();
    sum(first, here);
    work = sum(third, here);
    group.batch_end();  // returns when it is in the stream
    work.wait_on(beside.stream());
    sum(third, there);
    beside.synchronize();
    mirror.to_host();
    expect(first[999] == 27 && second[69'999] == 3 && third[9] == 27, "the wrong sum in a batch");
    for (const int32_t value : all) expect(value == 3, "the wrong value gathered in a batch");
  });
}

TEST_CASE("ranks whose op is another, where they may: each folds by its own, also in lists and batches") {
  check_processes(both_ways(2), [](Communicator& group) {
    Sum ones(group, nullptr, 2000);
    const CallOptions options{.stream = ones.mirror.stream(), .any_op = true};
    const Op op = group.rank() == 0 ? Op::kMax : Op::kMin;
    auto* const data = static_cast<int32_t*>(ones.data());
    const TensorRef halves[] = {{data, data, 1000, DType::kInt32}, {data + 1000, data + 1000, 1000, DType::kInt32}};
    ones.start(op, options).wait();
    group.all_reduce_many_async(halves, op, options).wait();
    group.batch_begin();
    for (const TensorRef& half : halves) {
      const bool first = &half == halves;
      group.all_reduce_async(half.input, half.output, half.count, half.dtype, first ? Op::kMax : op, options);
    }
    group.batch_end_async().wait();
    expect(ones.value() == 1, "the wrong result");
  });
}

TEST_CASE("a stream of another device than the thread's current one, and than the communicator's") {
  check_processes({device_group(2)}, [](Communicator& group) {
    const Mirror first;
    const int here = first.device(), there = 1 - here;
    if (first.driver().use(there) != 0) return;  // a GPU may be alone
    Sum sum(group, nullptr, 100);
    first.driver().use(here);
    sum.call();
    expect(sum.value() == 2, "the wrong sum");
    const std::string device = "device " + std::to_string(there);
    expect_error(error_of([&] { sum.start(Op::kSum, {.stream = first.stream()}); }), ErrorCode::kInvalid,
                 "memory of " + device + ", and the stream is of device " + std::to_string(here));
    Sum other(group, nullptr, 100);
    expect_error(error_of([&] { other.start(); }), ErrorCode::kInvalid, "attached to " + device);
  });
}

TEST_CASE("the legacy stream waits for blocking streams, and they for it; queues for one stream and for several") {
  for (const char* queues : {"1", "8"}) {
    CAPTURE(std::string(queues));
    check_processes(both_ways(2, {{"FAKE_CUDA_QUEUES", queues}}), [](Communicator& group) {
      Sum sum(group, nullptr, 30'000);
      const auto make = fake_function<void*(int)>("fake_cuda_blocking_stream");
      if (make == nullptr) return;  // a GPU: no such function
      void* const blocking = make(sum.mirror.device());
      for (int i = 0; i < 5; ++i) {
        sum.call(Op::kSum, {.stream = nullptr});
        sum.call(Op::kSum, {.stream = blocking});
      }
      std::pmr::vector<int32_t> found(30'000, 0, &sum.mirror);
      sum.mirror.driver().copy(whole(found.data(), sum.data(), 120'000), nullptr);
      sum.mirror.driver().synchronize(nullptr);
      expect(found.front() == 1024 && found.back() == 1024, "the wrong sum");
      sum.mirror.driver().destroy_stream(blocking);
    });
  }
}

TEST_CASE("a queue for each stream: calls keep their order by events alone") {
  check_processes(both_ways(3, {{"FAKE_CUDA_QUEUES", "32"}}), [](Communicator& group) {
    const Mirror beside[3];
    Sum sum(group, nullptr, 40'000);
    Work last;
    for (int i = 0; i < 12; ++i) {
      DeviceStream const stream = beside[i % 3].stream();
      if (i > 0) last.wait_on(stream);
      last = sum.start(Op::kSum, {.stream = stream});
    }
    last.wait_on(sum.mirror.stream());
    expect(sum.value() == 531'441, "the wrong sum");
  });
}

// The result of a kernel on plain memory is copied there behind it.
TEST_CASE("a Work is done when its result is in the caller's memory: other streams use it without waiting") {
  check_processes(both_ways(2, {{"FAKE_CUDA_QUEUES", "32"}}), [](Communicator& group) {
    const Mirror beside[3];
    Sum sum(group, nullptr, 2'000'000);
    for (int i = 0; i < 10; ++i) sum.start(Op::kSum, {.stream = beside[i % 3].stream()}).wait();
    expect(sum.value() == 1024, "the wrong sum");
  });
}

TEST_CASE("calls by the ring, over all memory and staged in turn, many of them under way: places and windows are one") {
  check_processes({device_group(3), small_windows(device_group(3))}, call_in_turn);
}

TEST_CASE("buffers that are registered on all ranks are not cut at the window: as many passes as lanes") {
  check_processes({small_windows(registered_group(3))}, [](Communicator& group) {
    constexpr size_t kPiece = 64 * 1024 / sizeof(int32_t), kBytes = 1u << 20;
    void* const memory = group.allocate(kBytes, Memory::kDevice);
    const auto passes_of = [&](bool registered, size_t count) {
      Sum sum(group, registered ? memory : nullptr, count, kBytes);
      const int before = passes_over_ranks();
      for (int i = 0; i < 3; ++i) sum.call();
      expect(sum.value() == 27, "the wrong sum");
      return passes_over_ranks() - before;
    };
    const int one = passes_of(true, kPiece);
    if (one == 0) return;  // a GPU does not tell
    const int whole = passes_of(true, 10 * kPiece + 7);
    expect(whole <= 10 * one, "a registered buffer was cut");
    expect(passes_of(false, 10 * kPiece + 7) > 5 * whole, "a plain buffer was not cut");
    expect(passes_of(group.rank() > 0, 10 * kPiece + 7) > 5 * whole, "one rank's plain buffer was not cut");
    // Ranks of a rooted call go on alone.
    constexpr size_t kBlock = 2 * kPiece;
    Mirror mirror(memory, kBytes);
    std::pmr::vector<int32_t> blocks(3 * kBlock, group.rank(), &mirror), taken(3 * kBlock, -1, &mirror);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    void* const data = mirror.image(blocks.data());
    for (int i = 0; i < 3; ++i) group.broadcast(data, kBlock, DType::kInt32, 1, options);
    for (int i = 0; i < 3; ++i) group.all_to_all(data, mirror.image(taken.data()), kBlock, DType::kInt32, options);
    mirror.to_host();
    for (size_t i = 0; i < taken.size(); ++i) {
      expect(taken[i] == (group.rank() == 0 ? 1 : static_cast<int32_t>(i / kBlock)), "the wrong block");
    }
  });
}

// Ranks that run no pass of a call, as those that a root gathers from, tell its last piece from the first one, too.
TEST_CASE("a gather of many pieces: registered buffers are not cut, plain ones behind them are") {
  check_processes({small_windows(registered_group(3))}, [](Communicator& group) {
    constexpr int32_t kBlock = 50'000, kRoot = 1;
    constexpr size_t kBytes = 1u << 20;
    void* const memory = group.allocate(kBytes, Memory::kDevice);
    for (int32_t round = 0; round < 6; ++round) {
      Mirror mirror(round % 2 == 0 ? memory : nullptr, kBytes);
      const auto value_at = [round](int32_t place) { return round + 10 * place; };  // in the output
      std::pmr::vector<int32_t> block(kBlock, 0, &mirror), all(3 * kBlock, -1, &mirror);
      for (int32_t i = 0; i < kBlock; ++i) block[static_cast<size_t>(i)] = value_at(group.rank() * kBlock + i);
      mirror.to_device();
      group.gather(mirror.image(block.data()), mirror.image(all.data()), kBlock, DType::kInt32, kRoot,
                   {.stream = mirror.stream()});
      mirror.to_host();
      for (int32_t i = 0; i < 3 * kBlock; ++i) {
        const int32_t expected = group.rank() == kRoot ? value_at(i) : -1;
        expect(all[static_cast<size_t>(i)] == expected, "the wrong element gathered");
      }
    }
  });
}

TEST_CASE("a graph of calls: replayed, between other calls, on registered and plain buffers") {
  check_processes({small_windows(device_group(3)), small_windows(ring_group(3))}, [](Communicator& group) {
    void* const memory = group.allocate(1u << 20, Memory::kDevice);
    Sum sum(group, group.rank() == 0 ? memory : nullptr, 50'000);
    const Mirror captured;
    Graph graph(captured.stream());
    const CallOptions options{.stream = captured.stream()};
    graph.record([&] {
      sum.call(Op::kSum, options);
      group.broadcast(sum.data(), 50'000, DType::kInt32, 1, options);
      expect_error(error_of([&] { group.barrier(options); }), ErrorCode::kUnsupported, "is staged");
      expect_error(error_of([&] { sum.start(Op::kSum, options); }), ErrorCode::kUnsupported, "without a Work");
      const TensorRef tensor{sum.data(), sum.data(), 100, DType::kInt32};
      expect_error(error_of([&] { group.all_reduce_many(std::vector(2, tensor), Op::kSum, options); }),
                   ErrorCode::kUnsupported, "all_reduce_many on rank");
      CallOptions more = options;
      more.wire.format = WireFormat::kBfloat16;
      expect_error(error_of([&] { group.all_reduce(sum.data(), sum.data(), 100, DType::kFloat32, Op::kSum, more); }),
                   ErrorCode::kUnsupported, "no wire format");
      more = options;
      more.user = {.function = [](const void*, void*, size_t, void*) {}, .element_bytes = 4};
      expect_error(error_of([&] { group.all_reduce(sum.data(), sum.data(), 100, DType::kInt32, Op::kUser, more); }),
                   ErrorCode::kUnsupported, "operations of the program's");
    });
    int32_t expected = 1;
    for (int round = 0; round < 4; ++round) {
      for (int replay = 0; replay <= round; ++replay, expected *= 3) graph.replay(sum.mirror.stream());
      sum.start();
      expected *= 3;
    }
    expect(sum.value() == expected, "the wrong sum");
    sum.start().wait();
  });
}

TEST_CASE("a graph outlives its communicator: replays end at once, and what they reach is freed with the graph") {
  if (on_a_gpu()) return;
  check_processes({device_group(2)}, [](Communicator& group) {
    for (const size_t count : {size_t{2}, size_t{50'000}}) {
      Sum sum(group, nullptr, count);
      const Mirror captured;
      const auto memory = [] { return std::pair(counted("fake_cuda_held"), counted("fake_cuda_locked")); };
      const auto before = memory();
      Communicator comm = group.dup();
      comm.attach_device();
      Graph graph(captured.stream());
      graph.record([&] {
        for (int i = 0; i < 3; ++i) {
          comm.all_reduce(sum.data(), sum.data(), count, DType::kInt32, Op::kSum, {.stream = captured.stream()});
        }
      });
      graph.replay(sum.mirror.stream());
      expect(sum.value() == 8, "the wrong sum");
      comm.destroy();
      expect(memory() != before, "what the graph reaches is freed");
      for (int i = 0; i < 2; ++i) graph.replay(sum.mirror.stream());
      sum.mirror.synchronize();
      graph.destroy();
      captured.driver().free_ended();
      expect(memory() == before, "something is left behind the graph");
    }
  });
}

TEST_CASE("a graph of one rank that outlives its communicator does not hold up destroy() of the other") {
  if (on_a_gpu()) return;
  check_processes({device_group(2)}, [](Communicator& group) {
    Sum sum(group, nullptr, 100);
    const Mirror captured;
    Communicator comm = group.dup();
    comm.attach_device();
    Graph graph(captured.stream());
    graph.record(
        [&] { comm.all_reduce(sum.data(), sum.data(), 100, DType::kInt32, Op::kSum, {.stream = captured.stream()}); });
    if (group.rank() == 0) graph.destroy();
    const auto begin = Clock::now();
    comm.destroy();
    expect(Clock::now() - begin < std::chrono::seconds(15), "destroy() waits for the other rank's graph");
    group.barrier();
    if (group.rank() == 1) graph.destroy();
  });
}

TEST_CASE("a replay that the other rank does not make ends by its deadline, and the next call says so") {
  check_processes({device_group(2)}, [](Communicator& group) {
    Sum sum(group, nullptr, 100);
    Graph graph(sum.mirror.stream());
    group.attach_device();
    const CallOptions options{.timeout = std::chrono::milliseconds(100), .stream = sum.mirror.stream()};
    graph.record([&] { sum.call(Op::kSum, options); });
    if (group.rank() == 0) graph.replay(sum.mirror.stream());
    sum.mirror.synchronize();
    group.barrier();
    const Error error = error_of([&] { sum.start().wait(); });
    // Whichever rank is first: its own kernel was late, or the other's card is of another call.
    expect(error.message.find("have not met") != std::string::npos ||
               error.message.find("in another operation") != std::string::npos,
           error.message);
  });
}

// Each rank replays two graphs, each a sum in place: as `replays` says, on two streams. The next call's error, and
// whether the sums were right.
void replay_two(Communicator& group, const std::function<void(Graph* graphs, Mirror& a, Mirror& b)>& replays,
                const std::function<void(const std::string& error, bool right)>& expects,
                std::chrono::seconds timeout = std::chrono::seconds(2)) {
  auto* const memory = static_cast<std::byte*>(group.allocate(1u << 20, Memory::kDevice));
  Sum first(group, memory, 1000, 1u << 19), second(group, memory + (1u << 19), 1000, 1u << 19);
  Graph graphs[] = {Graph(first.mirror.stream()), Graph(second.mirror.stream())};
  const auto capture = [&](Sum& sum) { sum.call(Op::kSum, {.timeout = timeout, .stream = sum.mirror.stream()}); };
  graphs[0].record([&] { capture(first); });
  graphs[1].record([&] { capture(second); });
  group.barrier();
  replays(graphs, first.mirror, second.mirror);
  bool right = true;
  for (Sum* sum : {&first, &second}) {
    sum->mirror.to_host();
    for (const int32_t value : sum->values) right &= value == 2;
  }
  const Error error = error_of([&] {
    group.barrier();
    first.start().wait();
  });
  expects(error.message, right);
}

TEST_CASE("replays that overlap on one rank end, and the next call says so") {
  check_processes({device_group(2)}, [](Communicator& group) {
    const auto replay = [&](Graph* graphs, Mirror& a, Mirror& b) {
      if (group.rank() == 1) return;
      graphs[0].replay(a.stream());  // waits for rank 1
      const auto since = std::chrono::steady_clock::now();
      graphs[1].replay(b.stream());
      a.synchronize();
      expect(std::chrono::steady_clock::now() - since < std::chrono::seconds(10), "they end by their timeout alone");
    };
    const auto expects = [](const std::string& error, bool) {
      expect(error.find("ran beside another call") != std::string::npos ||
                 error.find("in another operation") != std::string::npos,
             error);
    };
    replay_two(group, replay, expects, std::chrono::seconds(20));
  });
}

TEST_CASE("two graphs replayed in another order on another rank: a mismatch, though their calls are of one form") {
  check_processes({device_group(2)}, [](Communicator& group) {
    const auto replay = [&](Graph* graphs, Mirror& a, Mirror&) {
      graphs[group.rank()].replay(a.stream());
      graphs[1 - group.rank()].replay(a.stream());
    };
    replay_two(group, replay, [](const std::string& error, bool) {
      expect(error.find("in another operation") != std::string::npos, error);
    });
  });
}

// The replays may race for the communicator's windows: a mistake of the program, which the thread sanitizer sees.
#ifndef __SANITIZE_THREAD__
TEST_CASE("replays without an order between their streams: an error, or the right sums") {
  const auto replay = [](Graph* graphs, Mirror& a, Mirror& b) {
    graphs[0].replay(a.stream());
    graphs[1].replay(b.stream());
  };
  for (int round = 0; round < 10; ++round) {
    const Settings late{{"FAKE_CUDA_LATE_US", std::to_string(100 * round), round % 2}};
    check_processes({device_group(2, "shm", late)}, [&](Communicator& group) {
      replay_two(group, replay, [](const std::string& error, bool right) {
        expect(right || !error.empty(), "a wrong sum, and no error");
      });
    });
  }
}
#endif

}  // namespace rondo::testing
