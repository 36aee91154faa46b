#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>
#include <map>
#include <thread>
#include <tuple>

#include "tests/fabric/cluster.h"
#include "tests/support/sockets.h"
#include "transport/armed_sleep.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kId = 5;

// Takes the link, as the engine does: asks, sleeps on the doorbell, asks again.
std::unique_ptr<Link> take(Member& member, int peer, const LinkShape& shape) {
  const auto deadline = in(5'000);
  while (Clock::now() < deadline && !member.events->failure()) {
    ArmedSleep sleep(*member.doorbell, *member.fabric->sleepers());
    if (auto link = member.fabric->take_link({kId, peer}, shape)) return link;
    CHECK(sleep.wait(deadline).ok());
  }
  return nullptr;
}

bool pump_until(Link& one, Link& other, const std::function<bool()>& condition) {
  return eventually([&] {
    one.pump();
    other.pump();
    return condition();
  });
}

// A slice each way between two links of one process.
void exchange(Link& one, Link& other, char token) {
  std::string there(3'000, token);
  std::string back(1'000, static_cast<char>(token + 1));
  std::string got_there(there.size(), 0);
  std::string got_back(back.size(), 0);
  const SliceTag tag_there{1, 7, static_cast<uint32_t>(there.size())};
  const SliceTag tag_back{1, 7, static_cast<uint32_t>(back.size())};
  other.post(tag_there, reinterpret_cast<std::byte*>(got_there.data()));
  one.post(tag_back, reinterpret_cast<std::byte*>(got_back.data()));
  one.send(tag_there, reinterpret_cast<const std::byte*>(there.data()));
  other.send(tag_back, reinterpret_cast<const std::byte*>(back.data()));
  REQUIRE(pump_until(one, other, [&] { return one.arrived() != nullptr && other.arrived() != nullptr; }));
  CHECK(got_there == there);
  CHECK(got_back == back);
  one.release();
  other.release();
}

TEST_CASE(
    "links of every pair and number of connections carry bytes both ways, sealed or not, whichever rank asks first") {
  for (uint32_t connections : {1u, 3u}) {
    Config config = test_config();
    config.connections = connections;
    config.encrypt = connections == 3;
    std::vector<Member> members = open_world(4, kId, config);
    std::map<std::pair<int, int>, std::unique_ptr<Link>> links;
    std::mutex mutex;
    in_parallel(4, [&](int rank) {
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == rank) continue;
        Member& member = members[static_cast<size_t>(rank)];
        auto link = take(member, peer, {5, 4096});
        CHECK(member.fabric->take_link({kId, peer}, {5, 4096}) == nullptr);  // once
        std::lock_guard lock(mutex);
        links[{rank, peer}] = std::move(link);
      }
    });
    char token = 'a';
    for (int rank = 0; rank < 4; ++rank) {
      for (int peer = rank + 1; peer < 4; ++peer) {
        CAPTURE(rank);
        CAPTURE(peer);
        REQUIRE(links[{rank, peer}]);
        REQUIRE(links[{peer, rank}]);
        exchange(*links[{rank, peer}], *links[{peer, rank}], token++);
      }
    }
    links.clear();
    destroy_world(members, kId);
    for (const Member& member : members) CHECK(!member.events->failure());
  }
}

TEST_CASE("a link is made by the lower rank's wish alone, before the higher rank opens the communicator") {
  auto fabrics = join_world(2);
  std::vector<Member> members(2);
  members[0] = open_all(fabrics[0], kId);
  auto low = take(members[0], 1, {2, 4096});  // the higher rank's I/O thread dials
  REQUIRE(low);
  members[1] = open_all(fabrics[1], kId);
  auto high = take(members[1], 0, {2, 4096});
  REQUIRE(high);
  exchange(*low, *high, 'x');
  low.reset();
  high.reset();
  fabrics.clear();
  destroy_world(members, kId);
}

TEST_CASE("a rank that cannot open a communicator closes the connections that the others have made for it") {
  auto fabrics = join_world(2);
  Member member = open_all(fabrics[1], kId);
  auto link = take(member, 0, {2, 4096});
  REQUIRE(link);
  fabrics[0]->decline(kId, {0, 1}, {ErrorCode::kSystem, "no memory", {0}});
  CHECK(member.events->wait_failure().message == "no memory");
  link->post({1, 7, 100}, nullptr);
  CHECK(eventually([&] {
    link->pump();
    return link->error() != nullptr;
  }));
  link.reset();
  member.fabric->close(kId, 0, in(1'000));
}

TEST_CASE("a link of a communicator that one is no member of is refused") {
  std::vector<Member> members = open_world(3, kId, test_config());
  // A communicator of ranks 0 and 1 that rank 2 opens as well.
  constexpr uint64_t kPair = 77;
  Member others[3];
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<int> ranks = rank == 2 ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1};
    others[rank] = open_of(members[static_cast<size_t>(rank)].fabric, kPair, ranks);
  }
  CHECK(others[2].fabric->take_link({kPair, 0}, {2, 4096}) == nullptr);
  CHECK(others[2].events->wait_failure().message.find("you are no member of this communicator") != std::string::npos);
  for (Member& other : others) other.fabric->close(kPair, 0, in(1'000));
  for (Member& other : others) other.fabric.reset();
  destroy_world(members, kId);
}

std::unique_ptr<ByteStream> take_stream(Member& member, int peer) {
  std::unique_ptr<ByteStream> stream;
  eventually([&] { return (stream = member.fabric->take_stream_to(kId, peer)) != nullptr; });
  return stream;
}

TEST_CASE("streams carry bytes from their sender, and tell the receiver who it is") {
  std::vector<Member> members = open_world(3, kId);
  for (int sender : {0, 2}) {
    auto to = take_stream(members[static_cast<size_t>(sender)], 1);
    REQUIRE(to);
    std::optional<std::pair<int, std::unique_ptr<ByteStream>>> from;
    REQUIRE(eventually([&] { return (from = members[1].fabric->take_stream_from(kId)).has_value(); }));
    CHECK(from->first == sender);
    char out[] = "hello";
    iovec part{out, 5};
    CHECK(to->write(&part, 1) == 5);
    char in_bytes[8] = {};
    iovec into{in_bytes, 8};
    REQUIRE(eventually([&] { return from->second->read(&into, 1) == 5; }));
    CHECK(std::string(in_bytes) == "hello");
    // Its end is an error that names the sender.
    to.reset();
    REQUIRE(eventually([&] { return from->second->read(&into, 1) == -1; }));
    CHECK(from->second->error().code == ErrorCode::kPeerLost);
    CHECK(from->second->error().message.find("rank " + std::to_string(sender) + " (host ") == 0);
  }
  destroy_world(members, kId);
}

TEST_CASE("a link that cannot be connected fails the communicator on both sides, naming both ends, also by CONNECT") {
  for (int asker : {0, 1}) {
    CAPTURE(asker);
    std::vector<Member> members = open_world(2, kId);
    for (const int door : listening_sockets()) ::shutdown(door, SHUT_RDWR);  // they refuse connections from now on
    CHECK(members[static_cast<size_t>(asker)].fabric->take_link({kId, 1 - asker}, {2, 4096}) == nullptr);
    for (Member& member : members) {
      const Error error = member.events->wait_failure(3'000);
      CAPTURE(error.message);
      CHECK(error.code == ErrorCode::kNetwork);
      CHECK(error.message.find("the data connection between rank 1 (host ") == 0);
      CHECK(error.message.find("and rank 0 (host ") != std::string::npos);
      CHECK(error.message.find("Connection refused") != std::string::npos);
    }
    destroy_world(members, kId);
  }
}

TEST_CASE("links that nobody takes are closed with the communicator") {
  const size_t before = open_descriptors();
  auto fabrics = join_world(2);
  std::vector<Member> members(2);
  for (size_t rank = 0; rank < 2; ++rank) members[rank] = open_all(fabrics[rank], kId);
  const size_t joined = open_descriptors();
  CHECK(members[0].fabric->take_link({kId, 1}, {2, 4096}) == nullptr);
  CHECK(eventually([&] { return open_descriptors() == joined + 2; }));  // both ends
  in_parallel(2, [&](int rank) { members[static_cast<size_t>(rank)].fabric->close(kId, 0, in(2'000)); });
  CHECK(eventually([&] { return open_descriptors() == joined; }));  // a handshake under way ends a moment later
  fabrics.clear();
  in_parallel(2, [&](int rank) { members[static_cast<size_t>(rank)].fabric.reset(); });
  members.clear();
  CHECK(open_descriptors() == before);
}

}  // namespace
}  // namespace rondo::testing
