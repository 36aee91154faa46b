// Processes without a rank wait at the door: the ranks see how many live, give seats in the order of arrival, notice
// who has gone, and say when the job has ended.
#include "transport/rendezvous/door.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdint>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "rondo/error.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/bytes.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_folder.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/served_store.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using test::in_ms;
using testing::Child;
using testing::eventually;
using testing::TempFolder;

Config quiet() {
  Config config;
  config.debug = "off";
  return config;
}

Launch launch_at(const std::string& addresses, const std::string& job = "job") {
  Launch launch;
  launch.place = Place{-1, -1, -1, -1, -1, -1};
  launch.job_id = job;
  launch.newcomers = addresses;
  launch.secret = {Secret::Source::kFile, "0123456789abcdef", "a test's"};
  return launch;
}

// Asks for a seat, and says which rank it got, or why it got none.
Child newcomer(const Launch& launch) {
  return Child([launch](testing::Parent& test) {
    try {
      const Seat seat = await_seat(launch, quiet(), in_ms(20'000));
      test.say(std::to_string(seat.rank) + " of " + std::to_string(seat.world) + " at " + seat.rendezvous);
      test.await();
    } catch (const Exception& failure) {
      test.say(failure.what());
    }
    return 0;
  });
}

std::string why(const Launch& launch, Store::Deadline deadline) {
  return testing::error_of([&] { await_seat(launch, quiet(), deadline); }).message;
}

TEST_CASE("seats go to those that came first; who has gone is missed, before and after") {
  const TempFolder folder;
  const std::string address = "unix://" + folder.path("door");
  const Launch launch = launch_at("tcp://127.0.0.1:1," + address);  // nobody serves the first
  std::vector<Child> children;
  children.push_back(newcomer(launch));  // before there is a door
  Door door(launch_at(address), quiet(), in_ms(5'000));
  REQUIRE(eventually([&] { return door.waiting() == 1; }));
  for (int i = 2; i < 5; ++i) {
    children.push_back(newcomer(launch));
    REQUIRE(eventually([&] { return door.waiting() == i; }));
  }
  ::kill(children[1].pid(), SIGKILL);
  CHECK(eventually([&] { return door.waiting() == 3; }));
  const auto first = door.await(2, in_ms(5'000));
  REQUIRE(first.size() == 2);
  CHECK(door.await(4, in_ms(50)).size() == 3);
  Seat seat{5, 7, 1, 1s, "", "", {}};
  const auto store = door.serve_start(seat, in_ms(5'000));
  door.admit(first, seat);
  CHECK(children[0].hear() == "5 of 7 at " + seat.rendezvous);
  CHECK(children[2].hear() == "6 of 7 at " + seat.rendezvous);
  CHECK(launch_of(launch, seat, in_ms(5'000)).one_host);
  CHECK(door.waiting() == 1);
  CHECK(!door.any_gone(first));
  children[2].tell("end");
  CHECK(eventually([&] { return door.any_gone(first); }));
  door.end();
  CHECK(children[3].hear() == "the job has ended, and has taken no newcomer in");
}

TEST_CASE("who is refused at the door, and who waits in vain") {
  const TempFolder folder;
  const Launch launch = launch_at("unix://" + folder.path("door"));
  CHECK(why(launch, in_ms(100)).find("no rank took this process in within 1") == 0);
  Door door(launch, quiet(), in_ms(5'000));
  CHECK(
      why(launch_at(launch.newcomers, "another job"), in_ms(5'000)).find("this is job \"job\", not \"another job\"") !=
      std::string::npos);
  Launch stranger = launch;
  stranger.secret.bytes = "fedcba9876543210";
  CHECK(why(stranger, in_ms(5'000)).find("secret") != std::string::npos);
  CHECK_THROWS_AS(Door(launch, quiet(), in_ms(100)), Exception);
  CHECK_THROWS_WITH_AS(Door(launch_at("tcp://192.0.2.1:1"), quiet(), in_ms(100)),
                       "RONDO_JOIN=\"tcp://192.0.2.1:1\" names no address of this machine: newcomers could not "
                       "find this rank",
                       Exception);
  // Not after the look-up of a name, which takes as long as it likes.
  CHECK_THROWS_WITH_AS(Door(launch_at("tcp://localhost:1"), quiet(), in_ms(-1'000)),
                       doctest::Contains("no name server has answered by the deadline"), Exception);
  for (const char* wrong : {"file:///tmp/x", "tcp://host:0", "unix:///tmp/x,pmi:"}) {
    CHECK_THROWS_AS(check_door_addresses(wrong), Exception);
  }
}

TEST_CASE(
    "a seat of a rank that cannot be, in a world that cannot be, or with a patience that cannot be is malformed") {
  const TempFolder folder;
  const Launch launch = launch_at("unix://" + folder.path("door"));
  const RendezvousUrl url = parse_rendezvous(launch.newcomers);
  const StoreServer door(server_options(url, launch, quiet(), in_ms(5'000)));
  StreamStore ranks(client_options(url, launch, quiet()));
  constexpr uint64_t kMonth = 30ull * 24 * 3600 * 1000;
  int newcomers = 0;
  const auto answer = [&](uint32_t rank, uint32_t world, uint64_t patience) {
    const std::string seat =
        ByteWriter().u32(rank).u32(world).u64(1).u64(patience).text("job").text(launch.newcomers).take();
    ranks.put(fmt::format("seat/{:012}", ++newcomers), seat, in_ms(5'000));
    return why(launch, in_ms(5'000));
  };
  CHECK(answer(2, 3, 1) == "");
  CHECK(answer(999'999, 1'000'000, kMonth) == "");
  const std::string malformed = "the ranks' answer to this newcomer is malformed";
  CHECK(answer(3, 3, 1) == malformed);
  CHECK(answer(0, 1'000'001, 1) == malformed);
  CHECK(answer(0, 0x7fffffff, 1) == malformed);
  CHECK(answer(0xffffffff, 3, 1) == malformed);
  CHECK(answer(0, 0xffffffff, 1) == malformed);
  for (const uint64_t patience : {uint64_t{0}, kMonth + 1, uint64_t{1} << 63, UINT64_MAX}) {
    CHECK(answer(2, 3, patience) == malformed);
  }
}

TEST_CASE("a path to which no start can add its name is refused at once, and one byte less serves") {
  const TempFolder folder;
  const std::string begin = "unix://" + folder.path("");
  const std::string longest = begin + std::string(std::strlen("unix://") + 90 - begin.size(), 'd');
  CHECK_THROWS_WITH_AS(check_door_addresses(longest + "d"), doctest::Contains("a path has 90 bytes at most"),
                       Exception);
  check_door_addresses(longest);
  const Door door(launch_at(longest), quiet(), in_ms(5'000));
  Seat seat{2, 3, 1, 1s, "", "", {}};
  CHECK(door.serve_start(seat, in_ms(5'000)) != nullptr);
}

}  // namespace
}  // namespace rondo
