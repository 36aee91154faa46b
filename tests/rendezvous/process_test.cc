// Ranks as processes: this binary starts itself again as a rank (first argument "rank").
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "rondo/error.h"
#include "rondo/unique_id.h"
#include "tests/rendezvous/test_jobs.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/roster.h"
#include "transport/rendezvous/socket.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using test::in_ms;
using test::soon;
using Clock = std::chrono::steady_clock;
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

class Process {
 public:
  Process(const Variables& variables, const std::string& errors) : errors_(errors) {
    std::vector<std::string> texts;
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    std::string self = "/proc/self/exe", word = "rank";
    char* arguments[] = {self.data(), word.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    REQUIRE(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environment.data()) == 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  // The exit status, or minus the signal; 1000 if it does not end by the deadline.
  int wait(Store::Deadline deadline) {
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (Clock::now() >= deadline) {
        kill(pid_, SIGKILL);
        waitpid(pid_, &status, 0);
        return 1000;
      }
      wait_ready(-1, 0, in_ms(2));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string errors() const {
    std::ostringstream text;
    text << std::ifstream(errors_).rdbuf();
    return text.str();
  }

 private:
  pid_t pid_ = -1;
  std::string errors_;
};

Store::Deadline patient() { return Clock::now() + 20s; }

using Launcher = std::function<Variables(int rank, int world)>;

std::string str(int n) { return std::to_string(n); }

void check_job(const Launcher& launcher, int world, const test::Folder& folder) {
  std::vector<Process> processes;
  // The highest rank first, so that clients wait for their server.
  for (int r = world - 1; r >= 0; --r) processes.emplace_back(launcher(r, world), folder.path("errors" + str(r)));
  for (Process& process : processes) {
    CHECK(process.wait(patient()) == 0);
    CHECK(process.errors() == "");
  }
}

Launcher plain(const test::Folder& folder) {
  return [path = folder.path("port")](int r, int n) {
    return Variables{{"RANK", str(r)},
                     {"WORLD_SIZE", str(n)},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", "0"},
                     {"RONDO_PORT_FILE", path}};
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
  launchers["environment"] = plain(folder);
  launchers["file"] = at("file://" + folder.path("store"));
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
    check_job(launcher.second, 3, folder);
  }
}

TEST_CASE("processes: a rank that is killed before its hello is named by the others at the deadline") {
  test::Folder folder;
  std::vector<Process> processes;
  for (int r = 0; r < 3; ++r) {
    Variables variables = plain(folder)(r, 3);
    variables["RONDO_START_TIMEOUT_MS"] = "2000";
    if (r == 2) variables["TEST_KILL"] = "before";
    processes.emplace_back(variables, folder.path("errors" + str(r)));
  }
  CHECK(processes[2].wait(patient()) == -SIGKILL);
  for (int r = 0; r < 2; ++r) {
    CHECK(processes[r].wait(patient()) == 3);
    CAPTURE(processes[r].errors());
    CHECK(processes[r].errors().find("have not come: 2") != std::string::npos);
    CHECK(processes[r].errors().find("ranks 2\n") != std::string::npos);
  }
}

TEST_CASE("processes: a missing rank 0 is named, too") {
  test::Folder folder;
  Variables variables = at("unix://" + folder.path("socket"))(1, 2);
  variables["RONDO_START_TIMEOUT_MS"] = "300";
  Process one(variables, folder.path("errors"));
  CHECK(one.wait(patient()) == 3);
  CHECK(one.errors().find("rank 0 is missing") != std::string::npos);
  CHECK(one.errors().find("ranks 0\n") != std::string::npos);
}

TEST_CASE("processes: after kill -9 of all ranks the next start succeeds, by socket and by file") {
  test::Folder folder;
  for (std::string kind : {"unix", "file"}) {
    CAPTURE(kind);
    Launcher launcher = at(kind + "://" + folder.path(kind));
    std::vector<Process> killed;
    for (int r = 0; r < 2; ++r) {
      Variables variables = launcher(r, 2);
      variables["TEST_KILL"] = "after";
      killed.emplace_back(variables, folder.path("errors" + str(r)));
    }
    CHECK(killed[0].wait(patient()) == -SIGKILL);
    killed[1].wait(patient());  // killed by itself, or its store was gone before it had the table
    REQUIRE(access(folder.path(kind).c_str(), F_OK) == 0);
    check_job(launcher, 2, folder);
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
  int hold[2];  // children live until this pipe's writing end is closed
  REQUIRE(pipe2(hold, O_CLOEXEC) == 0);
  UniqueIdServer server("127.0.0.1", Config{});
  std::vector<pid_t> children;
  for (int r = 0; r < 3; ++r) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      close(hold[1]);
      int code = rank_main({r, 3, server.id(), ""});
      char byte;
      (void)!read(hold[0], &byte, 1);
      _exit(code);
    }
    children.push_back(child);
  }
  close(hold[0]);
  auto end = patient();
  while (!server.complete() && Clock::now() < end) wait_ready(-1, 0, in_ms(2));
  CHECK(server.complete());
  CHECK(refuses_connections(server.id()));  // although three children that inherited from us still live
  close(hold[1]);
  for (pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
}

TEST_CASE("unique id: the copy in a forked child can be destroyed, and the server serves on") {
  auto server = std::make_unique<UniqueIdServer>("127.0.0.1", Config{});
  std::string id = server->id();
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    server.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(rank_main({0, 1, id, ""}) == 0);
}

TEST_CASE("unique id: children by spawn hold only the id, and a wrong key is refused") {
  test::Folder folder;
  UniqueIdServer server("127.0.0.1", Config{});
  std::string wrong = server.id();
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  Process stranger(at(wrong)(1, 2), folder.path("stranger"));
  CHECK(stranger.wait(patient()) == 3);
  CHECK(stranger.errors().find("unique id") != std::string::npos);
  check_job(at(server.id()), 4, folder);
  auto end = patient();
  while (!server.complete() && Clock::now() < end) wait_ready(-1, 0, in_ms(2));
  CHECK(server.complete());
}

TEST_CASE("unique id: destroying the server ends its service, also for a spawned child's lifetime") {
  auto server = std::make_unique<UniqueIdServer>("127.0.0.1", Config{});
  std::string id = server->id();
  test::Folder folder;
  Variables variables = at(id)(0, 2);  // rank 1 never comes
  variables["RONDO_START_TIMEOUT_MS"] = "20000";
  Process child(variables, folder.path("errors"));
  RendezvousUrl url = parse_rendezvous(id);
  CHECK_FALSE(refuses_connections(id));
  server.reset();
  CHECK(refuses_connections(id));
  CHECK(child.wait(in_ms(25'000)) == 3);
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "rank") return rondo::rank_main({});
  return doctest::Context(argc, argv).run();
}
