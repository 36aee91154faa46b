#include "transport/rendezvous/launch.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "rondo/error.h"
#include "tests/support/errors.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/slurm.h"

namespace rondo {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Launch find(Variables variables, const LaunchRequest& request = {}) {
  return find_launch_in(request, Environment(std::move(variables)));
}

struct Failure {
  ErrorCode code = ErrorCode::kOk;
  std::string text;
  bool says(std::string_view part) const { return text.find(part) != std::string::npos; }
};

Failure failure(Variables variables, const LaunchRequest& request = {}) {
  const Error error = testing::error_of([&] { find(std::move(variables), request); });
  return {error.code, error.message};
}

void check_place(const Launch& launch, const Place& expected) {
  CHECK(launch.place.rank == expected.rank);
  CHECK(launch.place.world == expected.world);
  CHECK(launch.place.local_rank == expected.local_rank);
  CHECK(launch.place.local_world == expected.local_world);
  CHECK(launch.place.node == expected.node);
  CHECK(launch.place.nodes == expected.nodes);
}

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

bool is_private_socket(const std::string& rendezvous, const std::string& launcher) {
  std::string prefix = "unix:///tmp/rondo-" + std::to_string(geteuid()) + "/" + launcher + "-";
  return rendezvous.size() == prefix.size() + 16 + 5 && rendezvous.rfind(prefix, 0) == 0 &&
         rendezvous.substr(rendezvous.size() - 5) == ".sock";
}

TEST_CASE("launch: a process without a rank that knows where newcomers ask is one") {
  const Variables join{{"RONDO_JOIN", "tcp://a:29400,unix:///tmp/door"}, {"RONDO_JOB_ID", "j"}, {"MASTER_ADDR", "a"}};
  Launch launch = find(join);
  CHECK(is_newcomer(launch));
  CHECK(launch.job_id == "j");
  CHECK(launch.newcomers == "tcp://a:29400,unix:///tmp/door");
  LaunchRequest request;
  request.newcomers = "unix:///tmp/door";
  CHECK(is_newcomer(find({}, request)));
  launch = find(with(join, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}}));
  CHECK(!is_newcomer(launch));
  CHECK(launch.place.rank == 1);
  CHECK(launch.newcomers == "tcp://a:29400,unix:///tmp/door");
  CHECK(failure({{"RONDO_JOIN", "tcp://a:0"}}).code == ErrorCode::kInvalid);
  CHECK(failure({{"RONDO_JOIN", "file:///tmp/x"}}).says("RONDO_JOIN=\"file:///tmp/x\" is not allowed"));
}

TEST_CASE("launch: a world of one of the program's own, inside a job, meets nobody and takes none of its newcomers") {
  const LaunchRequest alone{0, 1, "", ""};
  const Variables ranks[] = {
      {{"RONDO_RANK", "1"}, {"RONDO_WORLD_SIZE", "2"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "5"}},
      {{"WORLD_SIZE", "2"}},
  };
  const Variables both{{"RONDO_RENDEZVOUS", "unix:///tmp/job"}, {"RONDO_JOIN", "unix:///tmp/door"}};
  for (const Variables& rank : ranks) {
    const Launch launch = find(with(rank, both), alone);
    check_place(launch, {0, 1, 0, 1, 0, 1});
    CHECK(launch.rendezvous == "");
    CHECK(launch.newcomers == (rank.size() > 1 ? "" : "unix:///tmp/door"));
  }
  // The launcher's own world of one, and a rendezvous by name.
  const Variables one{{"RONDO_RANK", "0"}, {"RONDO_WORLD_SIZE", "1"}};
  CHECK(find(with(one, both), alone).newcomers == "unix:///tmp/door");
  CHECK(find(ranks[0], {0, 1, "unix:///tmp/own", ""}).rendezvous == "unix:///tmp/own");
}

TEST_CASE("launch: an address with a space is refused on every rank, whether it needs it or not") {
  for (const char* address : {" 127.0.0.1", "host\n", "a b"}) {
    for (const char* nodes : {"1", "2"}) {
      const Failure wrong = failure({{"RANK", "1"},
                                     {"WORLD_SIZE", "2"},
                                     {"GROUP_RANK", "0"},
                                     {"GROUP_WORLD_SIZE", nodes},
                                     {"MASTER_ADDR", address},
                                     {"MASTER_PORT", "1"}});
      CHECK(wrong.code == ErrorCode::kInvalid);
      CHECK(wrong.says("MASTER_ADDR=\""));
    }
  }
}

TEST_CASE("launch: a program started plainly is rank 0 of a world of 1") {
  Launch launch = find({});
  check_place(launch, {0, 1, 0, 1, 0, 1});
  CHECK(launch.rendezvous == "");
  CHECK(launch.job_id == "default");
  CHECK(launch.launcher == "program");
  CHECK(launch.one_host);
  // In a batch script Slurm's variables are there, but this is no task of a step.
  check_place(find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}), {0, 1, 0, 1, 0, 1});
}

const Variables kPlain = {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};

TEST_CASE("launch: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT") {
  Launch launch = find(kPlain);
  check_place(launch, {3, 8, -1, -1, -1, -1});  // the hosts are not known yet
  CHECK(launch.rendezvous == "tcp://node1:29500");
  CHECK(launch.launcher == "environment");
  CHECK_FALSE(launch.one_host);

  launch = find(with(kPlain, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}));
  check_place(launch, {3, 8, 1, 2, -1, -1});

  launch = find(with(kPlain, {{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "8"}}));
  check_place(launch, {3, 8, 3, 8, 0, 1});
  CHECK(launch.one_host);
  CHECK(launch.rendezvous == "tcp://127.0.0.1:29500");

  launch = find(with(kPlain, {{"MASTER_ADDR", "127.0.0.1"}}));
  check_place(launch, {3, 8, 3, 8, 0, 1});
  CHECK(launch.one_host);

  CHECK(find(with(kPlain, {{"RONDO_MASTER_PORT", "5"}})).rendezvous == "tcp://node1:5");
  CHECK(find(with(kPlain, {{"MASTER_ADDR", "fd00::1"}})).rendezvous == "tcp://[fd00::1]:29500");
  CHECK(find(with(kPlain, {{"RONDO_RENDEZVOUS", "file:///x"}})).rendezvous == "file:///x");
  CHECK(find(with(kPlain, {{"RONDO_JOB_ID", "mine"}})).job_id == "mine");
}

TEST_CASE("launch: what contradicts itself or is half set names the variable and its value") {
  auto without = [](Variables variables, const char* name) {
    variables.erase(name);
    return variables;
  };
  CHECK(
      failure(without(kPlain, "RANK")).says("RANK is not set, although WORLD_SIZE is: start the ranks by a launcher"));
  CHECK(failure(without(kPlain, "WORLD_SIZE")).says("WORLD_SIZE is not set, although RANK is"));
  CHECK(failure(without(kPlain, "MASTER_PORT")).says("neither RONDO_MASTER_PORT nor MASTER_PORT"));
  CHECK(failure(without(kPlain, "MASTER_ADDR")).code == ErrorCode::kBootstrap);
  CHECK(failure(without(kPlain, "MASTER_ADDR")).says("MASTER_ADDR"));
  CHECK(failure({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).says("MASTER_ADDR=\"a\""));
  CHECK(failure({{"RONDO_RENDEZVOUS", "file:///x"}}).says("RONDO_RENDEZVOUS=\"file:///x\""));
  struct Wrong {
    const char* name;
    const char* value;
    const char* says;
  };
  for (Wrong wrong :
       {Wrong{"RANK", "8", "RANK=8 is not below WORLD_SIZE=8"}, Wrong{"RANK", "-1", "RANK=\"-1\""},
        Wrong{"RANK", "two", "RANK=\"two\""}, Wrong{"RANK", "", "RANK=\"\""},
        Wrong{"WORLD_SIZE", "0", "WORLD_SIZE=\"0\""},
        Wrong{"WORLD_SIZE", "99999999999999999999", "WORLD_SIZE=\"99999999999999999999\""},
        Wrong{"MASTER_PORT", "65536", "MASTER_PORT=\"65536\""}, Wrong{"MASTER_PORT", "0", "MASTER_PORT=\"0\""},
        Wrong{"LOCAL_RANK", "x", "LOCAL_RANK=\"x\""}, Wrong{"LOCAL_WORLD_SIZE", "9", "LOCAL_WORLD_SIZE=9"},
        Wrong{"RONDO_RENDEZVOUS", "http://x", "http://x"}}) {
    CAPTURE(wrong.name);
    CAPTURE(wrong.value);
    Failure f = failure(with(kPlain, {{wrong.name, wrong.value}}));
    CHECK(f.code == ErrorCode::kInvalid);
    CAPTURE(f.text);
    CHECK(f.says(wrong.says));
  }
}

TEST_CASE("launch: torchrun's port is taken, so one host meets at a socket and several at the next port") {
  Variables one = with(kPlain, {{"LOCAL_RANK", "3"},
                                {"LOCAL_WORLD_SIZE", "8"},
                                {"GROUP_RANK", "0"},
                                {"GROUP_WORLD_SIZE", "1"},
                                {"TORCHELASTIC_RUN_ID", "abc"},
                                {"TORCHELASTIC_RESTART_COUNT", "0"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  Launch launch = find(one);
  check_place(launch, {3, 8, 3, 8, 0, 1});
  CHECK(launch.launcher == "torchrun");
  CHECK(launch.job_id == "abc.0");
  CHECK(is_private_socket(launch.rendezvous, "torchrun"));
  CHECK(find(with(one, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).rendezvous == launch.rendezvous);
  // What tells two jobs, or two attempts of one, apart.
  for (const Variables& other :
       {Variables{{"TORCHELASTIC_RESTART_COUNT", "1"}}, Variables{{"TORCHELASTIC_RUN_ID", "d"}},
        Variables{{"MASTER_PORT", "29501"}}, Variables{{"MASTER_ADDR", "node2"}}}) {
    CHECK(find(with(one, other)).rendezvous != launch.rendezvous);
  }
  CHECK(find(with(one, {{"RONDO_MASTER_PORT", "7777"}})).rendezvous == "tcp://127.0.0.1:7777");

  Variables two =
      with(one, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "4"}});
  launch = find(two);
  check_place(launch, {3, 8, 1, 2, 1, 4});
  CHECK(launch.rendezvous == "tcp://node1:29501");
  CHECK_FALSE(launch.one_host);
  CHECK(find(with(two, {{"RONDO_MASTER_PORT", "7777"}})).rendezvous == "tcp://node1:7777");
  CHECK(failure(with(two, {{"MASTER_PORT", "65535"}})).says("MASTER_PORT=\"65535\""));
}

TEST_CASE("launch: Open MPI on one host, and the way out on several") {
  Variables one = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                   {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"PMIX_NAMESPACE", "1234"}};
  Launch launch = find(one);
  check_place(launch, {1, 4, 1, 4, 0, 1});
  CHECK(launch.job_id == "1234");
  CHECK(launch.launcher == "openmpi");
  CHECK(is_private_socket(launch.rendezvous, "openmpi"));
  CHECK(find(with(one, {{"PMIX_NAMESPACE", "1235"}})).rendezvous != launch.rendezvous);

  Variables two = with(one, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  Failure f = failure(two);
  CHECK(f.code == ErrorCode::kBootstrap);
  CHECK(f.says("mpirun -x MASTER_ADDR="));
  launch = find(with(two, {{"PMIX_RANK", "1"}}));
  CHECK(launch.rendezvous == "pmix:");
  CHECK(launch.job_id == "1234");
  CHECK(failure(with(two, {{"PMIX_RANK", "0"}})).says("mpirun -x MASTER_ADDR="));  // another process's server
  launch = find(with(two, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "5"}}));
  check_place(launch, {1, 4, 1, 2, -1, -1});
  CHECK(launch.rendezvous == "tcp://h:5");
}

TEST_CASE("launch: MPICH meets through its PMI server, whose name space is the job") {
  Variables one = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
  Launch launch = find(one);
  check_place(launch, {1, 4, 1, 4, 0, 1});
  CHECK(launch.rendezvous == "pmi:");
  CHECK(launch.job_id == "");
  CHECK(launch.launcher == "mpich");
  CHECK(find(with(one, {{"RONDO_JOB_ID", "j"}})).job_id == "j");
  check_place(find(with(one, {{"MPI_LOCALNRANKS", "2"}})), {1, 4, 1, 2, -1, -1});
  one.erase("PMI_FD");
  CHECK(failure(one).says("PMI_FD"));
}

TEST_CASE("launch: Slurm's step, by a socket on one node and the first node's port on several") {
  Variables two = {{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "7"},  {"SLURM_LOCALID", "1"},
                   {"SLURM_STEP_ID", "2"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_NODELIST", "gpu[07-08,11],x1"},
                   {"SLURM_NODEID", "2"},  {"SLURM_NNODES", "4"},  {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};
  Launch launch = find(two);
  check_place(launch, {5, 7, 1, 2, 2, 4});
  CHECK(launch.job_id == "77.2");
  CHECK(launch.launcher == "slurm");
  RendezvousUrl url = parse_rendezvous(launch.rendezvous);
  CHECK(url.host == "gpu07");
  CHECK(url.port >= 20000);
  CHECK(url.port < 29000);
  CHECK(find(with(two, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "0"}})).rendezvous ==
        launch.rendezvous);
  CHECK(find(with(two, {{"SLURM_STEP_ID", "3"}})).rendezvous != launch.rendezvous);
  CHECK(find(with(two, {{"RONDO_MASTER_PORT", "4"}})).rendezvous == "tcp://gpu07:4");
  CHECK(find(with(two, {{"PMI_FD", "3"}})).rendezvous == "pmi:");

  launch = find(with(two, {{"SLURM_NODEID", "0"},
                           {"SLURM_NNODES", "1"},
                           {"SLURM_STEP_NODELIST", "gpu07"},
                           {"SLURM_LOCALID", "5"},
                           {"SLURM_STEP_TASKS_PER_NODE", "7"}}));
  check_place(launch, {5, 7, 5, 7, 0, 1});
  CHECK(is_private_socket(launch.rendezvous, "slurm"));
}

TEST_CASE(
    "launch: srun --mpi=pmi2 says in Slurm's variables who is on this host; mpiexec within a Slurm job does not") {
  Variables one = {{"PMI_RANK", "1"},
                   {"PMI_SIZE", "2"},
                   {"PMI_FD", "9"},
                   {"SLURM_PROCID", "1"},
                   {"SLURM_NTASKS", "2"},
                   {"SLURM_LOCALID", "1"},
                   {"SLURM_STEP_ID", "0"},
                   {"SLURM_JOB_ID", "7"},
                   {"SLURM_NODEID", "0"},
                   {"SLURM_NNODES", "1"},
                   {"SLURM_STEP_TASKS_PER_NODE", "2"}};
  Launch launch = find(one);
  check_place(launch, {1, 2, 1, 2, 0, 1});
  CHECK(launch.rendezvous == "pmi:");
  CHECK(launch.one_host);
  launch = find(with(
      one,
      {{"SLURM_NNODES", "2"}, {"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}}));
  check_place(launch, {1, 2, 0, 1, 1, 2});
  CHECK_FALSE(launch.one_host);
  // Two nodes, one task on each that starts two ranks.
  launch = find(with(one, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}));
  check_place(launch, {3, 4, 1, 2, -1, -1});
}

TEST_CASE("launch: RONDO_* come before torchrun's, those before Open MPI's, MPICH's and Slurm's") {
  Variables all = {{"SLURM_PROCID", "1"},
                   {"SLURM_NTASKS", "16"},
                   {"SLURM_STEP_ID", "0"},
                   {"PMI_RANK", "2"},
                   {"PMI_SIZE", "16"},
                   {"OMPI_COMM_WORLD_RANK", "3"},
                   {"OMPI_COMM_WORLD_SIZE", "16"},
                   {"RANK", "4"},
                   {"WORLD_SIZE", "16"},
                   {"RONDO_RANK", "5"},
                   {"RONDO_WORLD_SIZE", "16"},
                   {"RONDO_RENDEZVOUS", "file:///x"}};
  const char* order[] = {"RONDO_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
  const char* worlds[] = {"RONDO_WORLD_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
  for (int i = 0; i < 5; ++i) {
    CHECK(find(all).place.rank == 5 - i);
    all.erase(order[i]);
    all.erase(worlds[i]);
  }
}

TEST_CASE("launch: the launcher's file of ended ranks is of the ranks that it numbered, in the job that it began") {
  const Variables base{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"RONDO_RENDEZVOUS", "tcp://a:29400"}};
  const auto ended = [&](const char* text) { return with(base, {{"RONDO_ENDED", text}}); };
  CHECK(find(base).ended == -1);
  CHECK(find(ended("7:tcp://a:29400")).ended == 7);
  CHECK(find(ended("7:tcp://b:29400")).ended == -1);
  CHECK(find(ended("7:tcp://a:29400"), {1, 2, "", ""}).ended == -1);
  CHECK(find(ended("7:tcp://a:29400"), {-1, -1, "tcp://b:29400", ""}).ended == -1);
  CHECK(failure(ended("x:tcp://a:29400")).says("RONDO_ENDED=\"x\""));
}

TEST_CASE("launch: what the program says goes before the environment, field by field") {
  CHECK(find(kPlain, {5, -1, "", ""}).place.rank == 5);
  CHECK(find(kPlain, {5, -1, "", ""}).place.world == 8);
  CHECK(find(kPlain, {-1, 4, "", ""}).place.rank == 3);
  CHECK(find(kPlain, {-1, 4, "", ""}).place.world == 4);
  CHECK(failure(kPlain, {-1, 3, "", ""}).says("rank 3 is not below the world size 3"));
  CHECK(failure({}, {1, -1, "", ""}).code == ErrorCode::kInvalid);
  CHECK(failure({}, {-1, 2, "", ""}).code == ErrorCode::kInvalid);
  CHECK(failure({}, {2, 2, "file:///x", ""}).code == ErrorCode::kInvalid);
  CHECK(failure({}, {-1, -1, "file:///x", ""}).says("\"file:///x\" was given, but nothing says this process's rank"));
  CHECK(failure(kPlain, {-2, -1, "", ""}).code == ErrorCode::kInvalid);
  CHECK(failure(kPlain, {0, 0, "", ""}).code == ErrorCode::kInvalid);
  CHECK(find({}, {1, 2, "store:", ""}).rendezvous == "store:");
  CHECK(failure({}, {0, 2, "", ""}).code == ErrorCode::kBootstrap);
  CHECK(find({}, {0, 2, "unix:///x", "j"}).job_id == "j");
  CHECK(find({{"RONDO_JOB_ID", "e"}}, {0, 2, "unix:///x", "j"}).job_id == "j");
  CHECK(find({{"RONDO_RENDEZVOUS", "file:///e"}}, {0, 2, "unix:///x", ""}).rendezvous == "unix:///x");
  CHECK(find({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, {0, 2, "", ""}).rendezvous == "tcp://a:1");
  CHECK(find({}, {1, 2, "unix:///x", ""}).launcher == "program");
  CHECK(failure({}, {0, 2, "unix:///x", std::string(257, 'j')}).code == ErrorCode::kInvalid);
}

TEST_CASE("slurm: the first of a node list, and task lists, in Slurm's short form") {
  CHECK(first_node("a") == "a");
  CHECK(first_node("a,b-1") == "a");
  CHECK(first_node("b-1,a") == "b-1");
  CHECK(first_node("n[1-3]") == "n1");
  CHECK(first_node("n[4294967294-4294967295]") == "n4294967294");
  CHECK(first_node("n[08-11,20]x") == "n08x");
  CHECK(first_node("r[1-2]n[3,1-2],z") == "r1n3");
  CHECK(first_node(std::string(255, 'n')).size() == 255);
  for (const char* bad : {"", ",", "a,", "a,,b", "n[", "n]", "n[]", "n[1", "n[1,]", "n[1-]", "n[1--2]", "n[-1]",
                          "n[a-b]", "n[1,a]", "n[[1]]", "n[1]]", "a,n[1", "a,n[]", "n[4294967296]"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(first_node(bad), Exception);
  }
  CHECK_THROWS_AS(first_node(std::string(256, 'n')), Exception);
  CHECK_THROWS_AS(first_node("n[" + std::string(255, '0') + "1]"), Exception);
  CHECK(expand_tasks_per_node("2(x3),1") == std::vector<int>{2, 2, 2, 1});
  CHECK(expand_tasks_per_node("4") == std::vector<int>{4});
  for (const char* bad : {"", "x", "2(x", "2(x)", "2(3)", "2(x3", "-1", "1(x9999999999)", "1(x0)", "1,", ",1"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(expand_tasks_per_node(bad), Exception);
  }
}

TEST_CASE("rendezvous strings: what is accepted comes apart as written, and the rest is refused") {
  CHECK(parse_rendezvous("").kind == RendezvousUrl::Kind::kNone);
  CHECK(parse_rendezvous("pmi:").kind == RendezvousUrl::Kind::kPmi);
  CHECK(parse_rendezvous("pmix:").kind == RendezvousUrl::Kind::kPmix);
  CHECK(parse_rendezvous("tcp://[::1]:5").host == "::1");
  CHECK(parse_rendezvous("tcp://a.b:5").port == 5);
  CHECK(parse_rendezvous("unix:///a").path == "/a");
  CHECK(parse_rendezvous("file:///a/b").kind == RendezvousUrl::Kind::kFile);
  UniqueKey key{};
  key[0] = 0xab;
  key[15] = 0x01;
  for (const char* host : {"10.0.0.1", "fd00::1"}) {
    RendezvousUrl url = parse_rendezvous(unique_url(host, 77, key));
    CHECK(url.host == host);
    CHECK(url.port == 77);
    CHECK(url.key == key);
  }
  CHECK(unique_url("h", 7, key) == "unique:h:7:ab000000000000000000000000000001");
  for (const char* bad :
       {"tcp://a", "tcp://:5", "tcp://a:", "tcp://a:x", "tcp://a:70000", "tcp://a:0", "unix://a", "file://", "file:///",
        "pmi:x", "unique:a:5", "unique:a:5:12", "unique:a:0:ab000000000000000000000000000001",
        "unique:a:5:zz000000000000000000000000000001", "a:5"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_rendezvous(bad), Exception);
  }
}

TEST_CASE("rendezvous strings: the key of a unique id, however malformed, is in no message") {
  CHECK(without_key("tcp://a:5") == "tcp://a:5");
  CHECK(without_key("unique:a:5:ab000000000000000000000000000001") == "unique:a:5:(key)");
  CHECK(without_key("unique:[fd00::1]:5:ab000000000000000000000000000001") == "unique:[fd00::1]:5:(key)");
  const std::string key = "ab00000000000000deadbeef00000001";
  for (const std::string& bad : {"unique:" + key, "unique:a:5:" + key + "0", "unique:a:5:" + key + ":x",
                                 "unique:a:0:" + key, "unique:[a:5:" + key}) {
    CAPTURE(bad);
    const Error refused = testing::error_of([&] { parse_rendezvous(bad); });
    CHECK(refused.code != ErrorCode::kOk);
    CHECK(refused.message.find("deadbeef") == std::string::npos);
  }
}

}  // namespace
}  // namespace rondo
