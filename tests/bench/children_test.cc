#include "bench/children.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/child.h"
#include "tests/support/eventually.h"

namespace rondo::bench {
namespace {

Children::Program shell(const std::string& script) { return {"/bin/sh", {"-c", script}, {}, ""}; }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Whether the process is gone (or a zombie nobody reaped yet) within 5 s.
bool ends(pid_t pid) {
  return testing::eventually(
      [&] {
        std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
        std::string text;
        std::getline(file, text);
        return text.empty() || text.find(") Z ") != std::string::npos;
      },
      5'000);
}

pid_t read_pid(const std::string& path) {
  pid_t pid = 0;
  const auto written = [&] {
    std::ifstream file(path);
    return file >> pid && file.get() == '\n';
  };
  return testing::eventually(written, 5'000) ? pid : 0;
}

// In a process of its own: a child that says its id and sleeps.
int start_sleeper(const std::string& pid_file) {
  Children children;
  children.start(shell("echo $$ > " + pid_file + "; exec sleep 60"));
  return children.wait(60);
}

TEST_CASE("all succeed: 0; the environment and the output file reach the child") {
  PrivateDirectory directory;
  const std::string file = directory.path() + "/out";
  Children children;
  children.start(shell("exit 0"));
  children.start({"/bin/sh", {"-c", "echo rank $RANK"}, {{"RANK", "3"}}, file});
  CHECK(children.wait(10) == 0);
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  CHECK(line == "rank 3");
}

TEST_CASE("one fails: the others end at once, and its code is the result") {
  const auto start = std::chrono::steady_clock::now();
  Children children;
  children.start(shell("exec sleep 60"));
  children.start(shell("exit 7"));
  children.start(shell("exec sleep 60"));
  CHECK(children.wait(30) == 7);
  CHECK(children.failed() == 1);
  CHECK(seconds_since(start) < 5);
}

TEST_CASE("a child that ignores SIGTERM is killed after the grace time; a signal counts as 128 + n") {
  Children children;
  children.start(shell("trap '' TERM; while :; do :; done"));
  children.start(shell("kill -9 $$"));
  CHECK(children.wait(30) == 137);
  CHECK(children.failed() == 1);
}

TEST_CASE("time runs out: 124") {
  Children children;
  children.start(shell("exec sleep 60"));
  CHECK(children.wait(0.2) == 124);
  CHECK(children.failed() == -1);
}

TEST_CASE("a program that is not there: 127") {
  Children children;
  children.start({"/nowhere/program", {}, {}, ""});
  CHECK(children.wait(10) == 127);
}

TEST_CASE("no orphan survives: a starter killed by SIGKILL takes its children along") {
  PrivateDirectory directory;
  const std::string pid_file = directory.path() + "/pid";
  testing::Child starter([&](testing::Parent&) { return start_sleeper(pid_file); });
  const pid_t child = read_pid(pid_file);
  REQUIRE(child > 0);
  starter.signal(SIGKILL);
  CHECK(starter.wait() == -SIGKILL);
  CHECK(ends(child));
}

TEST_CASE("SIGTERM to the starter ends the children and gives 128 + 15") {
  PrivateDirectory directory;
  const std::string pid_file = directory.path() + "/pid";
  testing::Child starter([&](testing::Parent&) { return start_sleeper(pid_file); });
  const pid_t child = read_pid(pid_file);
  REQUIRE(child > 0);
  starter.signal(SIGTERM);
  CHECK(starter.wait() == 143);
  CHECK(ends(child));
}

TEST_CASE("the private directory is for this user only, and goes away with its contents") {
  std::string path;
  {
    PrivateDirectory directory;
    path = directory.path();
    std::ofstream(path + "/file") << "x";
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace rondo::bench
