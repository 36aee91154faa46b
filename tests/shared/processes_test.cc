// Ranks as processes: what the kernel refuses becomes TCP, agreed by both ends; a rank killed while it starts. What
// kill -9 of all leaves behind: tests/faults/traces_test.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "ring/base/file_text.h"
#include "rondo/error.h"
#include "tests/fabric/cluster.h"
#include "tests/fabric/processes.h"
#include "tests/support/refuse.h"
#include "transport/fabrics/process_fabric.h"
#include "transport/rendezvous/launch.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kId = 5;

// Bytes go from every rank to every other over a link.
bool exchange(Member& member) {
  const int world = member.fabric->place().world;
  std::vector<std::unique_ptr<Link>> links(static_cast<size_t>(world));
  const int rank = member.fabric->place().rank;
  const SliceTag tag{1, 2, 8};
  uint64_t mine = static_cast<uint64_t>(rank) + 100;
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    auto& link = links[static_cast<size_t>(peer)];
    if (!eventually([&] { return (link = member.fabric->take_link({kId, peer}, {3, 4096})) != nullptr; })) return false;
    link->post(tag, nullptr);
    link->send(tag, reinterpret_cast<const std::byte*>(&mine));
  }
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    Link& link = *links[static_cast<size_t>(peer)];
    if (!eventually([&] { return link.pump(), link.arrived() != nullptr; })) return false;
    uint64_t theirs = 0;
    std::memcpy(&theirs, link.arrived(), sizeof theirs);
    if (theirs != static_cast<uint64_t>(peer) + 100) return false;
  }
  return member.fabric->close(kId, 0, in(5'000));
}

// One process a rank: does `before`, joins, exchanges bytes with all. Says "island text" or "error text", in order.
std::vector<std::string> outcome(int world, const Config& config, const std::function<void(int rank)>& before) {
  const TempFolder folder;
  const auto body = [&](int rank) -> std::string {
    try {
      before(rank);
      Launch launch = launch_of(rank, world);
      launch.rendezvous = "file://" + folder.path("meeting");
      const auto store = open_store(launch, config, in(10'000));
      Member member = open_all(join_processes(launch, store, config, in(10'000)), kId);
      std::string text;
      for (const int island : member.fabric->topology().island) text += fmt::format("{} ", island);
      SharedMemory* memory = member.fabric->shared_memory();
      text += memory == nullptr ? "alone" : memory->can_pull() ? "pulls" : "shares";
      return exchange(member) ? text : text + ", but no bytes came";
    } catch (const Exception& failure) {
      return fmt::format("{}: {}", error_code_name(failure.code()), failure.what());
    }
  };
  std::vector<Child> children;
  for (int rank = 0; rank < world; ++rank) {
    children.emplace_back([&](Parent& test) {
      test.say(body(rank));
      return 0;
    });
  }
  std::vector<std::string> lines;
  for (Child& child : children) {
    const std::string line = child.hear();
    const int code = child.wait();
    lines.push_back(code == 0 ? line : fmt::format("ended with {}", code));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST_CASE("processes of one host are an island, and pull works where the kernel lets it") {
  CHECK(outcome(3, test_config("auto"), [](int) {}) == Lines(3, "0 0 0 pulls"));
}

TEST_CASE("where the kernel refuses process_vm_readv to one rank, none pulls, and all say so when asked") {
  const TempFolder said;
  Config config = test_config("auto");
  config.debug = "info";
  const auto one = [&](int rank) {
    const int file = ::open(said.path(std::to_string(rank)).c_str(), O_CREAT | O_WRONLY, 0600);
    ::dup2(file, STDERR_FILENO);
    if (rank == 1) refuse(SYS_process_vm_readv);
  };
  CHECK(outcome(3, config, one) == Lines(3, "0 0 0 shares"));
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = file_text(said.path(std::to_string(rank)));
    CHECK_MESSAGE(text.find("may read each other's memory (process_vm_readv") != std::string::npos, text);
  }
}

TEST_CASE("fault 54: a rank that may not make a memfd uses TCP, as do the others towards it") {
  const auto one = [](int rank) {
    if (rank == 1) refuse(SYS_memfd_create);
  };
  CHECK(outcome(3, test_config("auto"), one) == Lines{"0 -1 0 pulls", "0 -1 0 alone", "0 -1 0 pulls"});
  CHECK(outcome(2, test_config("auto"), [](int) { refuse(SYS_memfd_create); }) == Lines(2, "alone"));
}

TEST_CASE("a rank that may not have unix sockets uses TCP, as do the others towards it") {
  const auto one = [](int rank) {
    if (rank == 2) refuse(SYS_socket, 1);  // AF_UNIX
  };
  CHECK(outcome(4, test_config("auto"), one) ==
        Lines{"0 0 -1 0 pulls", "0 0 -1 0 pulls", "0 0 -1 0 alone", "0 0 -1 0 pulls"});
}

TEST_CASE("RONDO_TRANSPORT=shm: a pair that cannot share is an error on every rank, which names it and the reason") {
  const auto one = [](int rank) {
    if (rank == 1) refuse(SYS_memfd_create);
  };
  const Lines lines = outcome(3, test_config("shm"), one);
  for (const std::string& line : lines) {
    CAPTURE(line);
    CHECK(line.find("BOOTSTRAP: RONDO_TRANSPORT=shm, but rank ") == 0);
  }
  CHECK(lines[1].find("memfd_create: ") != std::string::npos);
  CHECK(lines[0].find("rank 1 (host ") != std::string::npos);
}

TEST_CASE("a rank killed at any moment of the start ends the others' start with an error, or the start is complete") {
  for (int delay_us = 0; delay_us < 60'000; delay_us += 6'000) {
    CAPTURE(delay_us);
    const TempFolder folder;
    Config config = test_config("auto");
    config.handshake_timeout_ms = 1'000;
    config.start_timeout_ms = 1'500;  // so long the others wait for one that died before it said anything
    auto ranks = start_ranks(
        3, folder, kId,
        [](Member& member, const FabricProcess::Say& say) {
          say("joined");
          const bool heard = eventually([&] { return member.events->failure().has_value(); }, 15'000);
          say(heard ? "failed" : "has not heard of the death");
        },
        config);
    ::usleep(static_cast<useconds_t>(delay_us));  // no condition to wait for: the moment is what varies
    ranks[1].signal(SIGKILL);
    for (const size_t survivor : {size_t{0}, size_t{2}}) {
      std::string line = ranks[survivor].hear(20'000);
      if (line == "joined") line = ranks[survivor].hear(20'000);
      CAPTURE(survivor);
      CAPTURE(line);
      CHECK((line == "failed" || line.find("exception: ") == 0));
    }
  }
}

}  // namespace
}  // namespace rondo::testing
