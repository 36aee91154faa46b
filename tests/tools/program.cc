#include "tests/tools/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace rondo::test {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void redirect(const std::string& path, int flags, int target) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0 || ::dup2(fd, target) < 0) ::_exit(126);
}

}  // namespace

Program::Program(const std::vector<std::string>& command, const std::string& input) {
  const char* parent = std::getenv("TEST_TMPDIR");
  folder_ = std::string(parent != nullptr ? parent : "/tmp") + "/program-XXXXXX";
  if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("mkdtemp " + folder_);
  std::ofstream(folder_ + "/in", std::ios::binary) << input;
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ > 0) return;
  redirect(folder_ + "/in", O_RDONLY, STDIN_FILENO);
  redirect(folder_ + "/out", O_WRONLY | O_CREAT | O_APPEND, STDOUT_FILENO);
  redirect(folder_ + "/err", O_WRONLY | O_CREAT | O_APPEND, STDERR_FILENO);
  ::execvp(arguments[0], arguments.data());
  ::_exit(126);
}

Program::~Program() {
  if (code_ < 0) {
    signal(SIGKILL);
    wait();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Program::signal(int signal) const { ::kill(pid_, signal); }

int Program::wait(std::chrono::milliseconds deadline) {
  if (code_ >= 0) return code_;
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, deadline)) return -1;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code_;
}

std::string Program::output() const { return read_file(folder_ + "/out"); }
std::string Program::errors() const { return read_file(folder_ + "/err"); }

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

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
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = status.rfind(')');
  return name_end != std::string::npos && status.compare(name_end + 2, 1, "Z") != 0;
}

}  // namespace rondo::test
