#include "tests/device/device_cases.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "ring/base/types.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr size_t kRegisteredBytes = 64u << 20;

using Run = std::string (*)(const RankGroup& group, const RankBody& body);
void check(Run run, const std::vector<RankGroup>& groups, const RankBody& body) {
  for (const RankGroup& group : groups) {
    CAPTURE(group.world);
    CAPTURE(group.config.transport);
    CAPTURE(group.config.device_window_bytes);
    CAPTURE(static_cast<int>(group.config.algorithm));
    CHECK(run(group, body) == "");
  }
}

void run_one(Communicator& group, const CollectiveCase& what, void* registered) {
  Mirror mirror(registered, kRegisteredBytes);
  CollectiveRank rank(what, group.rank(), &mirror);
  mirror.to_device();
  Call call = rank.call();
  call.input = mirror.image(call.input);
  call.output = mirror.image(call.output);
  call.options.stream = mirror.stream();
  group.run(call);
  mirror.to_host();
  const std::string wrong = rank.check();
  expect(wrong.empty(), [&] { return what.describe() + " on device memory: " + wrong; });
}

}  // namespace

// --- ranks

RankGroup device_group(int world, const char* transport, const Settings& settings) {
  RankGroup group = ranks_over(world == 1 ? "auto" : transport, world);
  group.config.device_library = device_library();
  group.before = [settings](int rank) {
    for (const Setting& one : settings) {
      if (one.rank < 0 || one.rank == rank) setenv(one.name, one.value.c_str(), 1);
    }
    try {
      use_device(rank, DeviceDriver::open(device_library())->count());
    } catch (const Exception&) {  // there is none, which the rank's calls say
    }
  };
  return group;
}

RankGroup staged_group(int world, const char* transport, const Settings& settings) {
  RankGroup group = device_group(world, transport, settings);
  group.config.device_window_bytes = 0;
  return group;
}

RankGroup ring_group(int world, const Settings& settings) {
  RankGroup group = device_group(world, "auto", settings);
  group.config.algorithm = Algorithm::kRing;
  return group;
}

RankGroup registered_group(int world) {
  RankGroup group = device_group(world);
  group.config.algorithm = Algorithm::kRegistered;
  return group;
}

void use_device(int rank, int devices) {
  const auto driver = DeviceDriver::open(device_library());
  driver->check(driver->use(rank % (on_a_gpu() ? std::min(devices, driver->count()) : devices)), "use");
}

RankGroup on_devices(int devices, RankGroup group) {
  group.before = [set = group.before, devices](int rank) {
    setenv("FAKE_CUDA_COUNT", std::to_string(devices).c_str(), 1);
    set(rank);
    use_device(rank, devices);
  };
  return group;
}

RankGroup small_windows(RankGroup group) {
  group.config.device_window_bytes = 64 * 1024;
  return group;
}

std::vector<RankGroup> both_transports(int world) { return {device_group(world, "shm"), device_group(world, "tcp")}; }

std::vector<RankGroup> both_ways(int world, const Settings& settings) {
  return {device_group(world, "auto", settings), staged_group(world, "auto", settings)};
}

void check_processes(const std::vector<RankGroup>& groups, const RankBody& body) { check(run_processes, groups, body); }
void check_threads(const std::vector<RankGroup>& groups, const RankBody& body) { check(run_threads, groups, body); }

// --- cases

void run_on_device(Communicator& group, const std::vector<CollectiveCase>& cases, BufferKind buffers, Taken taken) {
  void* registered = nullptr;
  if (buffers != BufferKind::kPlain) registered = group.allocate(kRegisteredBytes, Memory::kDevice);
  const bool own = buffers == BufferKind::kRegistered || group.rank() % 2 == 1;
  const int before = passes_over_ranks();
  for (const CollectiveCase& what : cases) {
    if (!collective_scans(what.collective)) run_one(group, what, own ? registered : nullptr);  // those are refused
  }
  const int after = passes_over_ranks();
  if (registered != nullptr) group.deallocate(registered);
  if (group.size() == 1 || after < 0) return;
  expect((after > 0 && after != before) == (taken == Taken::kAsKernels),
         taken == Taken::kStaged ? "a call was not staged" : "the calls were staged");
}

std::vector<CollectiveCase> large_shapes(int world) {
  std::vector<CollectiveCase> cases = all_shapes({world, {50'001}, {world - 1}});
  std::erase_if(cases, [](const CollectiveCase& what) { return what.in_place != (what.misalign == 0); });
  return cases;
}

std::vector<CollectiveCase> full_matrix(int world) {
  std::vector<CollectiveCase> cases = all_shapes({world, usual_counts(world, 5000), all_ranks(world)});
  const std::vector<CollectiveCase> reductions = all_reductions(world);
  cases.insert(cases.end(), reductions.begin(), reductions.end());
  return cases;
}

std::vector<CollectiveCase> drawn_of_matrix(int world, size_t count, uint64_t seed) {
  Random random(seed);
  const std::vector<CollectiveCase> all = full_matrix(world);
  std::vector<CollectiveCase> drawn;
  for (size_t i = 0; i < count; ++i) drawn.push_back(all[random.below(all.size())]);
  return drawn;
}

// --- buffers

Sum::Sum(Communicator& of, void* memory, size_t count, size_t bytes)
    : group(of), mirror(memory, bytes), values(count, 1, &mirror) {
  mirror.to_device();
  mirror.synchronize();
}

Work Sum::start(Op op, const CallOptions& options) {
  return group.all_reduce_async(data(), data(), values.size(), DType::kInt32, op, options);
}

void Sum::call(Op op, const CallOptions& options) {
  group.all_reduce(data(), data(), values.size(), DType::kInt32, op, options);
}

int32_t Sum::value() {
  mirror.to_host();
  for (const int32_t value : values) expect(value == values[0], "the values of a buffer differ");
  return values[0];
}

DeviceBuffer::DeviceBuffer(Mirror& mirror, size_t count, int of)
    : values(count, -1, &mirror), device(mirror.image(values.data())) {
  for (size_t i = 0; i < count && of >= 0; ++i) values[i] = value_of(of, i);
}

void DeviceBuffer::expect_message(int from, uint64_t count) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t expected = i < count ? value_of(from, i) : -1;
    expect(values[i] == expected, [&] {
      return "element " + std::to_string(i) + " is " + std::to_string(values[i]) + " instead of " +
             std::to_string(expected);
    });
  }
}

// --- what ranks do

void write_after_failure(Communicator& group) {
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
  expect(sum.value() == 1000 + group.rank(), "memory has changed after its rank's calls had failed");
}

void call_in_turn(Communicator& group) {
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
  uint32_t expected = 1;
  for (int i = 0; i < 10; ++i) expected *= 3;
  for (const uint32_t value : values) expect(value == expected, "the wrong sum");
  for (const uint32_t value : gathered) expect(value == expected, "the wrong value gathered");
}

void call_differently(Communicator& group) {
  group.attach_device();
  Sum sum(group, nullptr, group.rank() == 0 ? 100 : 200);
  sum.call();
  sum.mirror.synchronize();  // the stream's wait has ended
  expect_error(error_of([&] { sum.start().wait(); }), ErrorCode::kMismatch, "count=100");
  expect(group.error().has_value(), "no error");
  for (const char* shown : {"count=100", "count=200", "on device memory"}) {
    expect_error(*group.error(), ErrorCode::kMismatch, shown);
  }
  sum.mirror.to_host();  // the device goes on
}

// Sizes in elements of 8 bytes: nothing, eager, one piece, and several, the last of them short.
constexpr uint64_t kMessageCounts[] = {0, 5, 20'000, 524'288, 1'600'001};

void ring_of_messages(Communicator& group) {
  const int next = (group.rank() + 1) % group.size(), before = (group.rank() + group.size() - 1) % group.size();
  for (const uint64_t count : kMessageCounts) {
    Mirror mirror;
    DeviceBuffer out(mirror, count + 1, group.rank()), in(mirror, count + 1000, -1);
    mirror.to_device();
    const CallOptions options{.stream = mirror.stream()};
    group.batch_begin();
    Work received = group.recv_async(in.device, in.values.size(), DType::kInt64, before, 3, options);
    Work sent = group.send_async(out.device, count, DType::kInt64, next, 3, options);
    group.batch_end_async();
    mirror.to_host();
    in.expect_message(before, count);
    received.wait();
    sent.wait();
    const Message message = received.message();
    expect(message.peer == before && message.tag == 3 && message.bytes == 8 * count, "the wrong message");
    const Message both =
        group.sendrecv(out.device, count, next, in.device, in.values.size(), before, DType::kInt64, 4, options);
    expect(both.peer == before && both.tag == 4 && both.bytes == 8 * count, "sendrecv says another message");
    mirror.to_host();
    in.expect_message(before, count);
  }
}

void messages_beside_collectives(Communicator& group) {
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
  if (!alone) in.expect_message(peer, 100'000);
  for (const int64_t value : sum.values) expect(value == group.size(), "the wrong sum");
}

}  // namespace rondo::testing
