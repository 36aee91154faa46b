#include "bench/children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "rondo/error.h"

namespace rondo::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{2};  // from SIGTERM to SIGKILL: to say goodbye and remove what is theirs
constexpr int kTimedOut = 124;             // as timeout(1)

[[noreturn]] void fail(const char* what) {
  throw Exception(ErrorCode::kSystem, fmt::format("{}: {}", what, std::strerror(errno)));
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (added.count(text.substr(0, text.find('='))) == 0) out.push_back(text);
  }
  for (const auto& [name, value] : added) out.push_back(name + "=" + value);
  return out;
}

// Between fork and exec no handler of the parent's may run; what the user told us to ignore (nohup) stays ignored.
void drop_handlers() {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
    sigaction(signal, &action, nullptr);
  }
}

// In the child: standard output to the end of a file.
void redirect_output(const std::string& path) {
  if (path.empty()) return;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) _exit(126);
}

int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

Children::Children() {
  sigemptyset(&held_);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&held_, signal);
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

Children::~Children() {
  kill_all(SIGKILL);
  for (const Child& child : running_) waitpid(child.pid, nullptr, 0);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Children::start(const Program& program) {
  std::vector<std::string> args{program.path};
  args.insert(args.end(), program.args.begin(), program.args.end());
  std::vector<std::string> environment = merged_environment(program.environment);
  const std::vector<char*> argv = pointers(args), envp = pointers(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail("fork");
  if (pid > 0) {
    running_.push_back({pid, started_++});
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  drop_handlers();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  redirect_output(program.output_file);
  execve(program.path.c_str(), argv.data(), envp.data());
  _exit(127);
}

void Children::kill_all(int signal) {
  for (const Child& child : running_) kill(child.pid, signal);
}

// Takes those that have ended off the list; keeps the first failure in `code`.
void Children::reap(int& code) {
  const auto ended = [&](const Child& child) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
    if (code != 0) return true;
    code = exit_code(status);
    if (code != 0) failed_ = child.number;
    return true;
  };
  running_.erase(std::remove_if(running_.begin(), running_.end(), ended), running_.end());
}

int Children::wait(double seconds) {
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  std::optional<Clock::time_point> terminated;
  int code = 0;
  reap(code);
  while (!running_.empty()) {
    const timespec tick{0, 100'000'000};  // SIGCHLD ends it at once; a tick only serves the deadlines
    const int signal = sigtimedwait(&held_, nullptr, &tick);
    if (signal > 0 && signal != SIGCHLD) {
      interrupted_ = true;
      if (code == 0) code = 128 + signal;
    }
    reap(code);
    if (code == 0 && Clock::now() > deadline) code = kTimedOut;
    if (code == 0) continue;
    if (!terminated) {
      terminated = Clock::now();
      kill_all(SIGTERM);
    } else if (Clock::now() > *terminated + kGrace) {
      kill_all(SIGKILL);
    }
  }
  return code;
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

PrivateDirectory::PrivateDirectory() {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "rondo-bench-XXXXXX").string();
  if (error || mkdtemp(name.data()) == nullptr) fail("a temporary directory");
  path_ = name;
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace rondo::bench
