// Ranks as processes: this binary starts itself again as a rank (first argument "rank").
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/error.h"
#include "rondo/unique_id.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/child.h"
#include "tests/support/eventually.h"
#include "tests/support/program.h"
#include "tests/support/sockets.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/roster.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using test::in_ms;
using test::soon;
using testing::Child;
using testing::eventually;
using testing::Parent;
using Variables = std::map<std::string, std::string>;

// --- a rank: everything from its environment, as a program would have it

int rank_main(const LaunchRequest& request) {
  try {
    Config config = Config::from_environment();
    auto deadline = in_ms(config.start_timeout_ms);
    Launch launch = find_launch(request, config);
    auto store = open_store(launch, config, deadline);
    const char* kill_at = getenv("TEST_KILL");
    if (kill_at != nullptr && std::string(kill_at) == "before") kill(getpid(), SIGKILL);
    std::string card = "card of " + std::to_string(launch.place.rank);
    auto cards = exchange_roster(*store, launch.place.rank, launch.place.world, card, deadline,
                                 Logger(config.debug, launch.place.rank));
    if (kill_at != nullptr) kill(getpid(), SIGKILL);
    for (int r = 0; r < launch.place.world; ++r) {
      if (cards.at(r) != "card of " + std::to_string(r)) return 4;
    }
    roster_goodbye(*store, launch.place.world, soon());
    return 0;
  } catch (const Exception& e) {
    std::fprintf(stderr, "%s ranks", e.what());
    for (int r : e.error().ranks) std::fprintf(stderr, " %d", r);
    std::fprintf(stderr, "\n");
    return 3;
  }
}

// --- starting and ending processes

using Programs = std::vector<std::unique_ptr<test::Program>>;

// This binary again, as a rank with these variables and no others.
std::unique_ptr<test::Program> start(const Variables& variables) {
  std::vector<std::string> command = {"/usr/bin/env", "-i"};
  for (const auto& [name, value] : variables) command.push_back(name + "=" + value);
  command.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  command.push_back("rank");
  return std::make_unique<test::Program>(command);
}

constexpr int kKilled = 128 + SIGKILL;

using Launcher = std::function<Variables(int rank, int world)>;

std::string str(int n) { return std::to_string(n); }

void check_job(const Launcher& launcher, int world) {
  Programs programs;
  // The highest rank first, so that clients wait for their server.
  for (int r = world - 1; r >= 0; --r) programs.push_back(start(launcher(r, world)));
  for (auto& program : programs) {
    CHECK(program->wait(20s) == 0);
    CHECK(program->errors() == "");
  }
}

Launcher plain(const test::Folder& folder) {
  return [meeting = "file://" + folder.path("meeting")](int r, int n) {
    return Variables{{"RANK", str(r)}, {"WORLD_SIZE", str(n)}, {"RONDO_RENDEZVOUS", meeting}};
  };
}

Launcher at(const std::string& rendezvous) {
  return [rendezvous](int r, int n) {
    return Variables{{"RONDO_RANK", str(r)}, {"RONDO_WORLD_SIZE", str(n)}, {"RONDO_RENDEZVOUS", rendezvous}};
  };
}

TEST_CASE("processes: a job meets by each launcher's variables, and by a file") {
  test::Folder folder;
  std::string unique = str(getpid());
  std::map<std::string, Launcher> launchers;
  launchers["environment"] = [port = str(testing::free_port())](int r, int n) {
    return Variables{{"RANK", str(r)}, {"WORLD_SIZE", str(n)}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
  };
  launchers["file"] = at("file://" + folder.path("file"));
  launchers["unix"] = at("unix://" + folder.path("socket"));
  launchers["torchrun"] = [&](int r, int n) {
    return Variables{{"RANK", str(r)},
                     {"WORLD_SIZE", str(n)},
                     {"LOCAL_RANK", str(r)},
                     {"LOCAL_WORLD_SIZE", str(n)},
                     {"MASTER_ADDR", "localhost"},
                     {"MASTER_PORT", "1"},
                     {"TORCHELASTIC_RUN_ID", unique},
                     {"TORCHELASTIC_RESTART_COUNT", "2"}};
  };
  launchers["openmpi"] = [&](int r, int n) {
    return Variables{{"OMPI_COMM_WORLD_RANK", str(r)},
                     {"OMPI_COMM_WORLD_SIZE", str(n)},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", str(r)},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", str(n)},
                     {"PMIX_NAMESPACE", unique}};
  };
  launchers["slurm"] = [&](int r, int n) {
    return Variables{{"SLURM_PROCID", str(r)},  {"SLURM_STEP_NUM_TASKS", str(n)},
                     {"SLURM_LOCALID", str(r)}, {"SLURM_JOB_ID", unique},
                     {"SLURM_STEP_ID", "0"},    {"SLURM_NODEID", "0"},
                     {"SLURM_NNODES", "1"},     {"SLURM_STEP_TASKS_PER_NODE", str(n)}};
  };
  for (const auto& launcher : launchers) {
    CAPTURE(launcher.first);
    check_job(launcher.second, 3);
  }
}

TEST_CASE("fault 1: processes: a rank that is killed before its hello is named by the others at the deadline") {
  const test::Folder folder;
  const Launcher launcher = plain(folder);
  Programs processes;
  for (int r = 0; r < 3; ++r) {
    Variables variables = launcher(r, 3);
    variables["RONDO_START_TIMEOUT_MS"] = "2000";
    if (r == 2) variables["TEST_KILL"] = "before";
    processes.push_back(start(variables));
  }
  CHECK(processes[2]->wait(20s) == kKilled);
  for (int r = 0; r < 2; ++r) {
    CHECK(processes[r]->wait(20s) == 3);
    CAPTURE(processes[r]->errors());
    CHECK(processes[r]->errors().find("have not come: 2") != std::string::npos);
    CHECK(processes[r]->errors().find("ranks 2\n") != std::string::npos);
  }
}

TEST_CASE("fault 56: processes: after kill -9 of all ranks the next start succeeds, by socket and by file") {
  test::Folder folder;
  for (std::string kind : {"unix", "file"}) {
    CAPTURE(kind);
    Launcher launcher = at(kind + "://" + folder.path(kind));
    Programs killed;
    for (int r = 0; r < 2; ++r) {
      Variables variables = launcher(r, 2);
      variables["TEST_KILL"] = "after";
      killed.push_back(start(variables));
    }
    CHECK(killed[0]->wait(20s) == kKilled);
    killed[1]->wait(20s);  // killed by itself, or its store was gone before it had the table
    REQUIRE(access(folder.path(kind).c_str(), F_OK) == 0);
    check_job(launcher, 2);
  }
}

// --- unique ids

bool refuses_connections(const std::string& id) {
  RendezvousUrl url = parse_rendezvous(id);
  Descriptor socket = connect_socket(resolve(url.host, url.port).front(), soon());
  return !socket.valid() && errno == ECONNREFUSED;
}

TEST_CASE(
    "unique id: children by fork hold nothing of the server, meet by the id, and the server ends with the world") {
  UniqueIdServer server("127.0.0.1", Config{});
  std::vector<Child> children;
  for (int r = 0; r < 3; ++r) {
    children.emplace_back([&](Parent& test) {
      const int code = rank_main({r, 3, server.id(), ""});
      test.await();
      return code;
    });
  }
  CHECK(eventually([&] { return server.complete(); }, 20'000));
  CHECK(refuses_connections(server.id()));  // although three children that inherited from us still live
  for (const Child& child : children) child.tell("end");
  for (Child& child : children) CHECK(child.wait() == 0);
}

TEST_CASE("unique id: the copy in a forked child can be destroyed, and the server serves on") {
  auto server = std::make_unique<UniqueIdServer>("127.0.0.1", Config{});
  std::string id = server->id();
  Child child([&](Parent&) {
    server.reset();
    return 0;
  });
  CHECK(child.wait() == 0);
  CHECK(rank_main({0, 1, id, ""}) == 0);
}

TEST_CASE("unique id: children by spawn hold only the id, and a wrong key is refused") {
  UniqueIdServer server("127.0.0.1", Config{});
  std::string wrong = server.id();
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  const auto stranger = start(at(wrong)(1, 2));
  CHECK(stranger->wait(20s) == 3);
  CHECK(stranger->errors().find("unique id") != std::string::npos);
  check_job(at(server.id()), 4);
  CHECK(eventually([&] { return server.complete(); }, 20'000));
}

TEST_CASE("unique id: destroying the server ends its service, also for a spawned child's lifetime") {
  auto server = std::make_unique<UniqueIdServer>("127.0.0.1", Config{});
  std::string id = server->id();
  Variables variables = at(id)(0, 2);  // rank 1 never comes
  variables["RONDO_START_TIMEOUT_MS"] = "2000";
  const auto child = start(variables);
  RendezvousUrl url = parse_rendezvous(id);
  CHECK_FALSE(refuses_connections(id));
  server.reset();
  CHECK(eventually([&] { return refuses_connections(id); }, 5'000));  // the child has a copy between fork and exec
  CHECK(child->wait(20s) == 3);
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "rank") return rondo::rank_main({});
  return doctest::Context(argc, argv).run();
}
