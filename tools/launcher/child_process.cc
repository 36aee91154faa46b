#include "tools/launcher/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include "tools/launcher/check_call.h"

namespace rondo::launcher {
namespace {

struct Pipe {
  Descriptor read, write;
};

// A forked child inherits the read end; exec closes both.
Pipe make_pipe(Descriptor::InChild write_end = Descriptor::InChild::kInherited) {
  int ends[2];
  check_call("pipe2", ::pipe2(ends, O_CLOEXEC));
  return Pipe{Descriptor(ends[0], Descriptor::InChild::kInherited), Descriptor(ends[1], write_end)};
}

// They refer to the strings, which must stay.
std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& entry : strings) result.push_back(const_cast<char*>(entry.c_str()));
  result.push_back(nullptr);
  return result;
}

// What the child needs, ready before fork().
struct Child {
  std::vector<char*> arguments, environment;
  pid_t launcher;
  int output = -1, error = -1;  // -1: inherited
  int control = -1;             // -1: none
  int report = -1;              // where errno goes if the program cannot be run; closed by a successful exec
  const ChildSettings* settings;
};

// Returns false where a descriptor cannot be had: errno says why.
bool redirect(const Child& child) {
  bool ready = true;
  const bool control_is_input = child.control >= 0 && !child.settings->body;
  if (control_is_input) {
    ready = ::dup2(child.control, STDIN_FILENO) >= 0;
  } else if (!child.settings->keep_input) {
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ready = nothing >= 0 && ::dup2(nothing, STDIN_FILENO) >= 0;
  }
  if (child.output >= 0) ready = ready && ::dup2(child.output, STDOUT_FILENO) >= 0;
  if (child.error >= 0) ready = ready && ::dup2(child.error, STDERR_FILENO) >= 0;
  return ready;
}

// Runs in the fork. Up to exec it makes system calls alone: all that it uses was made before. A body may do anything,
// since programs that give one have a single thread.
[[noreturn]] void become(const Child& child) {
  bool ready = child.control >= 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (::getppid() != child.launcher) ::_exit(1);  // it died before the line above could take hold
  ::setpgid(0, 0);
  ready = ready && redirect(child);
  ::signal(SIGPIPE, SIG_DFL);  // ignored in the launcher, and exec would keep that
  ::sigprocmask(SIG_SETMASK, &child.settings->signal_mask, nullptr);
  if (ready && child.settings->body) {
    ::close(child.report);
    ::_exit(child.settings->body(child.control));
  }
  if (ready) ::execvpe(child.arguments[0], child.arguments.data(), child.environment.data());
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = ::write(child.report, &reason, sizeof(reason));
  ::_exit(127);
}

// 0 if the child became the program, else its errno. A successful exec closes the pipe, so the read ends without a
// byte.
int exec_result(int fd) {
  int reason = 0;
  ssize_t n;
  do {
    n = ::read(fd, &reason, sizeof(reason));
  } while (n < 0 && errno == EINTR);
  return n == sizeof(reason) ? reason : 0;
}

}  // namespace

ChildProcess::ChildProcess(const ChildSettings& settings) {
  Pipe output, error, control;
  if (settings.capture_output) {
    output = make_pipe();
    error = make_pipe();
    check_call("fcntl", ::fcntl(output.read.get(), F_SETFL, O_NONBLOCK));
    check_call("fcntl", ::fcntl(error.read.get(), F_SETFL, O_NONBLOCK));
  }
  if (settings.controlled) control = make_pipe(Descriptor::InChild::kClosed);
  Pipe report = make_pipe();
  const Child child{pointers(settings.command),
                    pointers(settings.environment),
                    ::getpid(),
                    output.write.get(),
                    error.write.get(),
                    control.read.get(),
                    report.write.get(),
                    &settings};
  pid_ = check_call("fork", ::fork());
  if (pid_ == 0) become(child);
  ::setpgid(pid_, pid_);  // here too, so that a signal sent at once finds the group
  report.write.reset();
  if (const int reason = exec_result(report.read.get())) {
    ::waitpid(pid_, nullptr, 0);
    throw std::system_error(reason, std::generic_category(), settings.command.front());
  }
  output_ = std::move(output.read);
  error_ = std::move(error.read);
  control_ = std::move(control.write);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)),
      control_(std::move(other.control_)),
      ending_(other.ending_) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  signal_group(SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// WNOWAIT keeps the zombie, so the pid names no other process while signals may still be sent to it. A stopped child
// has not ended.
const std::optional<Ending>& ChildProcess::ending() {
  if (ending_) return ending_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) {
    const bool exited = info.si_code == CLD_EXITED;
    ending_ = exited ? Ending{info.si_status, 0} : Ending{128 + info.si_status, info.si_status};
  }
  return ending_;
}

void ChildProcess::signal_group(int signal) const { ::kill(-pid_, signal); }

}  // namespace rondo::launcher
