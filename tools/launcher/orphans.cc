#include "tools/launcher/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <fstream>
#include <vector>

namespace rondo::launcher {
namespace {

// Our living and unreaped children less the ranks; proc(5). None if the kernel does not tell.
std::vector<pid_t> adopted(const std::set<pid_t>& ranks) {
  std::ifstream list("/proc/thread-self/children");
  std::vector<pid_t> result;
  for (pid_t pid; list >> pid;) {
    if (!ranks.contains(pid)) result.push_back(pid);
  }
  return result;
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void reap_orphans(const std::set<pid_t>& ranks) {
  for (const pid_t pid : adopted(ranks)) ::waitpid(pid, nullptr, WNOHANG);
}

void kill_orphans(const std::set<pid_t>& ranks) {
  // Each turn kills one generation; the bound is for a process that forks faster than we kill.
  constexpr int kMaxGenerations = 100;
  for (int generation = 0; generation < kMaxGenerations; ++generation) {
    std::vector<pid_t> orphans = adopted(ranks);
    // One of another user (by sudo, say) may not be ended by us: init adopts it in its turn.
    std::erase_if(orphans, [](pid_t pid) { return ::kill(pid, SIGKILL) != 0 && errno == EPERM; });
    if (orphans.empty()) return;
    for (const pid_t pid : orphans) ::waitpid(pid, nullptr, 0);
  }
}

}  // namespace rondo::launcher
