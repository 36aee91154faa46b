#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "rondo/error.h"
#include "tests/fabric/cluster.h"
#include "transport/fabrics/process_fabric.h"
#include "transport/store/memory_store.h"

namespace rondo::testing {
namespace {

std::vector<Launch> launches_of(int world) {
  std::vector<Launch> launches;
  for (int rank = 0; rank < world; ++rank) launches.push_back(launch_of(rank, world));
  return launches;
}

TEST_CASE("worlds of 1 to 8 join, know each other and leave without an error") {
  for (int world = 1; world <= 8; ++world) {
    CAPTURE(world);
    std::vector<Member> members = open_world(world, 77);
    for (int rank = 0; rank < world; ++rank) {
      const Fabric& fabric = *members[static_cast<size_t>(rank)].fabric;
      CHECK(fabric.place().rank == rank);
      CHECK(fabric.place().world == world);
      CHECK(fabric.place().local_world == world);
      CHECK(fabric.place().local_rank == rank);
      CHECK(fabric.topology().host == std::vector<int>(static_cast<size_t>(world), 0));
      CHECK(fabric.peer_name(rank).find(fmt::format("rank {} (host ", rank)) == 0);
    }
    const auto begin = Clock::now();
    destroy_world(members, 77);
    CHECK(Clock::now() - begin < std::chrono::seconds(1));  // nobody waited for a deadline
    for (const Member& member : members) CHECK(!member.events->failure());
  }
}

TEST_CASE("settings that must be shared and differ are refused on every rank, named with both values") {
  std::vector<Config> configs(3, test_config());
  configs[2].slice_bytes = 65536;
  const auto joined = join_all(launches_of(3), std::make_shared<MemoryStore>(), configs);
  for (const Joined& rank : joined) {
    REQUIRE(rank.error);
    CHECK(rank.error->code == ErrorCode::kBootstrap);
    CHECK(rank.error->message ==
          "rank 2 cannot join: settings that must be equal differ: RONDO_SLICE_BYTES=65536, but "
          "RONDO_SLICE_BYTES=262144 on rank 0");
    CHECK(rank.error->ranks == std::vector<int>{2});
  }
}

// The cards come late to who asks for them.
class LateStore : public MemoryStore {
 public:
  std::string get(std::string_view key, Deadline deadline) override {
    if (key != "roster/part/0") return MemoryStore::get(key, deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    fetched = true;
    return MemoryStore::get(key, deadline);
  }
  std::atomic<bool> fetched{false};
};

TEST_CASE("rank 0, which may serve the store, stays until all have the cards, also where these do not fit") {
  const auto store = std::make_shared<LateStore>();
  Config other = test_config();
  other.slice_bytes = 65536;
  std::thread rank_1([&] { CHECK_THROWS_AS(join_processes(launch_of(1, 2), store, other, in(10'000)), Exception); });
  CHECK_THROWS_AS(join_processes(launch_of(0, 2), store, test_config(), in(10'000)), Exception);
  CHECK(store->fetched);
  rank_1.join();
}

TEST_CASE("settings of one's own may differ") {
  std::vector<Config> configs(2, test_config());
  configs[1].spin_us = 5;
  configs[1].handshake_timeout_ms = 1'000;
  for (const Joined& rank : join_all(launches_of(2), std::make_shared<MemoryStore>(), configs)) CHECK(!rank.error);
}

TEST_CASE("fault 35: another job's rank is refused with both jobs named") {
  auto launches = launches_of(2);
  launches[1].job_id = "another";
  const auto joined = join_all(launches, std::make_shared<MemoryStore>(), {test_config()});
  for (const Joined& rank : joined) {
    REQUIRE(rank.error);
    CHECK(rank.error->message == "rank 1 cannot join: it belongs to job \"another\", rank 0 to job \"test job\"");
  }
}

TEST_CASE("an unknown congestion control is refused before anything is opened") {
  Config config = test_config();
  config.congestion_control = "nonesuch";
  const auto joined = join_all(launches_of(1), std::make_shared<MemoryStore>(), {config});
  REQUIRE(joined[0].error);
  CHECK(joined[0].error->code == ErrorCode::kInvalid);
  CHECK(joined[0].error->message.find("RONDO_TCP_CONGESTION=nonesuch") == 0);
}

}  // namespace
}  // namespace rondo::testing
