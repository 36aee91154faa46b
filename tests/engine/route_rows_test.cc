// Eighty equal calls in a row end, by default settings, whatever memory the buffers lie in: long enough that every
// way of a call is tried, at sizes where registered buffers are used over links and over windows.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <memory_resource>

#include "ring/base/types.h"
#include "rondo/communicator.h"
#include "tests/engine/cases.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr int kWorld = RONDO_TEST_WORLD;  // BUILD says which
constexpr int kCalls = 80;
constexpr uint64_t kTotals[] = {80'000 * kWorld, 131'072, 262'143, 300'000};

enum class Buffers { kRegistered, kPlain, kSomeRanks, kAnyCall };

// Ranks draw apart: it is each one's own business where its buffers lie.
bool registered(Buffers buffers, int rank, Random& random) {
  switch (buffers) {
    case Buffers::kRegistered:
      return true;
    case Buffers::kPlain:
      return false;
    case Buffers::kSomeRanks:
      return rank % 2 == 0;
    case Buffers::kAnyCall:
      return random.chance(70);
  }
  return false;
}

void run_row(Communicator& group, const CollectiveCase& what, Buffers buffers) {
  RegisteredMemory memory(group);
  const CollectiveRank plain(what, group.rank()), mapped(what, group.rank(), &memory);
  Random random(static_cast<uint64_t>(group.rank()) + what.count);
  for (int call = 0; call < kCalls; ++call) {
    group.run((registered(buffers, group.rank(), random) ? mapped : plain).call());
  }
  for (const CollectiveRank* rank : {&plain, &mapped}) {
    group.run(rank->call());
    expect(rank->check().empty(), [&] { return fmt::format("{}: {}", what.describe(), rank->check()); });
  }
}

}  // namespace

TEST_CASE("rows of equal calls on registered, plain and mixed buffers") {
  RankGroup shape = ranks_over("shm", kWorld);
  shape.config.timeout_ms = 20'000;  // a row that goes round in circles ends there
  for (const Buffers buffers : {Buffers::kRegistered, Buffers::kPlain, Buffers::kSomeRanks, Buffers::kAnyCall}) {
    CAPTURE(static_cast<int>(buffers));
    CHECK(run_processes(shape, [buffers](Communicator& group) {
            for (int c = 0; c < kCollectives; ++c) {
              CollectiveCase what;
              what.collective = static_cast<Collective>(c);
              if (what.collective == Collective::kBarrier || collective_scans(what.collective)) continue;
              what.world = kWorld;
              what.dtype = DType::kInt8;
              what.root = kWorld - 1;
              const bool whole = what.collective == Collective::kAllReduce || what.collective == Collective::kReduce ||
                                 what.collective == Collective::kBroadcast;
              for (const uint64_t bytes : kTotals) {
                what.count = whole ? bytes : bytes / kWorld;
                run_row(group, what, buffers);
              }
            }
          }) == "");
  }
}

}  // namespace rondo::testing
