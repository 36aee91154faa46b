#include "bench/contest.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "bench/baseline.h"
#include "bench/children.h"
#include "bench/machine.h"
#include "bench/network_namespace.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

// A folder of peers whose mpiexec is a script: it answers as MPI_BENCH_SETTING tells, or does what `body` says.
class FakePeers {
 public:
  void add(const std::string& name, const std::string& body) {
    const fs::path folder = fs::path(directory_.path()) / "peers" / name;
    fs::create_directories(folder / "bin");
    write(folder / "bench", "#!/bin/sh\n");
    write(folder / "bin/mpiexec", "#!/bin/sh\n" + body);
  }
  void add_gloo() { write(fs::path(directory_.path()) / "gloo_bench", "#!/bin/sh\n"); }
  PeerPlaces places() const { return {{directory_.path()}}; }

 private:
  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
    fs::permissions(path, fs::perms::owner_all);
  }
  PrivateDirectory directory_;
};

// Rows for 8 bytes: time_us from $TIME, wrong elements from $WRONG; the file is the last argument.
const std::string kAnswer = R"(
for last; do :; done
cat >"$last" <<END
{"machine": {}, "limits": {"tcp": [], "exchange": []}, "rows": [{"library": "x", "collective": "all_reduce",
 "transport": "shm", "algorithm": "$MPI_BENCH_SETTING", "dtype": "float32", "op": "sum", "world": 2, "bytes": 8,
 "in_place": true, "buffers": "plain", "list": "none", "time_us": $TIME, "p50_us": 1, "p99_us": 1, "min_us": 1,
 "max_us": 1, "algbw_gbps": 1, "busbw_gbps": 1, "cpu_s_per_gb": null, "limit_gbps": null, "share_of_limit": null,
 "wrong": ${WRONG:-0}}]}
END
)";

Question question() {
  Question q;
  q.transport = "shm";
  q.sizes = "8";
  return q;
}

const auto kSilent = [](const std::string&) {};

// Runs of `turns` turns.
void run(Contest& contest, int turns) {
  contest.begin_run();
  for (int turn = 0; turn < turns; ++turn) contest.take_turn(kSilent);
}

size_t lines_of(const std::string& path) {
  std::ifstream file(path);
  size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

TEST_CASE("a contest takes the fastest right setting of each library, and drops slow ones") {
  FakePeers peers;
  peers.add("openmpi",
            R"(case $MPI_BENCH_SETTING in ring*) TIME=2;; default) TIME=1; WRONG=1;; *) TIME=9;; esac)" + kAnswer);
  peers.add("mpich", "TIME=4" + kAnswer);
  Contest contest(question(), {"mpich", "openmpi"}, peers.places(), 2, 20);
  run(contest, 1);
  run(contest, 1);
  REQUIRE(contest.median("openmpi", 8).has_value());
  CHECK(contest.median("openmpi", 8)->algorithm == "ring, heap kept");
  CHECK(contest.median("openmpi", 8)->library == "openmpi");
  CHECK(contest.best(1, "openmpi", 8)->time_us == 2);
  CHECK(contest.why_missing("openmpi").empty());
  int slower = 0, wrong = 0;
  for (const Contest::Tried& tried : contest.tried()) {
    slower += tried.status.find("slower") != std::string::npos;
    wrong += tried.status == "no right answer";
    CHECK(tried.sizes.empty() == !tried.status.empty());
  }
  CHECK(slower == 4);  // of Open MPI's six only the ring stays: the faster one is wrong
  CHECK(wrong == 1);
  const std::vector<Ratio> ratios = ratios_of({contest});
  REQUIRE(ratios.size() == 1);
  CHECK(ratios[0] == Ratio{"all_reduce, shm, plain buffers, 2 ranks, 8 B / openmpi", 2, 2, 2});
}

TEST_CASE("of a run's turns the fastest counts, and who was slow by chance in one of them stays") {
  FakePeers peers;
  PrivateDirectory directory;
  const std::string count = directory.path() + "/count";
  // The n-th answer of "default" takes 10 / n; the others 25 each: three times and more as long as its second.
  peers.add("openmpi", "case $MPI_BENCH_SETTING in default) echo >>" + count + "; TIME=$((10 / $(wc -l <" + count +
                           ")));; *) TIME=25;; esac" + kAnswer);
  Contest contest(question(), {"openmpi"}, peers.places(), 2, 20);
  run(contest, 2);
  CHECK(contest.best(0, "openmpi", 8)->time_us == 5);
  size_t asked = 0;
  for (const Contest::Tried& tried : contest.tried()) asked += !tried.sizes.empty();
  CHECK(asked == contest.tried().size());  // 25 against 10 after a turn: they have a chance
  run(contest, 3);
  CHECK(contest.best(1, "openmpi", 8)->time_us == 2);
  CHECK(lines_of(count) == 5);
  asked = 0;
  for (const Contest::Tried& tried : contest.tried()) asked += !tried.sizes.empty();
  CHECK(asked == 1);
}

TEST_CASE("after the first turn a library with few settings is asked as often as one with more, up to four times") {
  FakePeers peers;
  PrivateDirectory directory;
  const std::string few = directory.path() + "/few", many = directory.path() + "/many";
  peers.add("openmpi", "echo >>" + many + "; TIME=10" + kAnswer);
  peers.add("mpich", "echo >>" + few + "; case $MPI_BENCH_SETTING in default) TIME=4;; *) TIME=20;; esac" + kAnswer);
  Contest contest(question(), {"mpich", "openmpi"}, peers.places(), 2, 20);
  run(contest, 1);
  const size_t few_settings = lines_of(few), many_settings = lines_of(many);
  REQUIRE(many_settings > 4);
  run(contest, 1);
  CHECK(lines_of(few) == few_settings + 4);  // "default", the one that is left
  CHECK(lines_of(many) == 2 * many_settings);
}

TEST_CASE("after the first turn a library is asked as often as the machine has settings with which it is compared") {
  FakePeers peers;
  PrivateDirectory directory;
  const std::string asked = directory.path() + "/asked";
  peers.add("mpich", "echo >>" + asked + "; case $MPI_BENCH_SETTING in default) TIME=4;; *) TIME=20;; esac" + kAnswer);
  Contest contest(question(), {"mpich"}, peers.places(), 2, 20, 3);
  run(contest, 1);
  const size_t first = lines_of(asked);
  run(contest, 2);
  CHECK(lines_of(asked) == first + 2 * 3);
  CHECK(contest.answers("mpich", 8) == 2 * 3);
}

TEST_CASE("a program of several sizes that fails is asked them one by one, and loses those only that fail alone") {
  FakePeers peers;
  // Fails at 16, answers at 8.
  peers.add("mpich", R"(case "$*" in *"--sizes 16"*) exit 9;; *,*) exit 8;; esac; TIME=4)" + kAnswer);
  Question q = question();
  q.sizes = "8,16";
  q.collective = "all_gather";  // two settings instead of many
  int cores = 2;
  SUBCASE("found out by a failure") {}
  SUBCASE("with more ranks than cores, from the start") { cores = 1; }
  Contest contest(q, {"mpich"}, peers.places(), cores, 20);
  run(contest, 2);
  CHECK(contest.best(0, "mpich", 8)->time_us == 4);
  for (const Contest::Tried& tried : contest.tried()) {
    CHECK(tried.sizes == std::vector<std::string>{"8"});
    CHECK(tried.status == "ended with code 9: ");
  }
  run(contest, 1);
  CHECK(contest.best(1, "mpich", 8).has_value());
  CHECK(contest.why_missing("mpich").empty());
}

TEST_CASE("a peer that is not there, that fails and that never ends leaves a line, and bounded time") {
  FakePeers peers;
  peers.add("openmpi", "echo 'no such device' >&2; exit 3\n");
  peers.add("mpich", "sleep 1000 & sleep 1000\n");
  Question q = question();
  q.collective = "all_gather";  // two settings instead of many
  Contest contest(q, {"openmpi", "mpich", "intelmpi", "gloo"}, peers.places(), 2, 0.3);
  run(contest, 1);
  CHECK(contest.why_missing("openmpi") == "ended with code 3: no such device");
  CHECK(contest.why_missing("mpich") == "did not finish 8 in 0 s");
  CHECK(contest.why_missing("intelmpi") == "not built: bench/peers/build_mpi.sh intelmpi");
  CHECK(contest.why_missing("gloo").find("Gloo") == std::string::npos);
  CHECK_FALSE(contest.why_missing("gloo").empty());
}

TEST_CASE("commands can be pasted into a shell, with their environment, in a network namespace where asked for") {
  FakePeers peers;
  peers.add("intelmpi", kAnswer);
  Question q = question();
  q.transport = "tcp";
  q.congestion = "reno";
  q.world = 4;
  std::string missing;
  const std::vector<Entrant> all = entrants("intelmpi", q, peers.places(), 2, missing);
  REQUIRE(all.size() == 5);
  const std::string command = all.back().command();
  for (const char* part : {"FI_PROVIDER=tcp", "I_MPI_FABRICS=ofi", "I_MPI_ADJUST_ALLREDUCE=8", "I_MPI_THREAD_YIELD=3",
                           "MPI_BENCH_KEEP_HEAP=1", "'MPI_BENCH_SETTING=ring, heap kept'", "--namespace reno --",
                           "-n 4", "--placement in", "--sizes 8"}) {
    INFO(command, " lacks ", part);
    CHECK(command.find(part) != std::string::npos);
  }
  CHECK(question().text() == "all_reduce, shm, plain buffers, 2 ranks");
  CHECK(q.text() == "all_reduce, tcp @reno, plain buffers, 4 ranks");
}

TEST_CASE("Gloo: a setting is an algorithm and a congestion control; no blocking pairs where they wait for ever") {
  FakePeers peers;
  peers.add_gloo();
  Question q = question();
  q.transport = "tcp";
  q.sizes = "8,1M,64M";
  std::string missing;
  const size_t congestions = this_machine().congestion_controls.size();
  const std::vector<Entrant> blocking = entrants("gloo-sync", q, peers.places(), 2, missing);
  REQUIRE(blocking.size() == 4 * congestions);
  CHECK(blocking[0].command().find("--mode sync --algorithms ring --seconds") != std::string::npos);
  CHECK(blocking[0].command().find("--sizes 8,1M") != std::string::npos);
  const std::vector<Entrant> all = entrants("gloo", q, peers.places(), 2, missing);
  REQUIRE(all.size() == 6 * congestions);
  CHECK(all[0].command().find("--sizes 8,1M,64M") != std::string::npos);
  q.sizes = "64M";
  CHECK(entrants("gloo-busy", q, peers.places(), 2, missing).empty());
  CHECK(missing.find("wait for ever") != std::string::npos);
}

TEST_CASE("a baseline keeps what it was not asked about, and a ratio falls only beyond the noise of both sides") {
  PrivateDirectory directory;
  const std::string path = directory.path() + "/baseline.json";
  write_baseline(path, {{"a", 0.5, 0.45, 0.55}, {"b", 1.0, 1.0, 1.0}}, {});
  write_baseline(path, {{"b", 0.8, 0.8, 0.8}, {"c", 0.3, 0.3, 0.3}}, {});
  const std::vector<Ratio> kept = read_baseline(path);
  CHECK(kept == std::vector<Ratio>{{"a", 0.5, 0.45, 0.55}, {"b", 0.8, 0.8, 0.8}, {"c", 0.3, 0.3, 0.3}});
  const auto fell = [&](const Ratio& now) {
    const std::vector<BaselineVerdict> verdicts = compare_with_baseline({now}, kept);
    REQUIRE(verdicts.size() == 1);
    return verdicts[0].fell;
  };
  CHECK_FALSE(fell({"a", 0.59, 0.59, 0.59}));  // within the file's spread of 0.1
  CHECK(fell({"a", 0.61, 0.61, 0.61}));
  CHECK_FALSE(fell({"a", 0.61, 0.5, 0.7}));    // within this run's spread
  CHECK_FALSE(fell({"b", 0.83, 0.83, 0.83}));  // within 5 %
  CHECK(fell({"b", 0.85, 0.85, 0.85}));
  CHECK_FALSE(fell({"b", 0.1, 0.1, 0.1}));  // better
  CHECK(compare_with_baseline({{"unknown", 9, 9, 9}}, kept).empty());
  CHECK_THROWS_AS(read_baseline(directory.path() + "/nothing"), Exception);
}

TEST_CASE("in a network namespace there is a loopback under the wanted congestion control, or an honest no") {
  CHECK_FALSE(network_namespaces_work("nonesuch"));
  if (!network_namespaces_work("reno")) return;  // neither root nor user namespaces
  MESSAGE("network namespaces work here");
}

}  // namespace
}  // namespace rondo::bench
