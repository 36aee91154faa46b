#include "tools/launcher/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>
#include "tools/launcher/check_call.h"

namespace rondo::launcher {

// Signals are blocked and read from a descriptor: no handler runs, so no code must be safe in one.
Signals::Signals() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})
    ::sigaddset(&handled, signal);
  check_call("sigprocmask", ::sigprocmask(SIG_BLOCK, &handled, &original_));
  // An inherited "ignore" would make the kernel reap the ranks by itself and lose their exit codes.
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  descriptor_ = Descriptor(check_call("signalfd", ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)));
}

// Does not wait.
std::optional<int> Signals::next() {
  signalfd_siginfo info;
  if (::read(descriptor_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace rondo::launcher
