// Drives the real rondo-run around small shell programs.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "rondo/rondo.h"
#include "tests/support/eventually.h"
#include "tests/support/program.h"
#include "tests/support/resources.h"

namespace {

using rondo::test::alive;
using rondo::test::count_of;
using rondo::test::Program;
using rondo::test::sorted_lines;
using rondo::testing::eventually;
using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

constexpr char kRondoRun[] = "tools/rondo-run";
constexpr char kLaunchHere[] = "tests/tools/launch_here.sh";

Strings joined(Strings command, const Strings& more) {
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

Strings run_shell(int ranks, const std::string& script, const Strings& options = {}) {
  return joined(joined({kRondoRun, "-n", std::to_string(ranks)}, options), {"sh", "-c", script});
}

// The same on several "hosts", all of which are this machine.
Strings run_on_hosts(const std::string& hosts, const std::string& script, const Strings& options = {}) {
  const Strings command{kRondoRun, "--hosts", hosts, "--launch-agent", kLaunchHere, "--env", "RONDO_INSECURE=1"};
  return joined(joined(command, options), {"sh", "-c", script});
}

// For scripts: `say WHY` does what a rank that fails by itself does.
const std::string kSays = "say() { echo \"${RONDO_RAISED%%:*} $1\" >>${RONDO_RAISED#*:}; }; ";

bool says_ready(const Program& program, size_t times) {
  return eventually([&] { return count_of(program.output(), "ready") >= times; });
}

// The numbers after "pid " in the output.
std::vector<pid_t> pids_in(const std::string& text) {
  static const std::regex kPid("pid ([0-9]+)");
  std::vector<pid_t> pids;
  for (std::sregex_iterator it(text.begin(), text.end(), kPid), end; it != end; ++it)
    pids.push_back(std::stoi((*it)[1]));
  return pids;
}

std::string ordinary_loop(const std::string& before) { return before + "; echo ready; while :; do sleep 0.05; done"; }

// Rank 1 does `preparation` and then loops; rank 0 exits with 3 once that is done.
std::string rank_0_fails_when_rank_1(const std::string& preparation) {
  return "flag=${RONDO_RENDEZVOUS#unix://}.ready; if [ $RANK = 0 ]; then until [ -e $flag ]; do sleep 0.01; done; exit "
         "3; "
         "fi; " +
         preparation + "; : > $flag; while :; do sleep 0.05; done";
}

}  // namespace

TEST_CASE("--elastic: ranks that fail do not end the others, as long as enough are left") {
  const std::string script = "if [ $RANK = 0 ]; then kill -9 $$; fi; sleep 0.3; echo done $RANK; [ $RANK != 1 ]";
  Program enough(run_shell(3, script, {"--elastic", "1"}));
  CHECK(enough.wait() == 0);
  CHECK(sorted_lines(enough.output()) == Strings{"[1] done 1", "[2] done 2"});
  CHECK(enough.errors().find("rank 0 (process ") != std::string::npos);
  CHECK(enough.errors().find("was killed by signal 9 (Killed); rank 1, 2 may go on") != std::string::npos);
  Program fewer(run_shell(3, "if [ $RANK = 0 ]; then kill -9 $$; fi; sleep 60", {"--elastic", "3"}));
  CHECK(fewer.wait() == 128 + SIGKILL);
  Program many(run_shell(3, "true", {"--elastic", "4"}));
  CHECK(many.wait() == 2);
  CHECK(many.errors().find("--elastic 4 is more than the 3 ranks") != std::string::npos);
  Program hexadecimal(run_shell(3, "true", {"--elastic", "0x4"}));
  CHECK(hexadecimal.wait() == many.wait());
  CHECK(hexadecimal.errors().find("--elastic 4 is more than the 3 ranks") != std::string::npos);
}

TEST_CASE("--elastic on several hosts: ranks are counted over all, and each host hears whose processes have ended") {
  const std::string ended = "f=/proc/self/fd/${RONDO_ENDED%%:*}; ended() { echo $(od -An -tu1 <$f); }; ";
  Program enough(run_on_hosts("a:1,b:2",
                              ended + "[ $RANK = 0 ] || exit 7; until [ \"$(ended)\" = '0 1 1' ]; do sleep 0.05; done; "
                                      "[ ${RONDO_ENDED#*:} = $RONDO_RENDEZVOUS ] && echo heard",
                              {"--elastic", "1"}));
  CHECK(enough.wait() == 0);
  CHECK(enough.output() == "[0] heard\n");
  CHECK(count_of(enough.errors(), "exited with code 7; 2 of 3 ranks are left\n") == 1);
  CHECK(count_of(enough.errors(), "exited with code 7; 1 of 3 ranks are left\n") == 1);
  Program fewer(run_on_hosts("a:1,b:2", "[ $RANK = 2 ] && exit 7; sleep 60", {"--elastic", "3", "--no-prefix"}));
  CHECK(fewer.wait() == 7);
  CHECK(fewer.output() == "");
  CHECK(count_of(fewer.errors(), "rank 2 (process ") == 1);
  CHECK(count_of(fewer.errors(), "2 of 3 ranks are left: ending them") == 1);
  CHECK(Program(run_on_hosts("a:1,b:1", "exit 7", {"--elastic", "1"})).wait() == 7);
  // What ends the process of a host, or the way to it, proves nothing.
  Program cut(run_on_hosts("a:1,b:1",
                           ended + "[ $RANK = 1 ] && kill -9 $PPID; for i in 1 2 3 4 5; do sleep 0.1; ended; done",
                           {"--elastic", "1"}));
  CHECK(cut.wait() == 0);
  CHECK(count_of(cut.output(), "[0] 0 0\n") == 5);
  CHECK(count_of(cut.errors(), "host b (process ") == 1);
}

TEST_CASE("--elastic MIN:MAX: a rank that fails is started again, without a rank, so often as is allowed") {
  // The ranks have met: rank 0's store has come and gone. Rank 0 waits for those that come after rank 1, which all fail
  // but for the third.
  const std::string script =
      "flag=${RONDO_JOIN#unix://}; store=${RONDO_RENDEZVOUS#unix://}; "
      "if [ \"$RANK\" = 0 ]; then : >$store; rm $store; : >$flag.met; fi; "
      "if [ \"$RANK\" = 1 ]; then until [ -e $flag.met ]; do sleep 0.01; done; kill -9 $$; fi; "
      "if [ -z \"$RANK$WORLD_SIZE\" ]; then echo x >>$flag.came; echo again $LOCAL_RANK; "
      "if [ $(wc -l <$flag.came) = 3 ]; then : >$flag.ready; exit 0; fi; exit 7; fi; "
      "until [ -e $flag.ready ]; do sleep 0.01; done; echo done";
  Program thrice(run_shell(2, script, {"--elastic", "1:2"}));
  CHECK(thrice.wait() == 0);
  CHECK(sorted_lines(thrice.output()) == Strings{"[0] done", "[1] again 1", "[1] again 1", "[1] again 1"});
  CHECK(thrice.errors().find("rank 0 may go on, and it is started again") != std::string::npos);
  Program once(
      run_shell(2, "if [ \"$RANK\" = 0 ]; then sleep 60; fi; exit 7", {"--elastic", "2:2", "--max-restarts", "1"}));
  CHECK(once.wait() == 7);
  Program more(run_shell(2, "true", {"--elastic", "1:3"}));
  CHECK(more.wait() == 2);
  CHECK(more.errors().find("--elastic 3 is more than the 2 ranks") != std::string::npos);
}

TEST_CASE("--elastic MIN:MAX inside another launcher's task: a rank that is started again is no rank of that job") {
  const char* names[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID"};
  Strings command{"env", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1"};
  std::string shows = "echo again";
  for (const std::string name : names) {
    command.push_back(name + (name.ends_with("SIZE") ? "=1" : "=0"));
    shows += " ${" + name + "-none}";
  }
  // The ranks have met: rank 0's store has come and gone.
  const std::string script =
      "flag=${RONDO_JOIN#unix://}; store=${RONDO_RENDEZVOUS#unix://}; "
      "if [ \"$RANK\" = 0 ]; then : >$store; rm $store; : >$flag.met; fi; "
      "if [ \"$RANK\" = 1 ]; then until [ -e $flag.met ]; do sleep 0.01; done; kill -9 $$; fi; "
      "if [ -z \"$RANK\" ]; then " +
      shows + "; : >$flag.ready; fi; until [ -e $flag.ready ]; do sleep 0.01; done";
  Program again(joined(command, run_shell(2, script, {"--elastic", "1:2"})));
  CHECK(again.wait() == 0);
  CHECK(again.output() == "[1] again none none none none none\n");
}

TEST_CASE("--elastic: a rank that dies before the ranks have met comes again as this rank, or the others are ended") {
  // Rank 1 dies once; rank 0 waits for it to come again.
  const std::string dies =
      "once=${RONDO_JOIN#unix://}.once; if [ $RANK = 1 ]; then mkdir $once 2>/dev/null && kill -9 $$; : >$once.again; "
      "fi; "
      "until [ -e $once.again ]; do sleep 0.01; done; ";
  const std::string serves =
      "s=${RONDO_RENDEZVOUS#unix://}; [ $RANK = 0 ] && : >$s; until [ -e $s ]; do sleep 0.01; done; ";
  for (const std::string& script : {dies + "echo rank $RANK", serves + dies + "echo rank $RANK"}) {
    Program again(run_shell(2, script, {"--elastic", "1:2"}));
    CHECK(again.wait() == 0);
    CHECK(sorted_lines(again.output()) == Strings{"[0] rank 0", "[1] rank 1"});
    CHECK(again.errors().find("it is started again") != std::string::npos);
  }
  for (const Strings& options : {Strings{"--elastic", "1"}, Strings{"--elastic", "1:2", "--max-restarts", "0"}}) {
    Program never(run_shell(2, serves + "[ $RANK = 1 ] && exit 7; exec sleep 60", options));
    CHECK(never.wait() == 7);
    CHECK(never.errors().find("rank 1 is missing at the start of the others\n") != std::string::npos);
  }
}

TEST_CASE("a rondo-run inside a rank passes on nothing of the outer job but the environment that is the user's") {
  const std::string inner = std::string("exec ") + std::filesystem::absolute(kRondoRun).string() +
                            " -n 1 --no-prefix sh -c 'echo ${RONDO_JOIN-none} ${RONDO_ENDED-none} "
                            "${RONDO_SECRET_FD-none} $RONDO_DEBUG'";
  Program elastic(run_shell(2, inner, {"--elastic", "1:2", "--no-prefix", "--env", "RONDO_DEBUG=info"}));
  CHECK(elastic.wait() == 0);
  CHECK(elastic.output() == "none none none info\nnone none none info\n");
  Program hosts(
      {kRondoRun, "--hosts", "a,b", "--launch-agent", kLaunchHere, "--elastic", "1", "--no-prefix", "sh", "-c", inner});
  CHECK(hosts.wait() == 0);
  CHECK(hosts.output() == "none none none\nnone none none\n");
  // What the user says of newcomers is passed on.
  Program user({"env", "RONDO_JOIN=unix:///x/y", kRondoRun, "-n", "1", "sh", "-c", "echo $RONDO_JOIN"});
  CHECK(user.wait() == 0);
  CHECK(user.output() == "[0] unix:///x/y\n");
}

TEST_CASE("ranks learn their places, settings and input, and what they say is prefixed by rank") {
  const rondo::testing::TempFolder folder;
  const std::string hosts = folder.path("hosts");
  std::ofstream(hosts) << "# comment\na slots=2\n\nb:2   # more\nc\n";
  const std::string place = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE ";
  const std::string rest = " a tcp://a:1234 it's x " + std::filesystem::current_path().string();
  Strings on_two =
      run_on_hosts("a:2,me@b", place + "$RONDO_NODE $RONDO_NODES $MASTER_ADDR $RONDO_RENDEZVOUS $RONDO_X $PWD",
                   {"--master-port", "1234"});
  on_two.insert(on_two.begin(), {"env", "RONDO_X=it's x"});
  struct Row {
    const char* what;
    Strings command, output;
    std::optional<Strings> errors = std::nullopt;  // looked at where given
    std::string input = "";
  };
  const std::vector<Row> rows{
      {"a place in the field's names, and in Rondo's",
       run_shell(
           3, place + "$MASTER_ADDR; echo R $RONDO_RANK $RONDO_WORLD_SIZE $RONDO_LOCAL_RANK $RONDO_LOCAL_WORLD_SIZE"),
       {"[0] 0 3 0 3 127.0.0.1", "[0] R 0 3 0 3", "[1] 1 3 1 3 127.0.0.1", "[1] R 1 3 1 3", "[2] 2 3 2 3 127.0.0.1",
        "[2] R 2 3 2 3"},
       Strings{}},
      {"--env, over the launcher's own; it takes no word of the program's",
       run_shell(2, "echo $A $B $MASTER_PORT", {"--env", "A=x=y", "--env", "MASTER_PORT=77", "--env", "B="}),
       {"[0] x=y 77", "[1] x=y 77"}},
      {"both outputs",
       run_shell(2, "echo out; echo err >&2; printf 'half'"),
       {"[0] half", "[0] out", "[1] half", "[1] out"},
       Strings{"[0] err", "[1] err"}},
      {"the launcher's input, for rank 0 alone",
       run_shell(2, "cat"),
       {"[0] from outside"},
       std::nullopt,
       "from outside\n"},
      {"several hosts: one port, the settings of this shell, and the same folder",
       on_two,
       {"[0] 0 3 0 2 0 2" + rest, "[1] 1 3 1 2 0 2" + rest, "[2] 2 3 0 1 1 2" + rest},
       Strings{}},
      {"-n of the first hosts of a file, whose lines are of either kind",
       {kRondoRun, "--hostfile", hosts, "-n", "3", "--launch-agent", kLaunchHere, "--env", "RONDO_INSECURE=1", "sh",
        "-c", "echo $RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $RONDO_NODES"},
       {"[0] 0 3 2 2", "[1] 1 3 2 2", "[2] 2 3 1 2"}},
      {"one other host: a private socket there",
       {kRondoRun, "--hosts", "a:2", "--launch-agent", kLaunchHere, "sh", "-c", "echo ${RONDO_RENDEZVOUS%%:*}"},
       {"[0] unix", "[1] unix"}},
      {"options after --, which are the program's",
       {kRondoRun, "-n", "1", "--", "echo", "-n", "--help"},
       {"[0] --help"}},
      {"the version", {kRondoRun, "--version"}, {"rondo-run " RONDO_VERSION}},
  };
  for (const Row& row : rows) {
    const std::string what = row.what;
    CAPTURE(what);
    Program program(row.command, row.input);
    CHECK(program.wait() == 0);
    CHECK(sorted_lines(program.output()) == row.output);
    if (row.errors) CHECK(sorted_lines(program.errors()) == *row.errors);
  }
}

TEST_CASE("ranks of one run share a private meeting place, runs do not, and nothing of it is left behind") {
  std::set<std::string> places;
  for (int run = 0; run < 2; ++run) {
    Program program(run_shell(2,
                              "cd /; echo $RONDO_RENDEZVOUS $RONDO_JOB_ID $MASTER_PORT; p=${RONDO_RENDEZVOUS#unix://}; "
                              "stat -c %a ${p%/*}; : > $p",
                              {"--no-prefix"}));
    REQUIRE(program.wait() == 0);
    const Strings lines = sorted_lines(program.output());
    REQUIRE(lines.size() == 4);
    CHECK(lines[0] == "700");
    CHECK(lines[2] == lines[3]);
    const std::string path = lines[2].substr(7, lines[2].find("/store") - 7);
    CHECK(lines[2].starts_with("unix:///"));
    CHECK_FALSE(std::filesystem::exists(path));
    places.insert(lines[2]);
  }
  CHECK(places.size() == 2);
}

TEST_CASE("where the job's folder cannot be made, the launcher says what to do") {
  Program program({"/usr/bin/env", "TMPDIR=/proc", kRondoRun, "-n", "1", "true"});
  CHECK(program.wait() == 1);
  CHECK(count_of(program.errors(), "the job's folder /proc/rondo-run-") == 1);
  CHECK(count_of(program.errors(), "set TMPDIR to ") == 1);
}

TEST_CASE("--no-prefix leaves every byte as it was written") {
  Program program(run_shell(1, "printf 'a\\000b\\377'", {"--no-prefix"}));
  CHECK(program.wait() == 0);
  CHECK(program.output() == std::string("a\0b\xff", 4));
}

TEST_CASE("much output of several ranks arrives whole, line by line") {
  Program program(run_shell(3, "seq 1 20000"));
  CHECK(program.wait() == 0);
  Strings expected;
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 1; i <= 20000; ++i) expected.push_back("[" + std::to_string(rank) + "] " + std::to_string(i));
  }
  std::sort(expected.begin(), expected.end());
  CHECK(sorted_lines(program.output()) == expected);
}

TEST_CASE("the code of the rank that failed first is returned, and the others are ended") {
  Program program(run_shell(3, "[ $RANK = 1 ] && exit 7; exec sleep 1000"));
  CHECK(program.wait(4s) == 7);  // sooner than the grace of 5 s: SIGTERM was enough
  CHECK(program.errors().find("rondo-run: rank 1 ") != std::string::npos);
  CHECK(program.errors().find("exited with code 7") != std::string::npos);
  CHECK(program.errors().find("ending rank 0, 2") != std::string::npos);
}

TEST_CASE("the rank that has said that it raised is to blame, though another ends first") {
  Program slow(run_shell(3, kSays + "if [ $RANK = 1 ]; then say cause; exec 2>&-; sleep 0.7; exit 7; fi; "
                                    "until [ -s ${RONDO_RAISED#*:} ]; do sleep 0.01; done; exit 3"));
  CHECK(slow.wait() == 7);
  CHECK(slow.errors().find("rank 1 (process ") != std::string::npos);
  CHECK(slow.errors().find("failed first: it exited with code 7 (cause)") != std::string::npos);
  // One that has gone on since.
  Program caught(run_shell(2, kSays + "[ $RANK = 1 ] && say caught && exit 0; sleep 0.3; exit 3"));
  CHECK(caught.wait() == 3);
  CHECK(caught.errors().find("rank 0 (process ") != std::string::npos);
}

TEST_CASE("the others have time to print what a rank that raised has told them, and are ended then") {
  const std::string script = "case $RANK in 1) say cause; exit 7;; 0) sleep 1.2; echo printed; exit 3;; esac; ";
  Program program(run_shell(3, kSays + script + "exec sleep 1000", {"--timeout", "1"}));  // which changes nothing then
  CHECK(program.wait(10s) == 7);
  CHECK(program.output() == "[0] printed\n");
}

TEST_CASE("a rank killed by a signal counts as 128 + signal") {
  Program program(run_shell(2, "[ $RANK = 0 ] && kill -SEGV $$; exec sleep 1000"));
  CHECK(program.wait() == 128 + SIGSEGV);
  CHECK(program.errors().find("rank 0 ") != std::string::npos);
  CHECK(program.errors().find("signal 11") != std::string::npos);
}

TEST_CASE("ranks that fail later, or because they were ended, do not change the code") {
  Program program(run_shell(2, rank_0_fails_when_rank_1("trap 'exit 9' TERM")));
  CHECK(program.wait() == 3);
}

TEST_CASE("signals are passed on to every rank, which may handle them and succeed") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    CAPTURE(signal);
    Program program(run_shell(2, ordinary_loop("trap 'echo handled; exit 0' INT TERM HUP USR1 USR2")));
    REQUIRE(says_ready(program, 2));
    program.signal(signal);
    CHECK(program.wait() == 0);
    CHECK(count_of(program.output(), "handled") == 2);
  }
}

TEST_CASE("asked twice, ranks that take no notice are ended") {
  Program program(run_shell(1, ordinary_loop("trap '' INT")));
  REQUIRE(says_ready(program, 1));
  program.signal(SIGINT);
  REQUIRE(program.wait(300ms) == -1);
  program.signal(SIGINT);
  CHECK(program.wait() == 128 + SIGTERM);
}

TEST_CASE("the timeout ends the ranks with 124 and says which still ran") {
  Program program(run_shell(3, "[ $RANK = 0 ] && exit 0; exec sleep 1000", {"--timeout", "0.5"}));
  CHECK(program.wait() == 124);
  CHECK(program.errors().find("ending rank 1, 2") != std::string::npos);
}

// Both jobs at once: they wait for seconds.
TEST_CASE("a rank that raised and goes on is ended after a while or by the timeout; deaf to SIGTERM, after the grace") {
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_CHILDREN, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const auto before = used();
  Program never(run_shell(2, kSays + "[ $RANK = 1 ] && say cause && exec sleep 60; sleep 0.3; exit 3"));
  const std::string raises =
      "if [ $RANK = 1 ]; then trap '' TERM; say cause; echo pid $$; while :; do sleep 1; done; fi; ";
  const auto start = std::chrono::steady_clock::now();
  Program deaf(run_shell(2, kSays + raises + "sleep 0.3; exit 3", {"--timeout", "1"}));
  CHECK(never.wait(12s) == 1);
  CHECK(never.errors().find("failed first: it raised, and has not ended since (cause); ending rank 1") !=
        std::string::npos);
  CHECK(deaf.wait() == 124);
  CHECK(std::chrono::steady_clock::now() - start >= 6s);  // the timeout and the grace
  CHECK(deaf.errors().find("killed: rank 1") != std::string::npos);
  for (const pid_t pid : pids_in(deaf.output())) CHECK_FALSE(alive(pid));
  CHECK(used() - before < 800ms);  // the launchers sleep meanwhile
}

TEST_CASE("ranks, and what they started, wherever it hid, die with the launcher that is killed, and its folder goes") {
  Program program(run_shell(
      2,
      "echo $RONDO_RENDEZVOUS; echo pid $$; sleep 1000 & echo pid $!; setsid sh -c 'echo pid $$; sleep 1000; :'; :"));
  REQUIRE(eventually([&] { return pids_in(program.output()).size() == 6; }));
  const auto pids = pids_in(program.output());
  for (const pid_t pid : pids) CHECK(alive(pid));
  const std::string output = program.output(), place = output.substr(output.find("unix://") + 7);
  const std::string folder = place.substr(0, place.find("/store"));
  REQUIRE(std::filesystem::exists(folder));
  program.signal(SIGKILL);
  CHECK(program.wait() == 128 + SIGKILL);
  for (const pid_t pid : pids) CHECK(eventually([&] { return !alive(pid); }));
  CHECK(eventually([&] { return !std::filesystem::exists(folder); }));
}

TEST_CASE("when the process that starts the ranks is killed, so is everything, and the launcher says so") {
  Program program(run_shell(2, "echo parent $PPID; sleep 1000 & echo pid $!; wait"));
  REQUIRE(
      eventually([&] { return pids_in(program.output()).size() == 2 && count_of(program.output(), "parent") == 2; }));
  const auto pids = pids_in(program.output());
  const std::string output = program.output();
  ::kill(std::stoi(output.substr(output.find("parent ") + 7)), SIGKILL);
  CHECK(program.wait() == 128 + SIGKILL);
  CHECK(program.errors().find("was killed by signal 9") != std::string::npos);
  for (const pid_t pid : pids) CHECK_FALSE(alive(pid));
}

TEST_CASE("who kills the launcher by its name or its command line leaves the process that ends all") {
  Program program(run_shell(2, "sleep 1000 & echo pid $!; echo parent $PPID; wait"));
  REQUIRE(
      eventually([&] { return pids_in(program.output()).size() == 2 && count_of(program.output(), "parent") == 2; }));
  const auto pids = pids_in(program.output());
  const std::string output = program.output(), parent = output.substr(output.find("parent ") + 7);
  Program named({"sh", "-c", "cd /proc/" + parent.substr(0, parent.find('\n')) + "; cat comm; tr -d '\\0' <cmdline"});
  CHECK(named.wait() == 0);
  CHECK(named.output() == "rondo-ranks\nrondo-ranks");
  program.signal(SIGKILL);
  CHECK(program.wait() == 128 + SIGKILL);
  for (const pid_t pid : pids) CHECK(eventually([&] { return !alive(pid); }));
}

TEST_CASE("a job that is stopped at a terminal stops its ranks, and they go on with it") {
  const auto state = rondo::testing::state_of;
  // Ranks without children: a shell whose child stops between vfork() and exec is in state D, not T, until it goes on.
  Program program(run_shell(2, "echo pid $$; echo ready; exec sleep 1000"));
  REQUIRE(says_ready(program, 2));
  const auto pids = pids_in(program.output());
  program.signal(SIGTSTP);
  CHECK(eventually([&] { return state(pids[0]) == 'T' && state(pids[1]) == 'T' && state(program.pid()) == 'T'; }));
  program.signal(SIGCONT);
  CHECK(eventually([&] { return state(pids[0]) != 'T' && state(pids[1]) != 'T' && state(program.pid()) != 'T'; }));
  program.signal(SIGTERM);
  CHECK(program.wait() == 128 + SIGTERM);
}

TEST_CASE("OMP_NUM_THREADS is the cores divided by the ranks, at least 1, unless it is set") {
  // The two cores that taskset leaves, or the one where there is no second.
  const std::string script = "echo $OMP_NUM_THREADS";
  const auto said = [&](const Strings& before, int ranks, const Strings& options = {}) {
    Program program(joined(before, run_shell(ranks, script, options)));
    CHECK(program.wait() == 0);
    return sorted_lines(program.output()).front();
  };
  const std::string cores = std::to_string(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  CHECK(said({"env", "-u", "OMP_NUM_THREADS"}, 1) == "[0] " + cores);
  CHECK(said({"env", "-u", "OMP_NUM_THREADS", "taskset", "-c", "0"}, 1) == "[0] 1");
  CHECK(said({"env", "-u", "OMP_NUM_THREADS"}, 100) == "[0] 1");
  CHECK(said({"env", "OMP_NUM_THREADS=7"}, 2) == "[0] 7");
  CHECK(said({"env", "-u", "OMP_NUM_THREADS"}, 2, {"--env", "OMP_NUM_THREADS=5"}) == "[0] 5");
}

TEST_CASE("--elastic on one other host is as on this one") {
  Program enough(run_on_hosts("a:2", "[ $RANK = 0 ] && exit 7; sleep 0.3; echo done", {"--elastic", "1"}));
  CHECK(enough.wait() == 0);
  CHECK(enough.output() == "[1] done\n");
  Program again(run_on_hosts("a:2",
                             "f=${RONDO_JOIN#unix://}.came; [ $RANK = 0 ] && until [ -e $f ]; do sleep 0.01; done; "
                             "[ $RANK = 1 ] && mkdir $f.once 2>/dev/null && kill -9 $$; : >$f; echo $RANK",
                             {"--elastic", "1:2", "--max-restarts", "1"}));
  CHECK(again.wait() == 0);
  CHECK(sorted_lines(again.output()) == Strings{"[0] 0", "[1] 1"});
}

TEST_CASE("--mpi: a job that no rank has joined has failed on one host, this or another; several meet elsewhere") {
  const rondo::testing::TempFolder folder;
  const std::string launcher = folder.path() + "/rondo-run";  // which finds the library beside itself
  std::filesystem::copy_file(kRondoRun, launcher);
  std::filesystem::create_directory(folder.path() + "/mpi");
  std::ofstream(folder.path() + "/mpi/libmpi.so.12").flush();
  const auto run = [&](const std::string& hosts) {
    Strings command = run_on_hosts(hosts, "true", {"--mpi"});
    command.front() = launcher;
    Program program(command);
    const int code = program.wait();
    CHECK(count_of(program.errors(), "none had joined the job") == (code == 0 ? 0 : 1));
    return code;
  };
  CHECK(run("localhost:2") == 1);
  CHECK(run("a:2") == 1);
  CHECK(run("a:1,localhost:1") == 0);
}

TEST_CASE("a rank that fails on one host ends those of the others, and its code is returned") {
  Program program(run_on_hosts("a:2,b:2", "echo pid $$; [ $RANK = 3 ] && exit 7; exec sleep 1000"));
  CHECK(program.wait(4s) == 7);
  CAPTURE(program.errors());
  CHECK(program.errors().find("rank 3 ") != std::string::npos);
  CHECK(program.errors().find("host b ") != std::string::npos);
  for (const pid_t pid : pids_in(program.output())) CHECK_FALSE(alive(pid));
}

TEST_CASE("signals reach the ranks of every host") {
  Program program(run_on_hosts("a:2,localhost:1", ordinary_loop("trap 'echo handled; exit 0' TERM")));
  REQUIRE(says_ready(program, 3));
  program.signal(SIGTERM);
  CHECK(program.wait() == 0);
  CHECK(count_of(program.output(), "handled") == 3);
}

TEST_CASE("ranks of other hosts, and what they started, die with the launcher") {
  Program program(run_on_hosts("a:2,b:1,localhost:1", "setsid sleep 1000 & echo pid $!; wait"));
  REQUIRE(eventually([&] { return pids_in(program.output()).size() == 4; }));
  const auto pids = pids_in(program.output());
  program.signal(SIGKILL);
  CHECK(program.wait() == 128 + SIGKILL);
  for (const pid_t pid : pids) CHECK(eventually([&] { return !alive(pid); }));
}

TEST_CASE("a host that cannot be reached ends the job with the agent's words and code") {
  Program program(run_on_hosts("a:1,gone:1", "exec sleep 1000"));
  CHECK(program.wait(10s) == 255);
  CHECK(program.errors().find("no route to gone") != std::string::npos);
  CHECK(program.errors().find("host gone ") != std::string::npos);
}

TEST_CASE("an agent that is told nothing starts nothing") {
  Program silent({kRondoRun, "--host-ranks"}, "");
  CHECK(silent.wait() == 1);
  CHECK(silent.errors().find("before this host was told its ranks") != std::string::npos);
  Program other({kRondoRun, "--host-ranks"}, "rondo-run 0.0.0 00000001\n...........");
  CHECK(other.wait() == 1);
  CHECK(other.errors().find("started by another one") != std::string::npos);
}

TEST_CASE("what the ranks left in the background is ended with the job, wherever it hid") {
  Program program(run_shell(1, "sleep 1000 & echo pid $!; setsid sh -c 'echo pid $$; exec sleep 1000' & sleep 0.3"));
  CHECK(program.wait() == 0);
  const auto pids = pids_in(program.output());
  CHECK(pids.size() == 2);
  for (const pid_t pid : pids) CHECK_FALSE(alive(pid));
}

TEST_CASE("what a rank left behind as another user is not waited for where it may not be ended (needs root)") {
  REQUIRE(::geteuid() == 0);
  const std::string script =
      "setpriv --reuid=65534 --clear-groups sleep 1000 >/dev/null 2>&1 & echo pid $!; "
      "until grep -q '^Uid:.65534' /proc/$!/status; do sleep 0.01; done";
  // Root without the right to signal other users' processes stands for a user who is not root.
  Program program({"setpriv", "--bounding-set", "-kill", kRondoRun, "-n", "1", "sh", "-c", script});
  CHECK(program.wait() == 0);
  const auto pids = pids_in(program.output());
  REQUIRE(pids.size() == 1);
  CHECK(alive(pids[0]));
  ::kill(pids[0], SIGKILL);
}

TEST_CASE("each rank leads a process group of its own") {
  Program program(run_shell(2, "echo $$ $(cut -d ' ' -f 5 /proc/self/stat)", {"--no-prefix"}));
  CHECK(program.wait() == 0);
  for (const std::string& line : sorted_lines(program.output())) {
    CAPTURE(line);
    CHECK(line.substr(0, line.find(' ')) == line.substr(line.find(' ') + 1));
  }
}

TEST_CASE("a reader that takes its time gets everything, though the ranks ended long before") {
  // 11,000 lines of 100 bytes: a little less than the launcher and the pipes before and behind it hold. So the rank
  // ends with its last lines still in its pipe, where the launcher leaves them until the reader reads. It does so after
  // more than the second that the launcher waits for pipes of which nothing comes.
  Program program({"sh", "-c",
                   "tools/rondo-run -n 1 sh -c 'yes $(printf %099d 0) | head -n 11000; echo last >&2' | "
                   "{ sleep 2.5; wc -l; }"});
  CHECK(eventually([&] { return count_of(program.errors(), "last") == 1; }, 2'000));
  CHECK(program.wait() == 0);
  CHECK(program.output() == "11000\n");
}

TEST_CASE("a reader that goes away ends the ranks, as it would without the launcher") {
  Program program({"sh", "-c", "tools/rondo-run -n 2 yes | head -n 1"});
  CHECK(program.wait() == 0);
  CHECK(program.output().ends_with("] y\n"));
}

TEST_CASE("a full disk behind an output ends no rank, and is named once") {
  Program program({"sh", "-c",
                   "exec tools/rondo-run -n 2 sh -c 'for i in 1 2 3; do echo line; sleep 0.05; done; echo end >&2' "
                   ">/dev/full"});
  CHECK(program.wait() == 0);
  CHECK(count_of(program.errors(), "] end\n") == 2);
  CHECK(count_of(program.errors(), "standard output: No space left on device; what cannot be written") == 1);
}

TEST_CASE(
    "ranks of several hosts get a secret by a descriptor, the same for all, which no command line and no variable "
    "shows") {
  Program program({kRondoRun, "--hosts", "a:2,b:1", "--launch-agent", kLaunchHere, "--no-prefix", "sh", "-c",
                   "s=/proc/self/fd/$RONDO_SECRET_FD; wc -c <$s; cksum <$s; "
                   "grep -aFlf $s /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null || echo hidden"});
  CHECK(program.wait() == 0);
  const Strings lines = sorted_lines(program.output());
  REQUIRE(lines.size() == 9);
  CHECK(count_of(program.output(), "hidden") == 3);
  CHECK(count_of(program.output(), "64\n") >= 3);
  const std::set<std::string> distinct(lines.begin(), lines.end());
  CHECK(distinct.size() == 3);  // "64", one checksum, "hidden"
  for (const char* setting : {"RONDO_INSECURE=1", "RONDO_SECRET_FILE=/x"}) {
    Program without({kRondoRun, "--hosts", "a,b", "--launch-agent", kLaunchHere, "--no-prefix", "--env", setting, "sh",
                     "-c", "echo ${RONDO_SECRET_FD:-none}"});
    CHECK(without.wait() == 0);
    CHECK(without.output() == "none\nnone\n");
  }
}

TEST_CASE("standard input, output and error may be closed: the job runs, and the others carry what they should") {
  for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
    CAPTURE(closed);
    const std::string run = std::string("exec ") + kRondoRun;
    Program program({"sh", "-c", run + " -n 2 sh -c 'echo out; echo err >&2; exit 3' " + closed});
    CHECK(program.wait() == 3);
    const auto says = [&](const std::string& text, const std::string& word) { return text.find(word) != text.npos; };
    const std::string spaced = std::string(" ") + closed;
    CHECK(says(program.output(), "] out") == !says(spaced, " >&-"));
    CHECK(says(program.errors(), "] err") == !says(spaced, "2>&-"));
  }
}

TEST_CASE("a program that is a script of Python is run by the one that is given; its arguments are its own") {
  const auto said = [](const Strings& words) {
    Program program(joined({kRondoRun, "-n", "1", "--no-prefix", "--python", "echo"}, words));
    CHECK(program.wait() == 0);
    return program.output();
  };
  CHECK(said({"train.py", "--model", "model.py"}) == "train.py --model model.py\n");
  CHECK(said({"--", "train.py"}) == "train.py\n");
  CHECK(said({"printf", "%s", "test_x.py"}) == "test_x.py");
}

TEST_CASE("a machine whose loopback has an IPv6 address only, or none at all (needs root and iproute2)") {
  const auto run = [](const std::string& setup) {
    return Strings{"unshare", "-n", "sh", "-c",
                   "PATH=$PATH:/usr/sbin:/sbin; " + setup + "exec " + kRondoRun +
                       " -n 2 --no-prefix sh -c 'echo $MASTER_ADDR $MASTER_PORT'"};
  };
  Program v6(run("ip link set lo up; ip addr del 127.0.0.1/8 dev lo; "));
  CHECK(v6.wait() == 0);
  CHECK(count_of(v6.output(), "::1 ") == 2);
  Program none(
      run("echo 1 >/proc/sys/net/ipv6/conf/lo/disable_ipv6; ip link set lo up; ip addr del 127.0.0.1/8 dev lo; "));
  CHECK(none.wait() == 1);
  CHECK(none.errors().find("the loopback interface is down or has no address") != std::string::npos);
}

TEST_CASE("mistakes on the command line are explained, with a code of their own and no rank started") {
  struct Mistake {
    Strings arguments;
    int code;
    std::string message;
  };
  const std::vector<Mistake> mistakes{
      {{"true"}, 2, "-n or --hosts is required"},
      {{"--hosts", "a:0", "true"}, 2, "'a:0' is not HOST or HOST:N"},
      {{"--hosts", "a,,b", "true"}, 2, "'' is not a host"},
      {{"--hosts", "-oProxyCommand=x:1", "true"}, 2, "is not a host"},
      {{"--hosts", "a:2", "-n", "3", "true"}, 2, "-n 3 is more than the 2 ranks"},
      {{"--hosts", "localhost,b", "true"}, 2, "the first host is localhost"},
      {{"--hosts", "a", "--launch-agent", " ", "true"}, 2, "--launch-agent names no program"},
      {{"--hosts", "a", "--launch-agent", "no-such-agent", "true"}, 127, "no-such-agent: No such file"},
      {{"--hosts", "a", "--hostfile", "x", "true"}, 2, "--hostfile"},
      {{"--hostfile", "no-such-file", "true"}, 2, "no-such-file"},
      {{"-n", "0", "true"}, 2, "Value 0 not in range"},
      {{"-n", "abc", "true"}, 2, "Value abc not in range"},
      {{"-n", "-1", "true"}, 2, "-1"},
      {{"-n", "2"}, 2, "which program?"},
      {{"-n", "2", "--"}, 2, "which program?"},
      {{"-n", "2", "--bogus", "true"}, 2, "unknown option '--bogus'"},
      {{"-n", "2", "--timeout", "0", "true"}, 2, "--timeout: '0' is no number above 0"},
      {{"-n", "2", "--timeout", "inf", "true"}, 2, "--timeout: 'inf' is no number above 0"},
      {{"-n", "2", "--elastic", "0", "true"}, 2, "--elastic: '0' is not MIN or MIN:MAX, from 1 to 4096"},
      {{"-n", "2", "--elastic", "2:1", "true"}, 2, "--elastic: '2:1' is not MIN or MIN:MAX"},
      {{"--hosts", "a,b", "--elastic", "1:2", "true"}, 2, "--elastic MIN:MAX is for one host"},
      {{"-n", "2", "--max-restarts", "1", "true"}, 2, "--max-restarts requires --elastic"},
      {{"-n", "2", "--env", "novalue", "true"}, 2, "'novalue' is not NAME=value"},
      {{"-n", "2", "no-such-program"}, 127, "no-such-program: No such file or directory"},
      {{"-n", "2", "/etc"}, 126, "/etc: Permission denied"},
  };
  for (const Mistake& mistake : mistakes) {
    Program program(joined({kRondoRun}, mistake.arguments));
    CAPTURE(mistake.message);
    CHECK(program.wait() == mistake.code);
    CAPTURE(program.errors());
    CHECK(program.errors().find(mistake.message) != std::string::npos);
    CHECK(program.output() == "");
  }
}

TEST_CASE("-np is -n before the program's name, and the program's own after it") {
  for (const Strings& options : {Strings{"-np", "2"}, Strings{"--timeout", "60", "-np", "2", "--no-prefix"}}) {
    Program program(joined(joined({kRondoRun}, options), {"echo", "-np", "4"}));
    CHECK(program.wait() == 0);
    CHECK(count_of(program.output(), "-np 4\n") == 2);
  }
  CHECK(Program({kRondoRun, "-np", "true"}).wait() == 2);
}
