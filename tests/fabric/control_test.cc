#include <doctest/doctest.h>

#include "ring/base/process_starts.h"
#include "tests/fabric/cluster.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kId = 9;

CallState in_call(uint64_t sequence, uint64_t fingerprint, const std::string& text) {
  CallState state;
  state.current = sequence;
  state.fingerprint = fingerprint;
  state.text = text;
  return state;
}

TEST_CASE("an abort reaches every rank once, with the same class, text and culprit") {
  std::vector<Member> members = open_world(4, kId);
  members[2].fabric->abort(kId, {ErrorCode::kAborted, "rank 2 called abort(\"enough\")", {2}});
  for (Member& member : members) {
    const Error error = member.events->wait_failure(1'000);
    CHECK(error.code == ErrorCode::kAborted);
    CHECK(error.message == "rank 2 called abort(\"enough\")");
    CHECK(error.ranks == std::vector<int>{2});
  }
  members[1].fabric->abort(kId, {ErrorCode::kAborted, "another", {1}});
  destroy_world(members, kId);
  for (Member& member : members) CHECK(member.events->failures() == 1);
}

TEST_CASE("an abort of one communicator leaves the others alone, and one that comes before open() is kept") {
  std::vector<Member> members = open_world(2, kId);
  Member early = open_all(members[0].fabric, kId + 1);
  early.fabric->abort(kId + 1, {ErrorCode::kAborted, "early", {0}});
  early.events->wait_failure();
  Member late = open_all(members[1].fabric, kId + 1);
  CHECK(late.events->wait_failure().message == "early");
  CHECK(!members[0].events->failure());
  CHECK(!members[1].events->failure());
  std::vector<Member> pair;
  pair.push_back(std::move(early));
  pair.push_back(std::move(late));
  in_parallel(2, [&](int i) { pair[static_cast<size_t>(i)].fabric->close(kId + 1, 0, in(2'000)); });
  pair.clear();
  destroy_world(members, kId);
}

TEST_CASE("a communicator that one rank cannot open fails on the others, whenever they open it") {
  // Proves: and on no other, and that rank waits for nobody.
  std::vector<Member> members = open_world(3, kId);
  std::vector<Member> pair;
  pair.push_back(open_all(members[0].fabric, kId + 1));
  members[2].fabric->decline(kId + 1, {0, 1, 2}, {ErrorCode::kSystem, "no descriptors", {2}});
  CHECK(pair[0].events->wait_failure().message == "no descriptors");
  pair.push_back(open_all(members[1].fabric, kId + 1));
  const Error error = pair[1].events->wait_failure();
  CHECK(error.code == ErrorCode::kSystem);
  CHECK(error.ranks == std::vector<int>{2});
  for (const Member& member : members) CHECK(!member.events->failure());
  in_parallel(2, [&](int i) { pair[static_cast<size_t>(i)].fabric->close(kId + 1, 0, in(2'000)); });
  pair.clear();
  destroy_world(members, kId);
}

TEST_CASE("a rank in its own start waits in no second group, and one that has its group and starts again does") {
  const std::string second = "which makes a second group";
  std::vector<Member> members = open_world(2, kId);
  members[0].events->set_state(in_call(4, 111, "barrier()"));
  members[1].events->set_state(in_call(3, 0, ""));
  const StartUnderWay start;
  const auto blame = [&] {
    members[0].fabric->stalled(kId, 4);
    return members[0].fabric->blame(kId, 4);
  };
  CHECK(eventually([&] { return blame().find("has not begun it") != std::string::npos; }));
  CHECK(blame().find(second) == std::string::npos);
  members[1].fabric->made(kId);
  CHECK(eventually([&] { return blame().find(second) != std::string::npos; }));
  destroy_world(members, kId);
}

TEST_CASE("a process that leaves while another keeps its communicator open is gone in good order, and does not wait") {
  std::vector<Member> members = open_world(2, kId);
  const auto begin = Clock::now();
  members[0].fabric.reset();  // without closing the communicator
  CHECK(Clock::now() - begin < std::chrono::seconds(1));
  CHECK(eventually([&] { return members[1].events->left().size() == 1; }));
  CHECK(!members[1].events->failure());
  CHECK(members[1].fabric->close(kId, 0, in(5'000)));
}

TEST_CASE("a failed data link is blamed on the peer after 100 ms, everywhere") {
  std::vector<Member> members = open_world(3, kId);
  const auto begin = Clock::now();
  members[0].fabric->link_failed(kId, 1, {ErrorCode::kPeerLost, "it closed the connection", {}});
  for (Member& member : members) {
    const Error error = member.events->wait_failure(1'000);
    CHECK(Clock::now() - begin >= std::chrono::milliseconds(99));  // its clock counts whole milliseconds
    CHECK(error.code == ErrorCode::kPeerLost);
    CHECK(error.ranks == std::vector<int>{1});
    CHECK(error.message.find("rank 0 (host") != std::string::npos);
    CHECK(error.message.find("rank 1 (host") != std::string::npos);
  }
  destroy_world(members, kId);
}

}  // namespace
}  // namespace rondo::testing
