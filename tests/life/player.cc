#include "tests/life/player.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "ring/base/file_text.h"
#include "tests/support/namespaces.h"
#include "tests/support/temp_folder.h"

namespace rondo::life {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kLongestLife = 3600;  // seconds

// A process of a life: a rank, or all of them as threads.
struct Child {
  pid_t pid = -1;
  int rank = 0;
  bool ended = false;
  int status = 0;
};

class Play {
 public:
  Play(const Life& life, const PlayerOptions& options) : life_(parse(print(life))), options_(options) {
    std::ofstream(folder_.path("life")) << print(life);
    for (int r = 0; r < processes(); ++r) {
      std::ofstream(folder_.path("at-" + std::to_string(r))) << std::string(4096, '\0');
    }
  }
  ~Play() { end_all(); }

  Verdict run() {
    if (!life_.hosts.empty()) {
      namespaces_.emplace(1 + *std::max_element(life_.hosts.begin(), life_.hosts.end()), kLongestLife);
    }
    start_until(life_.ranks == Ranks::kThreads ? 1 : life_.world);
    std::string before;
    Clock::time_point moved = Clock::now();
    for (int turn = 1; !all_ended(); ++turn) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (turn % 50 != 0) continue;  // the look costs more than the sleep
      std::string now = positions();
      if (now != before) {
        before = std::move(now);
        moved = Clock::now();
        if (life_.newcomers() > 0) start_awaited(before);
      } else if (Clock::now() - moved > options_.patience) {
        std::string text = where() + (options_.stacks ? stacks() : "");
        // A rank that has ended with a fault is why the others wait.
        const bool ended_badly = std::any_of(children_.begin(), children_.end(),
                                             [](const Child& child) { return child.ended && child.status != 0; });
        end_all();
        const Verdict verdict = judge();
        if (ended_badly && verdict.outcome == Outcome::kFault) return {Outcome::kFault, verdict.text + text};
        return {Outcome::kHang, text + (verdict.text.empty() ? said() : verdict.text)};
      }
    }
    return judge();
  }

 private:
  int processes() const { return life_.world + life_.newcomers(); }
  void start_until(int processes) {
    for (int r = static_cast<int>(children_.size()); r < processes; ++r) children_.push_back({start(r), r, false, 0});
  }
  // The newcomers for whom some rank waits in `grow`.
  void start_awaited(const std::string& positions) {
    int known = life_.world;
    for (const Step& step : life_.threads[0]) {
      if (step.verb != "grow") continue;
      known += static_cast<int>(step.number("newcomers"));
      for (size_t i = 0; i + 16 <= positions.size(); i += 16) {
        uint64_t line = 0;
        std::memcpy(&line, positions.data() + i, sizeof line);
        if (line == static_cast<uint64_t>(step.line)) start_until(known);
      }
    }
  }

  std::vector<std::string> command(int rank) const {
    const std::string& door = life_.door(rank);
    const auto other = options_.doors.find(door);
    std::vector<std::string> words =
        other == options_.doors.end() ? std::vector<std::string>{"/proc/self/exe"} : split_words(other->second, ' ');
    words.push_back("--life=" + folder_.path("life"));
    words.push_back("--rank=" + std::to_string(rank));
    words.push_back("--meeting=file://" + folder_.path("meeting"));
    words.push_back("--folder=" + folder_.path());
    return words;
  }

  // Where newcomers ask: on several hosts on each, since rank 0 may be there.
  std::string door() const {
    if (life_.hosts.empty()) return "unix://" + folder_.path("join");
    std::string all;
    for (int host = *std::max_element(life_.hosts.begin(), life_.hosts.end()); host >= 0; --host) {
      all += "tcp://" + testing::Namespaces::address(host) + ":5578" + (host > 0 ? "," : "");
    }
    return all;
  }

  pid_t start(int rank) const {
    std::vector<std::string> words = command(rank);
    const std::string output = folder_.path("output-" + std::to_string(rank));
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(9);
    const int file = ::open(output.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(file, 1);
    ::dup2(file, 2);
    ::close(file);
    if (life_.rounds > 1) ::setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);  // leaks.h
    if (namespaces_.has_value()) {
      namespaces_->enter(life_.hosts[static_cast<size_t>(rank) % life_.hosts.size()]);
      ::setenv("RONDO_INSECURE", "1", 1);  // they have no secret
    }
    if (life_.newcomers() > 0) ::setenv("RONDO_JOIN", door().c_str(), 1);
    for (const std::string& setting : life_.settings) {
      const size_t equals = setting.find('=');
      ::setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::_exit(9);
  }

  bool all_ended() {
    bool all = true;
    for (Child& child : children_) {
      if (!child.ended && ::waitpid(child.pid, &child.status, WNOHANG) == child.pid) child.ended = true;
      all = all && child.ended;
    }
    return all;
  }

  void end_all() {
    for (Child& child : children_) {
      if (child.ended) continue;
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, &child.status, 0);
      child.ended = true;
    }
  }

  std::string positions() const {
    std::string all;
    for (int r = 0; r < processes(); ++r) {
      const std::string page = file_text(folder_.path("at-" + std::to_string(r)));
      all += page.substr(0, 16 * life_.threads.size());
    }
    return all;
  }

  std::string where() const {
    const std::vector<std::string> lines = split_words(print(life_), '\n');
    const std::string all = positions();
    std::string text;
    for (size_t i = 0; i + 16 <= all.size(); i += 16) {
      uint64_t at[2];
      std::memcpy(at, all.data() + i, sizeof at);
      const size_t threads = life_.threads.size(), number = i / 16;
      text += "rank " + std::to_string(number / threads) + " thread " + std::to_string(number % threads) + ": step " +
              std::to_string(at[1]) + ", line " + std::to_string(at[0]) +
              (at[0] > 0 && at[0] <= lines.size() ? ": " + lines[at[0] - 1] : "") + "\n";
    }
    return text;
  }

  std::string stacks() const {
    if (std::system("command -v gdb >/dev/null 2>&1") != 0) return "";
    std::string text;
    for (const Child& child : children_) {
      if (child.ended) continue;
      const std::string file = folder_.path("stacks");
      const std::string line = "timeout 30 gdb -p " + std::to_string(child.pid) +
                               " -batch -ex 'thread apply all bt 12' >" + file + " 2>/dev/null";
      if (std::system(line.c_str()) == 0)
        text += "stacks of rank " + std::to_string(child.rank) + "\n" + file_text(file);
    }
    return text;
  }

  std::string said() const {
    std::string text;
    for (const Child& child : children_) {
      const std::string output = file_text(folder_.path("output-" + std::to_string(child.rank)));
      if (!output.empty()) text += "output of rank " + std::to_string(child.rank) + ":\n" + output.substr(0, 20'000);
    }
    return text;
  }

  // A rank that the life kills, or that may harm itself; -1: none.
  int doomed_rank() const {
    if (life_.ranks == Ranks::kThreads) return -1;
    for (const Step& step : life_.threads.empty() ? std::vector<Step>{} : life_.threads[0]) {
      if (step.verb == "kill" || step.verb == "hostile") return static_cast<int>(step.number("by")) % life_.world;
    }
    return -1;
  }

  Verdict judge() {
    const int doomed = doomed_rank();
    std::string faults, crashes;
    std::map<std::string, std::pair<std::string, int>> bits;
    for (int r = 0; r < processes(); ++r) {
      std::istringstream lines(file_text(folder_.path("report-" + std::to_string(r))));
      for (std::string line; std::getline(lines, line);) {
        if (line.compare(0, 6, "fault ") == 0) faults += line.substr(6) + "\n";
        const std::vector<std::string> words = split_words(line, ' ');
        if (words.size() != 3 || words[0] != "bits") continue;
        const auto& [place, is_new] = bits.emplace(words[1], std::pair(words[2], r));
        if (!is_new && place->second.first != words[2]) {
          faults += "rank " + std::to_string(r) + " has other bits than rank " + std::to_string(place->second.second) +
                    " at line " + words[1] + "\n";
        }
      }
    }
    for (const Child& child : children_) {
      if (child.rank == doomed || (WIFEXITED(child.status) && WEXITSTATUS(child.status) <= 1)) continue;
      if (WIFSIGNALED(child.status) && WTERMSIG(child.status) == SIGKILL) continue;  // by end_all()
      crashes += "rank " + std::to_string(child.rank) +
                 (WIFSIGNALED(child.status) ? " was ended by signal " + std::to_string(WTERMSIG(child.status))
                                            : " exited with " + std::to_string(WEXITSTATUS(child.status))) +
                 "\n";
    }
    if (!crashes.empty()) return {Outcome::kCrash, crashes + where() + faults + said()};
    if (!faults.empty()) return {Outcome::kFault, faults + said()};
    const bool unsaid = std::any_of(children_.begin(), children_.end(), [&](const Child& child) {
      return child.rank != doomed && WIFEXITED(child.status) && WEXITSTATUS(child.status) == 1;
    });
    return unsaid ? Verdict{Outcome::kFault, "no report\n" + said()} : Verdict{};
  }

  const Life life_;
  const PlayerOptions& options_;
  testing::TempFolder folder_;
  std::optional<testing::Namespaces> namespaces_;
  std::vector<Child> children_;
};

}  // namespace

const char* outcome_name(Outcome outcome) {
  constexpr const char* kNames[] = {"right", "fault", "crash", "hang"};
  return kNames[static_cast<int>(outcome)];
}

Verdict play(const Life& life, const PlayerOptions& options) { return Play(life, options).run(); }

}  // namespace rondo::life
