// NCCL's calls over the fake driver, or a GPU: RONDO_TEST_DEVICE.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "nccl/group.h"
#include "tests/support/child.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_cuda/mirror.h"
#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {
namespace {

void expect_result(ncclResult_t result, ncclResult_t wanted, const std::string& what) {
  expect(result == wanted, [&] {
    return what + " gives " + std::to_string(result) + ", not " + std::to_string(wanted) + ": " +
           ncclGetLastError(nullptr);
  });
}
void good(ncclResult_t result, const std::string& what) { expect_result(result, ncclSuccess, what); }

// The refusal of a call, whose words ncclGetLastError() has.
void refused(ncclResult_t result, ncclResult_t wanted, const std::string& words) {
  expect_result(result, wanted, "a call that must say: " + words);
  const std::string text = ncclGetLastError(nullptr);
  expect(text.find(words) != std::string::npos, [&] { return text + " does not say: " + words; });
}

// A rank's communicator, and memory of its device.
struct Rank {
  int rank, size;
  ncclComm_t comm = nullptr;
  Mirror mirror;

  void* stream() const { return mirror.stream(); }
  template <typename T>
  std::pmr::vector<T> buffer(size_t count, T value) {
    return std::pmr::vector<T>(count, value, &mirror);
  }
  // Numbers that no two ranks have alike.
  std::pmr::vector<int32_t> own(size_t count) {
    auto values = buffer<int32_t>(count, 0);
    std::iota(values.begin(), values.end(), 1000 * (rank + 1));
    return values;
  }
  template <typename T>
  void* at(const std::pmr::vector<T>& values) const {
    return mirror.image(values.data());
  }
};

int32_t value_of(int rank, size_t index) { return 1000 * (rank + 1) + static_cast<int32_t>(index); }

using Id = ncclUniqueId;
using Body = std::function<void(const Id& id, int rank)>;

// Ranks as processes, each with a device of its own; they end well, but for one that kills itself. Rank 0 makes the id.
void run_ranks(int world, const Body& body, int killed = -1) {
  std::vector<Child> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank](Parent& parent) {
      try {
        setenv("RONDO_DEVICE_LIBRARY", device_library(), 1);
        const auto driver = DeviceDriver::open(device_library());
        driver->check(driver->use(rank % driver->count()), "use");
        Id id{};
        if (rank == 0) {
          good(ncclGetUniqueId(&id), "ncclGetUniqueId");
          parent.say(id.internal);
        } else {
          std::strncpy(id.internal, parent.await().c_str(), sizeof id.internal - 1);
        }
        body(id, rank);
        parent.say("ended well");
        return 0;
      } catch (const std::exception& error) {
        parent.say("rank " + std::to_string(rank) + ": " + error.what());
        return 1;
      }
    });
  }
  const std::string id = ranks[0].hear();
  for (int rank = 1; rank < world; ++rank) ranks[static_cast<size_t>(rank)].tell(id);
  for (int rank = 0; rank < world; ++rank) {
    if (rank != killed) CHECK(ranks[static_cast<size_t>(rank)].hear(60'000) == "ended well");
  }
}

// The same with a communicator, which is destroyed at the end.
void run_joined(int world, const std::function<void(Rank& rank)>& body) {
  run_ranks(world, [&](const Id& id, int number) {
    Rank rank{number, world, nullptr, {}};
    good(ncclCommInitRank(&rank.comm, world, id, number), "ncclCommInitRank");
    body(rank);
    good(ncclCommDestroy(rank.comm), "ncclCommDestroy");
  });
}

// --- collectives, of so many elements a block

void all_reduce(Rank& r, size_t count) {
  auto values = r.own(count);
  auto sums = r.buffer<int32_t>(count, -1);
  r.mirror.to_device();
  good(ncclAllReduce(r.at(values), r.at(sums), count, ncclInt32, ncclSum, r.comm, r.stream()), "ncclAllReduce");
  good(ncclAllReduce(r.at(values), r.at(values), count, ncclInt32, ncclMax, r.comm, r.stream()), "in place");
  r.mirror.to_host();
  for (size_t i = 0; i < count; ++i) {
    int32_t sum = 0;
    for (int rank = 0; rank < r.size; ++rank) sum += value_of(rank, i);
    expect(sums[i] == sum && values[i] == value_of(r.size - 1, i), "a wrong sum, or maximum");
  }
}

void reduce_and_broadcast(Rank& r, size_t count) {
  const int root = r.size - 1;
  auto values = r.own(count);
  auto least = r.buffer<int32_t>(count, -1);
  auto told = r.buffer<int32_t>(count, -1);
  r.mirror.to_device();
  good(ncclReduce(r.at(values), r.at(least), count, ncclInt32, ncclMin, root, r.comm, r.stream()), "ncclReduce");
  good(ncclBroadcast(r.at(values), r.at(told), count, ncclInt32, root, r.comm, r.stream()), "ncclBroadcast");
  good(ncclBcast(r.at(values), count, ncclInt32, 0, r.comm, r.stream()), "ncclBcast");
  r.mirror.to_host();
  for (size_t i = 0; i < count; ++i) {
    expect(least[i] == (r.rank == root ? value_of(0, i) : -1), "a wrong minimum");
    expect(told[i] == value_of(root, i) && values[i] == value_of(0, i), "a wrong broadcast");
  }
}

void gather_all(Rank& r, size_t count) {
  const auto size = static_cast<size_t>(r.size), rank = static_cast<size_t>(r.rank);
  auto values = r.own(count);
  auto all = r.buffer<int32_t>(size * count, -1);
  auto at_root = r.buffer<int32_t>(size * count, -1);
  auto in_place = r.buffer<int32_t>(size * count, -1);
  std::copy(values.begin(), values.end(), in_place.begin() + static_cast<std::ptrdiff_t>(rank * count));
  r.mirror.to_device();
  good(ncclAllGather(r.at(values), r.at(all), count, ncclInt32, r.comm, r.stream()), "ncclAllGather");
  auto* const own = static_cast<int32_t*>(r.at(in_place)) + rank * count;
  good(ncclAllGather(own, r.at(in_place), count, ncclInt32, r.comm, r.stream()), "in place");
  good(ncclGather(r.at(values), r.at(at_root), count, ncclInt32, 0, r.comm, r.stream()), "ncclGather");
  r.mirror.to_host();
  for (size_t i = 0; i < size * count; ++i) {
    const int32_t value = value_of(static_cast<int>(i / count), i % count);
    expect(all[i] == value && in_place[i] == value && at_root[i] == (r.rank == 0 ? value : -1), "a wrong gather");
  }
}

void scatter_all(Rank& r, size_t count) {
  const auto size = static_cast<size_t>(r.size), rank = static_cast<size_t>(r.rank);
  auto values = r.own(size * count);
  auto part = r.buffer<int32_t>(count, -1);
  auto sums = r.buffer<int32_t>(count, -1);
  auto turned = r.buffer<int32_t>(size * count, -1);
  r.mirror.to_device();
  good(ncclScatter(r.at(values), r.at(part), count, ncclInt32, 0, r.comm, r.stream()), "ncclScatter");
  good(ncclReduceScatter(r.at(values), r.at(sums), count, ncclInt32, ncclSum, r.comm, r.stream()), "ncclReduceScatter");
  good(ncclAlltoAll(r.at(values), r.at(turned), count, ncclInt32, r.comm, r.stream()), "ncclAlltoAll");
  r.mirror.to_host();
  for (size_t i = 0; i < count; ++i) {
    int32_t sum = 0;
    for (int of = 0; of < r.size; ++of) sum += value_of(of, rank * count + i);
    expect(part[i] == value_of(0, rank * count + i) && sums[i] == sum, "a wrong part");
  }
  for (size_t i = 0; i < size * count; ++i) {
    expect(turned[i] == value_of(static_cast<int>(i / count), rank * count + i % count), "a wrong exchange");
  }
}

// --- messages

// To both neighbors and to itself, beside a sum.
void exchange(Rank& r, size_t count) {
  const int next = (r.rank + 1) % r.size, last = (r.rank + r.size - 1) % r.size;
  auto values = r.own(count);
  auto from_last = r.buffer<int32_t>(count, -1);
  auto from_next = r.buffer<int32_t>(count, -1);
  auto from_self = r.buffer<int32_t>(count, -1);
  auto sums = r.buffer<int32_t>(count, -1);
  r.mirror.to_device();
  good(ncclGroupStart(), "ncclGroupStart");
  good(ncclRecv(r.at(from_last), count, ncclInt32, last, r.comm, r.stream()), "ncclRecv");
  good(ncclSend(r.at(values), count, ncclInt32, next, r.comm, r.stream()), "ncclSend");
  if (r.size > 2) {
    good(ncclSend(r.at(values), count, ncclInt32, last, r.comm, r.stream()), "ncclSend");
    good(ncclRecv(r.at(from_next), count, ncclInt32, next, r.comm, r.stream()), "ncclRecv");
  }
  good(ncclGroupStart(), "a group in a group");
  good(ncclAllReduce(r.at(values), r.at(sums), count, ncclInt32, ncclSum, r.comm, r.stream()), "ncclAllReduce");
  good(ncclGroupEnd(), "its end");
  good(ncclSend(r.at(values), count, ncclInt32, r.rank, r.comm, r.stream()), "to itself");
  good(ncclRecv(r.at(from_self), count, ncclInt32, r.rank, r.comm, r.stream()), "of itself");
  good(ncclGroupEnd(), "ncclGroupEnd");
  r.mirror.to_host();
  for (size_t i = 0; i < count; ++i) {
    expect(from_last[i] == value_of(last, i) && from_self[i] == value_of(r.rank, i), "a wrong message");
    if (r.size > 2) expect(from_next[i] == value_of(next, i), "a wrong message of the next rank");
  }
  if (count > 0) expect(sums[0] == r.size * (r.size + 1) / 2 * 1000, "a wrong sum beside messages");
}

TEST_CASE("every collective and messages, in order, in place and in groups") {
  for (const int world : {1, 2, 3}) {
    CAPTURE(world);
    run_joined(world, [](Rank& rank) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{100'000}}) {
        all_reduce(rank, count);
        reduce_and_broadcast(rank, count);
        gather_all(rank, count);
        scatter_all(rank, count);
        exchange(rank, count);
      }
    });
  }
}

TEST_CASE("every data type has its sum") {
  run_joined(2, [](Rank& rank) {
    constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    for (int dtype = ncclInt8; dtype < ncclNumTypes; ++dtype) {
      auto zeroes = rank.buffer<std::byte>(64 * kBytes[dtype], std::byte{0});
      auto sums = rank.buffer<std::byte>(64 * kBytes[dtype] + 1, std::byte{1});
      rank.mirror.to_device();
      good(ncclAllReduce(rank.at(zeroes), rank.at(sums), 64, static_cast<ncclDataType_t>(dtype), ncclSum, rank.comm,
                         rank.stream()),
           "ncclAllReduce of type " + std::to_string(dtype));
      rank.mirror.to_host();
      expect(std::count(sums.begin(), sums.end(), std::byte{0}) == static_cast<long>(zeroes.size()) &&
                 sums.back() == std::byte{1},
             [&] { return "type " + std::to_string(dtype) + " has another size"; });
    }
  });
}

TEST_CASE("works of calls that have ended are freed: they hold no more events than some of them have") {
  run_joined(2, [](Rank& rank) {
    auto values = rank.own(10);
    rank.mirror.to_device();
    for (int call = 0; call < 500; ++call) {
      good(ncclAllReduce(rank.at(values), rank.at(values), 10, ncclInt32, ncclMax, rank.comm, rank.stream()),
           "ncclAllReduce");
      rank.mirror.synchronize();
    }
    expect(counted("fake_cuda_events") < 200, "their events are kept");
  });
}

// --- premultiplied sums

template <typename T>
void premultiplied(Rank& r, ncclDataType_t dtype, T factor, T one, T sum) {
  auto values = r.buffer<T>(10, one);
  r.mirror.to_device();
  ncclRedOp_t op{};
  good(ncclRedOpCreatePreMulSum(&op, &factor, dtype, ncclScalarHostImmediate, r.comm), "ncclRedOpCreatePreMulSum");
  good(ncclAllReduce(r.at(values), r.at(values), 10, dtype, op, r.comm, r.stream()), "a premultiplied sum");
  r.mirror.to_host();
  expect(values[9] == sum, "a wrong premultiplied sum");
  good(ncclRedOpDestroy(op, r.comm), "ncclRedOpDestroy");
  refused(ncclAllReduce(r.at(values), r.at(values), 10, dtype, op, r.comm, r.stream()), ncclInvalidArgument,
          "is none of this communicator's");
}

TEST_CASE("a premultiplied sum has each rank's factor") {
  run_joined(2, [](Rank& rank) {
    const bool first = rank.rank == 0;
    premultiplied<float>(rank, ncclFloat32, first ? 1 : 2, 1.5f, 4.5f);
    premultiplied<double>(rank, ncclFloat64, first ? 1 : 2, 1.5, 4.5);
    // 0.5 and 2 times 1: float16, then bfloat16.
    premultiplied<uint16_t>(rank, ncclFloat16, first ? 0x3800 : 0x4000, 0x3c00, 0x4100);
    premultiplied<uint16_t>(rank, ncclBfloat16, first ? 0x3f00 : 0x4000, 0x3f80, 0x4020);
    ncclRedOp_t op{};
    int factor = 1;
    refused(ncclRedOpCreatePreMulSum(&op, &factor, ncclInt32, ncclScalarHostImmediate, rank.comm), ncclInvalidArgument,
            "data type 2");
    refused(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarDevice, rank.comm), ncclInvalidUsage,
            "device memory");
  });
}

// --- communicators

// A sum over the ranks of a communicator that was made of another one.
void expect_sum(Rank& r, ncclComm_t comm, int32_t wanted) {
  auto ranks = r.buffer<int32_t>(100, r.rank);
  r.mirror.to_device();
  good(ncclAllReduce(r.at(ranks), r.at(ranks), 100, ncclInt32, ncclSum, comm, r.stream()), "ncclAllReduce");
  r.mirror.to_host();
  expect(ranks[99] == wanted, [&] { return "the sum is " + std::to_string(ranks[99]); });
}

TEST_CASE("communicators are split and shrunk") {
  run_joined(4, [](Rank& rank) {
    ncclComm_t pair = nullptr, alone = nullptr, three = nullptr;
    good(ncclCommSplit(rank.comm, rank.rank / 2, -rank.rank, &pair, nullptr), "ncclCommSplit");
    int place = -1, count = 0, device = -1;
    good(ncclCommUserRank(pair, &place), "ncclCommUserRank");
    good(ncclCommCount(pair, &count), "ncclCommCount");
    good(ncclCommCuDevice(pair, &device), "ncclCommCuDevice");
    expect(place == 1 - rank.rank % 2 && count == 2 && device == rank.rank % 2, "a wrong place in the split");
    expect_sum(rank, pair, rank.rank < 2 ? 1 : 5);
    good(ncclCommSplit(rank.comm, rank.rank == 3 ? 0 : -1, 0, &alone, nullptr), "ncclCommSplit for one");
    expect((alone != nullptr) == (rank.rank == 3), "a communicator without a color, or none with one");
    int excluded = 1;
    if (rank.rank != 1) {
      good(ncclCommShrink(rank.comm, &excluded, 1, &three, nullptr, 0), "ncclCommShrink");
      expect_sum(rank, three, 5);
    }
    for (ncclComm_t comm : {pair, alone, three}) good(ncclCommDestroy(comm), "ncclCommDestroy");
  });
}

// In another order on each rank they would wait for each other.
TEST_CASE("communicators of a group with one stream come into it in one order") {
  run_joined(2, [](Rank& rank) {
    ncclComm_t same = nullptr;
    good(ncclCommSplit(rank.comm, 0, rank.rank, &same, nullptr), "ncclCommSplit");
    auto first = rank.buffer<int32_t>(100, rank.rank);
    auto second = rank.buffer<int32_t>(100, rank.rank);
    rank.mirror.to_device();
    for (int round = 0; round < 200; ++round) {
      good(ncclGroupStart(), "ncclGroupStart");
      good(ncclAllReduce(rank.at(first), rank.at(first), 100, ncclInt32, ncclMax, rank.comm, rank.stream()),
           "the first");
      good(ncclAllReduce(rank.at(second), rank.at(second), 100, ncclInt32, ncclMax, same, rank.stream()), "the second");
      good(ncclGroupEnd(), "ncclGroupEnd");
    }
    rank.mirror.to_host();
    expect(first[99] == 1 && second[99] == 1, "a wrong maximum");
    good(ncclCommDestroy(same), "ncclCommDestroy");
  });
}

ncclConfig_t config() {
  constexpr int kUnset = INT_MIN;
  return {sizeof(ncclConfig_t),
          0xcafebeef,
          22707,
          kUnset,
          kUnset,
          kUnset,
          kUnset,
          nullptr,
          kUnset,
          kUnset,
          nullptr,
          kUnset,
          kUnset,
          kUnset,
          kUnset};
}

// Begins to make a communicator of two ranks that does not block.
void begin_beside(Rank& rank, const Id& id) {
  ncclConfig_t asked = config();
  asked.blocking = 0;
  asked.maxCTAs = 4;
  expect_result(ncclCommInitRankConfig(&rank.comm, rank.size, id, rank.rank, &asked), ncclInProgress,
                "ncclCommInitRankConfig");
}

// The communicator leaves a state.
ncclResult_t state_behind(ncclResult_t state, ncclComm_t comm) {
  ncclResult_t now = state;
  const bool over = eventually([&] {
    good(ncclCommGetAsyncError(comm, &now), "ncclCommGetAsyncError");
    return now != state;
  });
  expect(over, [&] { return "its state stays " + std::to_string(state); });
  return now;
}

void await(ncclComm_t comm) { good(state_behind(ncclInProgress, comm), "the state behind its making"); }

TEST_CASE("a communicator that does not block is made beside the program") {
  run_ranks(2, [](const Id& id, int number) {
    Rank rank{number, 2, nullptr, {}};
    begin_beside(rank, id);
    await(rank.comm);
    expect_sum(rank, rank.comm, 1);
    good(ncclCommFinalize(rank.comm), "ncclCommFinalize");
    good(ncclCommDestroy(rank.comm), "ncclCommDestroy");
  });
}

// The order of torch: once the parent says that it is over, the program calls it again.
TEST_CASE("splits of a communicator that does not block come in order, and before later calls") {
  run_ranks(2, [](const Id& id, int number) {
    Rank rank{number, 2, nullptr, {}};
    begin_beside(rank, id);
    await(rank.comm);
    for (int round = 0; round < 10; ++round) {
      ncclComm_t both = nullptr, turned = nullptr;
      expect_result(ncclCommSplit(rank.comm, 0, number, &both, nullptr), ncclInProgress, "ncclCommSplit");
      expect_result(ncclCommSplit(rank.comm, 0, -number, &turned, nullptr), ncclInProgress, "a second one");
      if (round % 2 == 0) await(rank.comm);
      expect_sum(rank, rank.comm, 1);
      int place = -1;
      good(ncclCommUserRank(turned, &place), "ncclCommUserRank");
      expect(place == 1 - number, "the splits have changed places");
      expect_sum(rank, both, 1);
      for (ncclComm_t comm : {both, turned}) good(ncclCommDestroy(comm), "ncclCommDestroy");
    }
    good(ncclCommDestroy(rank.comm), "ncclCommDestroy");
  });
}

TEST_CASE("a communicator that is destroyed while it is made says goodbye") {
  run_ranks(2, [](const Id& id, int number) {
    Rank rank{number, 2, nullptr, {}};
    begin_beside(rank, id);
    if (number == 1) await(rank.comm);
    ncclComm_t both = nullptr;
    const ncclResult_t split = ncclCommSplit(rank.comm, 0, 0, &both, nullptr);
    expect_result(split, ncclInProgress, "ncclCommSplit");
    if (number == 0) {
      good(ncclCommDestroy(both), "ncclCommDestroy of one that is split");
      good(ncclCommDestroy(rank.comm), "ncclCommDestroy of one that is made");
      return;
    }
    auto values = rank.buffer<int32_t>(10, 1);
    rank.mirror.to_device();
    rank.mirror.synchronize();
    void* const data = rank.at(values);
    ncclAllReduce(data, data, 10, ncclInt32, ncclSum, both, rank.stream());  // this one or a later one hears of it
    state_behind(ncclSuccess, both);
    refused(ncclAllReduce(data, data, 10, ncclInt32, ncclSum, both, rank.stream()), ncclRemoteError, "has left");
    for (ncclComm_t comm : {both, rank.comm}) good(ncclCommDestroy(comm), "ncclCommDestroy");
  });
}

TEST_CASE("what a group does not come to, since a call before it has failed, is not made") {
  run_joined(2, [](Rank& rank) {
    auto values = rank.buffer<int32_t>(10, 1);
    rank.mirror.to_device();
    ncclComm_t part = nullptr;
    int count = 0;
    ncclResult_t state = ncclSuccess;
    good(ncclGroupStart(), "ncclGroupStart");
    good(ncclAllReduce(nullptr, rank.at(values), 10, ncclInt32, ncclSum, rank.comm, rank.stream()), "in a group");
    good(ncclCommSplit(rank.comm, 0, 0, &part, nullptr), "ncclCommSplit in a group");
    refused(ncclGroupEnd(), ncclInvalidArgument, "null");
    good(ncclCommGetAsyncError(part, &state), "ncclCommGetAsyncError");
    expect(state == ncclInvalidUsage, [&] { return "its state is " + std::to_string(state); });
    refused(ncclCommCount(part, &count), ncclInvalidUsage, "was not made");
    good(ncclCommDestroy(part), "ncclCommDestroy");
    expect_sum(rank, rank.comm, 1);
  });
}

TEST_CASE("mistakes are refused, and the communicator goes on") {
  run_joined(2, [](Rank& rank) {
    auto values = rank.buffer<int32_t>(10, 1);
    rank.mirror.to_device();
    void* const data = rank.at(values);
    refused(ncclAllReduce(data, data, 10, ncclInt32, ncclSum, nullptr, rank.stream()), ncclInvalidArgument, "NULL");
    refused(ncclAllReduce(data, data, 10, ncclInt32, static_cast<ncclRedOp_t>(ncclNumOps), nullptr, rank.stream()),
            ncclInvalidArgument, "NULL");
    refused(ncclAllReduce(data, data, 10, static_cast<ncclDataType_t>(40), ncclSum, rank.comm, rank.stream()),
            ncclInvalidArgument, "data type 40");
    refused(ncclAllReduce(nullptr, data, 10, ncclInt32, ncclSum, rank.comm, rank.stream()), ncclInvalidArgument,
            "null");
    refused(ncclAllReduce(data, data, 10, ncclInt32, static_cast<ncclRedOp_t>(77), rank.comm, rank.stream()),
            ncclInvalidArgument, "operation 77");
    refused(ncclBroadcast(data, data, 10, ncclInt32, 2, rank.comm, rank.stream()), ncclInvalidArgument, "root");
    refused(ncclSend(data, 10, ncclInt32, 2, rank.comm, rank.stream()), ncclInvalidArgument, "destination is 2");
    refused(ncclRecv(data, 10, ncclInt32, -1, rank.comm, rank.stream()), ncclInvalidArgument, "peer is -1");
    refused(ncclAllReduce(values.data(), values.data(), 10, ncclInt32, ncclSum, rank.comm, rank.stream()),
            ncclInvalidArgument, "memory");
    refused(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupStart");
    ncclComm_t none = nullptr;
    refused(ncclCommInitRank(&none, 2, Id{}, 0), ncclInvalidArgument, "ncclGetUniqueId");
    ncclConfig_t wrong{};
    refused(ncclCommSplit(rank.comm, 0, 0, &none, &wrong), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
    expect_sum(rank, rank.comm, 1);
  });
}

TEST_CASE("a broadcast that is refused leaves the root's output as it was") {
  run_joined(1, [](Rank& rank) {
    auto values = rank.own(10);
    auto told = rank.buffer<int32_t>(10, -1);
    rank.mirror.to_device();
    good(ncclCommRevoke(rank.comm, 0), "ncclCommRevoke");
    refused(ncclBroadcast(rank.at(values), rank.at(told), 10, ncclInt32, 0, rank.comm, rank.stream()), ncclInvalidUsage,
            "ncclCommRevoke was called");
    rank.mirror.to_host();
    expect(told.front() == -1, "the output has changed");
  });
}

TEST_CASE("memory is allocated and registered") {
  run_joined(2, [](Rank& rank) {
    void* memory = nullptr;
    void* handle = nullptr;
    ncclWindow_t window = nullptr;
    good(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
    good(ncclCommRegister(rank.comm, memory, 4096, &handle), "ncclCommRegister");
    good(ncclCommWindowRegister(rank.comm, memory, 4096, &window, 0), "ncclCommWindowRegister");
    expect(handle != nullptr && window != nullptr, "no handle");
    good(ncclAllReduce(memory, memory, 1024, ncclFloat32, ncclSum, rank.comm, rank.stream()), "ncclAllReduce");
    rank.mirror.synchronize();
    good(ncclCommWindowDeregister(rank.comm, window), "ncclCommWindowDeregister");
    good(ncclCommDeregister(rank.comm, handle), "ncclCommDeregister");
    good(ncclMemFree(memory), "ncclMemFree");
  });
}

// --- the end

TEST_CASE("the others hear of an abort, and end") {
  run_ranks(3, [](const Id& id, int number) {
    Rank rank{number, 3, nullptr, {}};
    good(ncclCommInitRank(&rank.comm, 3, id, number), "ncclCommInitRank");
    expect_sum(rank, rank.comm, 3);
    if (number == 2) {
      good(ncclCommAbort(rank.comm), "ncclCommAbort");
      return;
    }
    expect_result(state_behind(ncclSuccess, rank.comm), ncclInvalidUsage, "the state");
    auto values = rank.buffer<int32_t>(10, 1);
    rank.mirror.to_device();
    rank.mirror.synchronize();
    refused(ncclAllReduce(rank.at(values), rank.at(values), 10, ncclInt32, ncclSum, rank.comm, rank.stream()),
            ncclInvalidUsage, "ncclCommAbort");
    good(ncclCommAbort(rank.comm), "ncclCommAbort");
  });
}

void abort_at_once(ncclComm_t comm) {
  const auto begin = std::chrono::steady_clock::now();
  good(ncclCommAbort(comm), "ncclCommAbort");
  expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20), "it waits for other ranks");
}

TEST_CASE("an abort ends the making of a communicator whose other ranks do not come") {
  run_ranks(1, [](const Id& id, int number) {
    Rank rank{number, 2, nullptr, {}};
    begin_beside(rank, id);
    abort_at_once(rank.comm);
  });
}

TEST_CASE("an abort ends a split that another rank does not make, and with it the communicator that is split") {
  run_ranks(2, [](const Id& id, int number) {
    Rank rank{number, 2, nullptr, {}};
    begin_beside(rank, id);
    await(rank.comm);
    if (number == 0) {
      ncclComm_t both = nullptr;
      expect_result(ncclCommSplit(rank.comm, 0, 0, &both, nullptr), ncclInProgress, "ncclCommSplit");
      abort_at_once(both);
    } else {
      expect_result(state_behind(ncclSuccess, rank.comm), ncclInvalidUsage, "the state");
    }
    good(ncclCommAbort(rank.comm), "ncclCommAbort");
  });
}

TEST_CASE("ranks that live go on after one that died") {
  const auto body = [](const Id& id, int number) {
    Rank rank{number, 3, nullptr, {}};
    good(ncclCommInitRank(&rank.comm, 3, id, number), "ncclCommInitRank");
    expect_sum(rank, rank.comm, 3);
    if (number == 2) {
      raise(SIGKILL);
    }
    expect_result(state_behind(ncclSuccess, rank.comm), ncclRemoteError, "the state");
    good(ncclCommRevoke(rank.comm, 0), "ncclCommRevoke");
    int dead = 2;
    ncclComm_t next = nullptr;
    good(ncclCommShrink(rank.comm, &dead, 1, &next, nullptr, 0), "ncclCommShrink");
    expect_sum(rank, next, 1);
    good(ncclCommDestroy(next), "ncclCommDestroy");
    good(ncclCommDestroy(rank.comm), "ncclCommDestroy");
  };
  run_ranks(3, body, 2);
}

TEST_CASE("one thread drives the ranks of several devices") {
  setenv("RONDO_DEVICE_LIBRARY", device_library(), 1);
  const auto driver = DeviceDriver::open(device_library());
  constexpr int kRanks = 2;
  for (int round = 0; round < 3; ++round) {
    ncclComm_t comms[kRanks] = {};
    good(ncclCommInitAll(comms, kRanks, nullptr), "ncclCommInitAll");
    std::vector<std::unique_ptr<Rank>> ranks;
    std::vector<std::pmr::vector<int32_t>> values;
    for (int r = 0; r < kRanks; ++r) {
      driver->check(driver->use(r), "use");
      ranks.emplace_back(new Rank{r, kRanks, comms[r], {}});
      values.push_back(ranks.back()->buffer<int32_t>(1000, r + 1));
      ranks.back()->mirror.to_device();
    }
    for (int call = 0; call < 50; ++call) {
      good(ncclGroupStart(), "ncclGroupStart");
      for (int r = 0; r < kRanks; ++r) {
        Rank& rank = *ranks[static_cast<size_t>(r)];
        void* const data = rank.at(values[static_cast<size_t>(r)]);
        good(ncclAllReduce(data, data, 1000, ncclInt32, ncclMax, rank.comm, rank.stream()), "ncclAllReduce");
      }
      good(ncclGroupEnd(), "ncclGroupEnd");
    }
    for (int r = 0; r < kRanks; ++r) {
      driver->check(driver->use(r), "use");
      ranks[static_cast<size_t>(r)]->mirror.to_host();
      CHECK(values[static_cast<size_t>(r)][999] == kRanks);
    }
    const auto before = std::chrono::steady_clock::now();
    for (ncclComm_t comm : comms) good(ncclCommDestroy(comm), "ncclCommDestroy");
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(5));
    values.clear();
  }
}

// What the ranks hold of the driver is back when their ends have been waited for.
TEST_CASE("the last end waits for all ranks of its process, also beside a communicator that could not be made") {
  setenv("RONDO_DEVICE_LIBRARY", device_library(), 1);
  const auto driver = DeviceDriver::open(device_library());
  const auto held = [] { return counted("fake_cuda_held") + counted("fake_cuda_events"); };
  const int before = held();
  ncclComm_t comms[2] = {};
  good(ncclCommInitAll(comms, 2, nullptr), "ncclCommInitAll");
  ncclComm_t part = nullptr;
  driver->check(driver->use(1), "use");
  good(ncclGroupStart(), "ncclGroupStart");
  good(ncclAllReduce(nullptr, nullptr, 10, ncclInt32, ncclSum, comms[1], nullptr), "in a group");
  good(ncclCommSplit(comms[1], 0, 0, &part, nullptr), "ncclCommSplit in a group");
  refused(ncclGroupEnd(), ncclInvalidArgument, "null");
  CHECK((on_a_gpu() || held() > before));
  for (ncclComm_t comm : {comms[1], comms[0]}) good(ncclCommDestroy(comm), "ncclCommDestroy");
  CHECK(held() == before);
  good(ncclCommDestroy(part), "ncclCommDestroy of the one that could not be made");
}

TEST_CASE("the default stream is that of the communicator's device, whatever the thread's is") {
  setenv("RONDO_DEVICE_LIBRARY", device_library(), 1);
  const auto driver = DeviceDriver::open(device_library());
  const int device = 1;
  ncclComm_t comm = nullptr;
  good(ncclCommInitAll(&comm, 1, &device), "ncclCommInitAll");
  driver->check(driver->use(device), "use");
  Rank rank{0, 1, comm, {}};
  auto values = rank.buffer<int32_t>(1000, 7);
  rank.mirror.to_device();
  driver->check(driver->use(0), "use");
  void* const data = rank.at(values);
  good(ncclAllReduce(data, data, 1000, ncclInt32, ncclSum, comm, nullptr), "ncclAllReduce");
  int now = -1;
  driver->check(driver->current(&now), "current");
  CHECK(now == 0);
  good(ncclCommDestroy(comm), "ncclCommDestroy");
}

// ncclCommInitAll() makes one, and the driver may refuse it a context.
TEST_CASE("a group of the library's that is left forgets its own jobs, and those of the program's around it run") {
  setenv("RONDO_DEVICE_LIBRARY", device_library(), 1);
  ncclComm comm({"", 0}, true), made({"", 0}, true);
  int ran = 0;
  const auto job = [&](int number, ncclComm* makes) {
    return nccl::Job{&comm, nccl::Job::Kind::kCollective, [&ran, number] { ran += number; }, makes};
  };
  ncclResult_t state = ncclSuccess;
  good(ncclGroupStart(), "ncclGroupStart");
  good(nccl::submit(job(1, nullptr)), "the program's");
  {
    nccl::Group inner;
    good(nccl::submit(job(10, &made)), "the library's");
  }
  good(nccl::submit(job(100, nullptr)), "the program's, behind it");
  good(ncclGroupEnd(), "ncclGroupEnd");
  CHECK(ran == 101);
  good(ncclCommGetAsyncError(&made, &state), "ncclCommGetAsyncError");
  CHECK(state == ncclInvalidUsage);  // nobody makes it
}

// An abort frees the communicator behind leave().
TEST_CASE("the end of a communicator waits for a thread that waits in ncclCommFinalize") {
  setenv("RONDO_DEVICE_LIBRARY", device_library(), 1);
  ncclComm comm({"", 0}, true);
  std::atomic<pid_t> waits{0}, ends{0};
  std::atomic<bool> has_ended{false};
  ncclResult_t result = ncclSuccess;
  std::thread waiting([&] {
    waits = gettid();
    result = ncclCommFinalize(&comm);
  });
  CHECK(eventually([&] { return waits != 0 && state_of(waits) == 'S'; }));
  std::thread ending([&] {
    ends = gettid();
    comm.leave();
    has_ended = true;
  });
  CHECK(eventually([&] { return has_ended || (ends != 0 && state_of(ends) == 'S'); }));
  CHECK_FALSE(has_ended);
  comm.give_up();  // nobody makes it
  waiting.join();
  ending.join();
  CHECK(result == ncclInvalidUsage);
}

}  // namespace
}  // namespace rondo::testing
