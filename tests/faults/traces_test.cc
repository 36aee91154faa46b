// Needs root (own_machine.h): what is left on a machine when all ranks of a job are killed at once.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/own_machine.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

using Names = std::set<std::string>;
constexpr int kWorld = 4;

// The user's own secret, made at the first start without one, and kept for the next.
bool is_own_secret(const std::string& thing) { return thing == "/tmp/rondo-0" || thing == "/tmp/rondo-0/rondo-secret"; }

// "" or what is there now that was not.
std::string left_over(const Names& before, const Names& allowed = {}) {
  std::string text;
  eventually(
      [&] {
        text.clear();
        for (const std::string& thing : things_there()) {
          if (is_own_secret(thing) || before.count(thing) != 0 || allowed.count(thing) != 0) continue;
          text += thing + "; ";
        }
        return text.empty();
      },
      3'000);
  return text.empty() ? "" : "left: " + text;
}

void kill_all(Job& job) {
  for (RankProcess& rank : job.ranks) rank.signal(SIGKILL);
  for (RankProcess& rank : job.ranks) rank.wait();
}

// Everything that a rank can have of others: sums in plain and in registered buffers, messages, a group of two; until
// it is killed.
void work(Here& here) {
  Communicator group = Communicator::join(here.options);
  Communicator pair = group.split(here.rank() / 2);
  std::vector<float> plain(50'000, 1);
  auto* registered = static_cast<float*>(group.allocate(plain.size() * sizeof(float)));
  const int next = (here.rank() + 1) % here.world(), previous = (here.rank() + here.world() - 1) % here.world();
  for (int round = 0;; ++round) {
    group.all_reduce(plain.data(), plain.data(), plain.size(), DType::kFloat32);
    group.all_reduce(registered, registered, plain.size(), DType::kFloat32);
    pair.all_reduce(plain.data(), plain.data(), 100, DType::kFloat32);
    group.sendrecv(plain.data(), 1000, next, registered, 1000, previous, DType::kFloat32);
    if (round == 3) here.say("working");
  }
}

JoinOptions options_at(const Job& job, int rank, int world, const std::string& rendezvous) {
  JoinOptions options = job.options(rank, world);
  options.rendezvous = rendezvous;
  return options;
}

const char* const kRendezvous[] = {"tcp://127.0.0.1:5577", "unix:///tmp/temporary/meeting",
                                   "file:///tmp/temporary/meeting"};

// What the rendezvous itself leaves while ranks are missing: the name that the user gave.
Names meeting_of(const std::string& rendezvous) {
  const size_t path = rendezvous.find("/tmp/");
  return path == std::string::npos ? Names() : Names{rendezvous.substr(path)};
}

// Kills all ranks while they work. What they have open before says what could be left elsewhere.
std::string kill_while_working(const std::string& rendezvous) {
  Job job;
  const Names before = things_there();
  for (int rank = 0; rank < kWorld; ++rank) {
    job.ranks.emplace_back(options_at(job, rank, kWorld, rendezvous), work);
  }
  for (RankProcess& rank : job.ranks) {
    const std::string said = rank.hear();
    if (said != "working") return "a rank said: " + said;
  }
  std::string wrong;
  for (RankProcess& rank : job.ranks) {
    for (const std::string& file : files_of(rank.pid())) {
      // The reserve of descriptors has one of /dev/null.
      if (file.find("/memfd:rondo") != 0 && file != "/dev/null") wrong += fmt::format("a rank uses {}; ", file);
    }
  }
  kill_all(job);
  return wrong + left_over(before);
}

// Kills two of three ranks, which wait for the third.
std::string kill_while_waiting(const std::string& rendezvous) {
  Job job;
  const Names before = things_there();
  for (int rank = 0; rank < 2; ++rank) {
    job.ranks.emplace_back(options_at(job, rank, 3, rendezvous), [](Here& here) {
      here.say("joining");
      Communicator::join(here.options);
    });
  }
  job.expect_all("joining");
  // Their control and local sockets listen; or, where the file does not say that they are of one host, both are
  // connected with rank 0's store (an end of each side), and learn that there.
  const bool waiting = eventually([] {
    int sockets = 0, ends = 0;
    for (const std::string& thing : things_there()) {
      sockets += thing.find("@rondo-") != std::string::npos ? 1 : 0;
      ends += thing.starts_with("/proc/net/tcp: ") && thing.find(" 01 ") != std::string::npos ? 1 : 0;
    }
    return sockets == 2 || ends == 4;
  });
  kill_all(job);
  return (waiting ? "" : "the ranks do not wait; ") + left_over(before, meeting_of(rendezvous));
}

// Kills all ranks so many microseconds after they have begun to join.
std::string kill_after(int us) {
  Job job;
  const Names before = things_there();
  for (int rank = 0; rank < kWorld; ++rank) {
    job.ranks.emplace_back(options_at(job, rank, kWorld, kRendezvous[0]), [](Here& here) {
      here.say("joining");
      work(here);
    });
  }
  job.expect_all("joining");
  ::usleep(static_cast<useconds_t>(us));  // no condition to wait for: the moment is what varies
  kill_all(job);
  return left_over(before);
}

}  // namespace

TEST_CASE("fault 56: kill -9 of all ranks at work leaves no file, segment, socket or process, however they met") {
  for (const char* rendezvous : kRendezvous) {
    CAPTURE(rendezvous);
    CHECK(on_own_machine([rendezvous] { return kill_while_working(rendezvous); }) == "");
  }
}

TEST_CASE("kill -9 of all ranks while one is missing leaves nothing but the meeting point that the user has named") {
  for (const char* rendezvous : kRendezvous) {
    CAPTURE(rendezvous);
    CHECK(on_own_machine([rendezvous] { return kill_while_waiting(rendezvous); }) == "");
  }
}

TEST_CASE("kill -9 of all ranks at any moment of the start leaves nothing") {
  CHECK(on_own_machine([]() -> std::string {
          for (int us = 0; us < 80'000; us += 8'000) {
            if (const std::string left = kill_after(us); !left.empty()) return fmt::format("after {} us {}", us, left);
          }
          return "";
        }) == "");
}

TEST_CASE("these checks find what a careless program leaves") {
  // Proves: each of the places is really looked at.
  const std::string found = on_own_machine([] {
    Job job;
    const Names before = things_there();
    job.ranks.emplace_back(job.options(0, 1), [](Here& here) {
      const int segment = ::shm_open("/careless", O_CREAT | O_RDWR, 0600);
      const int file = ::open("careless-here", O_CREAT | O_RDWR, 0600);
      const int temporary = ::open("/run/user/careless", O_CREAT | O_RDWR, 0600);
      if (segment < 0 || file < 0 || temporary < 0 || ::shmget(IPC_PRIVATE, 4096, 0600) < 0) return;
      const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::snprintf(address.sun_path, sizeof address.sun_path, "/tmp/careless-socket");
      if (::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
      if (::fork() == 0) {  // it outlives its parent
        while (true) ::pause();
      }
      here.say("ready");
      here.await();
    });
    job.expect_all("ready");
    std::string open;
    for (const std::string& name : files_of(job[0].pid())) open += "open " + name + "; ";
    kill_all(job);
    return open + left_over(before);
  });
  CAPTURE(found);
  for (const char* part : {"open /run/user/careless; ", "open /dev/shm/careless; ", "left: /dev/shm/careless; ",
                           "/tmp/home/careless-here; ", "; /run/user/careless; ", "/tmp/careless-socket; ",
                           "/proc/sysvipc/shm: ", "/proc/net/unix: ", "process "}) {
    CAPTURE(part);
    CHECK(found.find(part) != std::string::npos);
  }
}

}  // namespace rondo::testing
