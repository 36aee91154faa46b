#include "tests/support/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace rondo::testing {
namespace {

void write_line(int pipe, const std::string& line) {
  std::string bytes = line;
  std::replace(bytes.begin(), bytes.end(), '\n', ' ');
  bytes += '\n';
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t wrote = ::write(pipe, bytes.data() + at, bytes.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return;
    at += static_cast<size_t>(wrote);
  }
}

// Waits for the process: its exit code, or minus the signal that ended it.
int exit_code_of(pid_t process) {
  int status = 0;
  if (::waitpid(process, &status, 0) != process) throw std::runtime_error("waitpid failed");
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// "" at the end of the pipe or of the time.
std::string read_line(int pipe, std::string& heard, int ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(ms);
  while (true) {
    if (const size_t end = heard.find('\n'); end != std::string::npos) {
      std::string line = heard.substr(0, end);
      heard.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return "";
    pollfd wish{pipe, POLLIN, 0};
    if (::poll(&wish, 1, static_cast<int>(left)) <= 0) continue;
    char bytes[4096];
    const ssize_t got = ::read(pipe, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return "";
    heard.append(bytes, static_cast<size_t>(got));
  }
}

}  // namespace

int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) ::_exit([&]() noexcept { return body(); }());  // it never comes back into the test
  return exit_code_of(child);
}

void Parent::say(const std::string& line) const { write_line(to_test_, line); }

std::string Parent::await() {
  const std::string line = read_line(from_test_, heard_, 1'000 * static_cast<int>(lifetime_seconds_));
  if (line.empty()) ::_exit(4);
  return line;
}

Child::Child(const Body& body, unsigned lifetime_seconds) {
  ::signal(SIGPIPE, SIG_IGN);  // of the test: a child that it talks to may be dead
  int up[2], down[2];
  if (::pipe2(up, O_CLOEXEC) != 0 || ::pipe2(down, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  const pid_t test = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != test) ::_exit(4);
    ::alarm(lifetime_seconds);
    ::signal(SIGPIPE, SIG_DFL);
    ::close(up[0]);
    ::close(down[1]);
    Parent parent(up[1], down[0], lifetime_seconds);
    ::_exit(body(parent));
  }
  ::close(up[1]);
  ::close(down[0]);
  from_child_ = up[0];
  to_child_ = down[1];
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      from_child_(std::exchange(other.from_child_, -1)),
      to_child_(std::exchange(other.to_child_, -1)),
      heard_(std::move(other.heard_)) {}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (from_child_ >= 0) ::close(from_child_);
  if (to_child_ >= 0) ::close(to_child_);
}

std::string Child::hear(int ms) { return read_line(from_child_, heard_, ms); }
void Child::tell(const std::string& line) const { write_line(to_child_, line); }
void Child::signal(int number) const { ::kill(pid_, number); }

int Child::wait() { return exit_code_of(std::exchange(pid_, -1)); }

}  // namespace rondo::testing
