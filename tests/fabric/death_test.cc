#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
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

TEST_CASE("kill -9 of any rank is told to all others within a second, with its name") {
  for (size_t victim = 0; victim < 4; ++victim) {
    CAPTURE(victim);
    TempFolder folder;
    std::vector<FabricProcess> ranks = start_ranks(4, folder, kId, wait_for_failure);
    expect_ready(ranks);
    const std::string start = fmt::format("PEER_LOST [{0}] rank {0} (host ", victim);
    const std::string pid = fmt::format("pid {}) died or was cut off", ranks[victim].pid());
    const auto killed = Clock::now();
    ranks[victim].signal(SIGKILL);
    for (size_t rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string said = ranks[rank].hear(1'000);
      CAPTURE(said);
      CHECK(said.find(start) == 0);
      CHECK(said.find(pid) != std::string::npos);
      CHECK(Clock::now() - killed < std::chrono::seconds(1));
    }
  }
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

TEST_CASE("leaving in good order and ending is no death") {
  TempFolder folder;
  std::vector<FabricProcess> ranks = start_ranks(3, folder, kId, [](Member& member, const FabricProcess::Say& say) {
    say("ready");
    if (member.fabric->place().rank != 1) {
      const bool left = eventually([&] { return !member.events->left().empty(); });
      say(left && !member.events->failure() ? "left" : "wrong");
    }
    const bool all = member.fabric->close(kId, 0, in(5'000));
    member.fabric.reset();
    say(all && !member.events->failure() ? "fine" : "wrong");
  });
  expect_ready(ranks);
  for (size_t rank : {0, 2}) CHECK(ranks[rank].hear() == "left");
  for (FabricProcess& rank : ranks) {
    CHECK(rank.hear() == "fine");
    CHECK(rank.wait() == 0);
  }
}

TEST_CASE("a stopped rank that goes on is no failure") {
  TempFolder folder;
  std::vector<FabricProcess> ranks = start_ranks(2, folder, kId, [](Member& member, const FabricProcess::Say& say) {
    say("ready");
    if (member.fabric->place().rank == 1) ::raise(SIGSTOP);
    const bool all = member.fabric->close(kId, 0, in(5'000));
    say(all && !member.events->failure() ? "fine" : "wrong");
  });
  expect_ready(ranks);
  CHECK(ranks[0].hear(300) == "");  // it waits for the goodbye
  ranks[1].signal(SIGCONT);
  for (FabricProcess& rank : ranks) CHECK(rank.hear() == "fine");
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

TEST_CASE("a forked child's calls are invalid, its end is not the parent's, and its parent's death is seen") {
  TempFolder folder;
  std::vector<FabricProcess> ranks = start_ranks(2, folder, kId, [](Member& member, const FabricProcess::Say& say) {
    say("ready");
    if (member.fabric->place().rank == 1) {
      const pid_t child = ::fork();
      if (child == 0) {
        bool invalid = false;
        try {
          member.fabric->abort(kId, {ErrorCode::kAborted, "from a child", {}});
        } catch (const Exception& failure) {
          invalid = failure.code() == ErrorCode::kInvalid;
        }
        member.fabric.reset();
        ::_exit(invalid ? 0 : 1);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      say(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "invalid" : "valid");
      if (::fork() == 0) {  // outlives its parent, with nothing closed by hand
        ::alarm(10);
        ::pause();
        ::_exit(0);
      }
      say(member.events->failure() ? "disturbed" : "undisturbed");
      ::pause();
    }
    wait_for_failure(member, say);
  });
  expect_ready(ranks);
  CHECK(ranks[0].hear() == "ready");
  CHECK(ranks[1].hear() == "invalid");
  CHECK(ranks[1].hear() == "undisturbed");
  ranks[1].signal(SIGKILL);
  CHECK(ranks[0].hear(1'000).find("PEER_LOST [1] ") == 0);
}

}  // namespace
}  // namespace rondo::testing
