// rondo-doctor: what is wrong with a machine is found and named, with what to do; and only what would stop a job ends
// in exit code 1. Network namespaces need root and iproute2.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "ring/base/file_text.h"
#include "tests/support/program.h"
#include "tests/support/sockets.h"
#include "tests/support/temp_folder.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/pair.h"

namespace rondo::doctor {
namespace {

using test::Program;
using namespace std::chrono_literals;

constexpr char kDoctor[] = "tools/doctor/rondo-doctor";

struct Result {
  int code;
  std::string output, errors;
  // The line that begins with a level and a topic and has this text.
  bool says(const std::string& level, const std::string& topic, const std::string& text) const {
    const std::regex line("(^|\n)" + level + " +" + topic + " +[^\n]*" + text);
    return std::regex_search(output, line);
  }
};

Result run_shell(const std::string& script) {
  Program program({"sh", "-c", script});
  const int code = program.wait(60s);
  return {code, program.output(), program.errors()};
}

}  // namespace

TEST_CASE("doctor: names that are near a variable's are taken for it, and others are left alone") {
  CHECK(meant_by("RONDO_DEBGU") == "RONDO_DEBUG");
  CHECK(meant_by("RONDO_SLICE_BYTE") == "RONDO_SLICE_BYTES");
  CHECK(meant_by("RODNO_TRANSPORT") == "RONDO_TRANSPORT");
  CHECK(meant_by("MASTER_ADR") == "MASTER_ADDR");
  CHECK(meant_by("WORLDSIZE") == "WORLD_SIZE");
  for (const char* fine : {"RONDO_DEBUG", "PATH", "HOSTNAME", "LD_LIBRARY_PATH", "RONDO_UNHEARD_OF", "RANK"}) {
    CAPTURE(fine);
    CHECK(meant_by(fine) == "");
  }
}

TEST_CASE("doctor: it knows every variable of docs/environment.md") {
  const std::string text = file_text("docs/environment.md");
  const std::vector<std::string> known = known_variables();
  const std::regex name("RONDO_[A-Z_]+[A-Z]");
  std::set<std::string> there;
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) there.insert((*it)[0]);
  CHECK(there.size() > 30);
  for (const std::string& variable : there) {
    CAPTURE(variable);
    CHECK(std::find(known.begin(), known.end(), variable) != known.end());
  }
}

TEST_CASE("doctor: the tightest limit of a control group and those above it counts") {
  const testing::TempFolder root;
  root.write("a/memory.max", "max\n");
  root.write("a/b/memory.max", "104857600\n");
  root.write("a/pids.max", "100\n");
  root.write("a/pids.current", "97\n");
  root.write("a/b/pids.max", "50\n");
  root.write("a/b/pids.current", "1\n");
  const GroupLimits limits = read_group_limits(root.path(), "0::/a/b\n");
  CHECK(limits.memory_bytes == 100u << 20);
  CHECK(limits.processes == 3);
  const GroupLimits none = read_group_limits(root.path(), "0::/\n");
  CHECK(none.memory_bytes == 0);
  root.write("memory.limit_in_bytes", "9223372036854771712\n");
  root.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("memory/job/memory.limit_in_bytes", "1048576\n");
  CHECK(read_group_limits(root.path(), "3:memory:/job\n").memory_bytes == 1u << 20);
  CHECK(read_group_limits(root.path(), "3:memory:/\n").memory_bytes == 0);
  CHECK(none.processes == UINT64_MAX);
}

TEST_CASE("doctor: a machine that is well gets exit code 0, and every topic a line") {
  const Result result = run_shell(std::string("exec ") + kDoctor + " --ranks 1");
  CAPTURE(result.output);
  CHECK(result.code == 0);
  CHECK(result.errors == "");
  for (const char* topic : {"settings", "launch", "network", "ports", "congestion", "descriptors", "cores", "memory",
                            "processes", "shared memory", "single copy", "namespaces", "libraries", "clock"}) {
    CAPTURE(topic);
    CHECK(result.says("(ok|note)", topic, ""));
  }
  CHECK(result.output.find(" 0 that would stop a job\n") != std::string::npos);
}

TEST_CASE("doctor: a misspelt variable is noted, and a wrong value would stop the job") {
  const Result misspelt = run_shell(std::string("RONDO_DEBGU=info exec ") + kDoctor + " --ranks 1");
  CHECK(misspelt.says("note", "settings", "RONDO_DEBGU is set, and nothing reads it: did you mean RONDO_DEBUG"));
  CHECK(misspelt.code == 0);
  const Result wrong = run_shell(std::string("RONDO_CONNECTIONS=99 exec ") + kDoctor + " --ranks 1 --json");
  CHECK(wrong.code == 1);
  const auto document = nlohmann::json::parse(wrong.output);
  CHECK_FALSE(document.at("ok").get<bool>());
  const auto& findings = document.at("findings");
  const auto wrongs = [](const nlohmann::json& finding) { return finding.at("level").get<std::string>() == "WRONG"; };
  REQUIRE(std::count_if(findings.begin(), findings.end(), wrongs) == 1);
  const auto& finding = *std::find_if(findings.begin(), findings.end(), wrongs);
  CHECK(finding.at("topic").get<std::string>() == "settings");
  CHECK(finding.at("text").get<std::string>().find("RONDO_CONNECTIONS=\"99\"") != std::string::npos);
}

TEST_CASE("doctor: a setting that join() refuses would stop a job on one host, too") {
  const testing::TempFolder folder;
  const std::string open = folder.path("open");
  std::ofstream(open) << std::string(32, 'x');
  std::filesystem::permissions(open, std::filesystem::perms(0644));
  const std::string port = std::to_string(testing::free_port());
  const std::vector<std::pair<std::string, std::string>> wrongs{
      {"RONDO_SECRET_FILE=/no/file", "network"},
      {"RONDO_SECRET_FILE=" + open, "network"},
      {"RONDO_SECRET_FD=99", "network"},
      {"RONDO_INSECURE=1 RONDO_SECRET_FILE=" + open, "network"},
      {"RONDO_INSECURE=1 RONDO_ENCRYPT=1", "network"},
      {"RONDO_TRACE=" + folder.path("no/folder"), "outputs"},
      {"RONDO_TRACE=" + open, "outputs"},
      {"RONDO_METRICS=" + folder.path("no/folder/"), "outputs"},
  };
  for (const auto& wrong_setting : wrongs) {
    const std::string &setting = wrong_setting.first, &topic = wrong_setting.second;
    CAPTURE(setting);
    const Result result = run_shell(setting + " exec " + kDoctor + " --ranks 2");
    CAPTURE(result.output);
    CHECK(result.code == 1);
    CHECK(result.says("WRONG", topic, ""));
    // And so does the library, in the same words.
    const Result joined =
        run_shell(setting + " RONDO_START_TIMEOUT_MS=2000 exec " + kDoctor + " --pair 127.0.0.1:" + port);
    const std::regex wrong("WRONG +[a-z]+ +([^\n]{10,30})");
    std::smatch words;
    REQUIRE(std::regex_search(result.output, words, wrong));
    if (topic == "network") CHECK(joined.output.find(words[1]) != std::string::npos);
  }
  const std::string fresh = folder.path("fresh");
  CHECK(run_shell("RONDO_TRACE=" + fresh + " exec " + kDoctor + " --ranks 1").says("ok", "outputs", fresh));
  CHECK_FALSE(std::filesystem::exists(fresh));
}

TEST_CASE("doctor: an end that may not listen where others are says so, and no address (needs root)") {
  const std::string setup =
      "PATH=$PATH:/usr/sbin:/sbin; ip link set lo up; ip link add e0 type veth peer name e1; "
      "ip addr add 192.0.2.2/24 dev e0; ip link set e0 up; ip link set e1 up; ";
  for (const char* address : {"", " 192.0.2.2", " 192.0.2.2:20000"}) {
    CAPTURE(address);
    const Result result =
        run_shell("exec unshare -n sh -c '" + setup + "exec " + kDoctor + " --listen" + address + "'");
    CAPTURE(result.errors);
    CHECK(result.code == 2);
    CHECK(result.errors.find("would listen on 192.0.2.2, where other machines can connect") != std::string::npos);
    CHECK(result.errors.find("--pair") == std::string::npos);
  }
}

TEST_CASE("doctor: too few descriptors are counted, and how many a job needs is said") {
  const Result few = run_shell(std::string("ulimit -n 64; exec ") + kDoctor + " --ranks 16");
  CHECK(few.code == 1);
  CHECK(few.says("WRONG", "descriptors", "the limit is 64: ulimit -n [0-9]+"));
  CHECK(run_shell(std::string("ulimit -n 1024; exec ") + kDoctor + " --ranks 2").says("ok", "descriptors", "1024"));
}

TEST_CASE("doctor: link-local addresses alone serve one host, and stop a job on two") {
  const std::string setup =
      "PATH=$PATH:/usr/sbin:/sbin; ip link set lo up; ip link add e0 type veth peer name e1; "
      "ip addr add 169.254.3.4/16 dev e0; ip link set e0 up; ip link set e1 up; ";
  const auto in_namespace = [&](const std::string& options) {
    return run_shell("exec unshare -n sh -c '" + setup + "RONDO_INSECURE=1 exec " + kDoctor + options + "'");
  };
  const Result two = in_namespace(" --ranks 1 --hosts 2");
  CAPTURE(two.output);
  CAPTURE(two.errors);
  CHECK(two.code == 1);
  CHECK(two.says("WRONG", "network", "no address that other machines could reach; there are: .*e0 169.254.3.4"));
  CHECK(two.says("ok", "network", "inside this host: 127.0.0.1"));
  const Result one = in_namespace(" --ranks 1");
  CHECK(one.code == 0);
  CHECK(one.says("note", "network", "no address that other machines could reach"));
}

TEST_CASE("doctor: several hosts need permission to listen, and loopback must be up") {
  CHECK(run_shell(std::string("exec ") + kDoctor + " --ranks 1 --hosts 2")
            .says("WRONG", "network", "and may not: set RONDO_"));
  const Result down = run_shell(std::string("exec unshare -n ") + kDoctor + " --ranks 1");
  CHECK(down.code == 1);
  CHECK(down.says("WRONG", "network", "loopback"));
}

TEST_CASE("doctor: two ends measure each other, and both print latency and bandwidths") {
  const std::string address = "127.0.0.1:" + std::to_string(testing::free_port());
  for (const char* transport : {"auto", "tcp"}) {
    CAPTURE(transport);
    const std::string environment = std::string("RONDO_TRANSPORT=") + transport + " exec " + kDoctor;
    Program listening({"sh", "-c", environment + " --listen " + address});
    Program pairing({"sh", "-c", environment + " --json --pair " + address});
    CHECK(listening.wait(60s) == 0);
    CHECK(pairing.wait(60s) == 0);
    CHECK(listening.errors().find("rondo-doctor --pair " + address) != std::string::npos);
    const std::string output = listening.output();
    CAPTURE(output);
    CHECK(std::regex_search(output, std::regex("latency of 8 bytes: [0-9]+\\.[0-9]+ us")));
    CHECK(std::regex_search(output, std::regex("64 MiB: [0-9.]+ GB/s from .*, [0-9.]+ GB/s to it, [0-9.]+ GB/s each")));
    CHECK(output.find("every byte of 64 MiB arrived as it was sent") != std::string::npos);
    const bool tcp = std::string(transport) == "tcp";
    CHECK(output.find(tcp ? "TCP inside this host" : "shared memory") != std::string::npos);
    CHECK(nlohmann::json::parse(pairing.output()).at("ok").get<bool>());
  }
}

TEST_CASE("doctor: an end that stays alone fails in words, and options that are none are refused") {
  const std::string alone = std::string("RONDO_START_TIMEOUT_MS=500 exec ") + kDoctor + " --pair 127.0.0.1:1";
  const Result result = run_shell(alone);
  CHECK(result.code == 1);
  CHECK(result.says("WRONG", "pair", "127.0.0.1:1"));
  for (const char* wrong :
       {" --pair", " --ranks 0", " --nonsense", " --pair :5", " --pair host:x", " --listen --pair a"}) {
    CAPTURE(wrong);
    CHECK(run_shell(kDoctor + std::string(wrong)).code == 2);
  }
  CHECK(run_shell(std::string(kDoctor) + " --help").output.find("--listen") != std::string::npos);
}

TEST_CASE("doctor: addresses of ends come apart") {
  CHECK(parse_pair_end("host", false).host == "host");
  CHECK(parse_pair_end("host", false).port == kPairPort);
  CHECK(parse_pair_end("127.0.0.1:5", true).port == 5);
  CHECK(parse_pair_end("[fd00::1]:7", false).host == "fd00::1");
  CHECK(parse_pair_end("fd00::1", false).host == "fd00::1");
  CHECK(parse_pair_end("[fd00::1]", false).port == kPairPort);
}

}  // namespace rondo::doctor
