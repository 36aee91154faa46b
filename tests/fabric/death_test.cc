#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include "rondo/error.h"
#include "tests/fabric/processes.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kId = 3;

std::string describe(const Error& error) {
  return fmt::format("{} [{}] {}", error_code_name(error.code), fmt::join(error.ranks, ","), error.message);
}

// Says "ready", waits for a failure and says it; stays until it is killed, since others would name it, too.
void wait_for_failure(Member& member, const FabricProcess::Say& say) {
  say("ready");
  const bool came = eventually([&] { return member.events->failure().has_value(); }, 10'000);
  say(came ? describe(*member.events->failure()) : "nothing came");
  ::pause();
}

void expect_ready(std::vector<FabricProcess>& ranks) {
  for (FabricProcess& rank : ranks) REQUIRE(rank.hear() == "ready");
}

TEST_CASE("fault 8: two ranks that die at once are both named") {
  TempFolder folder;
  std::vector<FabricProcess> ranks = start_ranks(5, folder, kId, wait_for_failure);
  expect_ready(ranks);
  ranks[1].signal(SIGKILL);
  ranks[3].signal(SIGKILL);
  for (size_t rank : {0, 2, 4}) {
    const std::string said = ranks[rank].hear(1'000);
    CAPTURE(said);
    CHECK(said.find("PEER_LOST [1,3] ") == 0);
    CHECK(said.find("rank 1 (host ") != std::string::npos);
    CHECK(said.find("rank 3 (host ") != std::string::npos);
  }
}

TEST_CASE("an abort reaches the others although its process ends right after close()") {
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    TempFolder folder;
    std::vector<FabricProcess> ranks = start_ranks(2, folder, kId, [](Member& member, const FabricProcess::Say& say) {
      if (member.fabric->place().rank == 1) return wait_for_failure(member, say);
      member.fabric->abort(kId, {ErrorCode::kAborted, "rank 0 has had enough", {0}});
      member.fabric->close(kId, 0, in(5'000));
    });
    REQUIRE(ranks[1].hear() == "ready");
    CHECK(ranks[1].hear() == "ABORTED [0] rank 0 has had enough");
  }
}

}  // namespace
}  // namespace rondo::testing
