#include "tests/support/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "ring/base/file_text.h"
#include "tests/support/eventually.h"
#include "tests/support/resources.h"

namespace rondo::test {
namespace {

void redirect(const std::string& path, int flags, int target) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0 || ::dup2(fd, target) < 0) ::_exit(126);
}

}  // namespace

Program::Program(const std::vector<std::string>& command, const std::string& input) {
  std::ofstream(folder_.path("in"), std::ios::binary) << input;
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ > 0) return;
  redirect(folder_.path("in"), O_RDONLY, STDIN_FILENO);
  redirect(folder_.path("out"), O_WRONLY | O_CREAT | O_APPEND, STDOUT_FILENO);
  redirect(folder_.path("err"), O_WRONLY | O_CREAT | O_APPEND, STDERR_FILENO);
  ::execvp(arguments[0], arguments.data());
  ::_exit(126);
}

Program::~Program() {
  if (code_ < 0) {
    signal(SIGKILL);
    wait();
  }
}

void Program::signal(int signal) const { ::kill(pid_, signal); }

int Program::wait(std::chrono::milliseconds deadline) {
  if (code_ >= 0) return code_;
  int status = 0;
  const auto ended = [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; };
  if (!testing::eventually(ended, static_cast<int>(deadline.count()))) return -1;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code_;
}

std::string Program::output() const { return file_text(folder_.path("out")); }
std::string Program::errors() const { return file_text(folder_.path("err")); }

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

bool alive(pid_t pid) {
  const char state = testing::state_of(pid);
  return state != '\0' && state != 'Z';
}

}  // namespace rondo::test
