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

}  // namespace
}  // namespace rondo::testing
