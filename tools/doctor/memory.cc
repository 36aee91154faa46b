#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <fstream>

#include "ring/base/control_groups.h"
#include "rondo/error.h"
#include "tools/doctor/checks.h"
#include "transport/island/memory_file.h"

namespace rondo::doctor {
namespace {

constexpr const char* kTopic = "shared memory";
constexpr uint64_t kMiB = 1 << 20;

// Makes such a file to find out: a seccomp profile may forbid what the kernel has.
Finding memory_files(const Job& job) {
  const uint64_t available = available_memory();
  try {
    make_memory_file(2 * kMiB, Pages::kReserved);
    const std::string text = fmt::format("memfd works; {} MiB of memory are available", available / kMiB);
    const bool enough = available / job.config.staging_bytes > static_cast<uint64_t>(job.local_ranks);
    return {enough ? Level::kFine : Level::kNote, kTopic, text, enough ? "" : "lower RONDO_STAGING_BYTES"};
  } catch (const Exception& failure) {
    const bool needed = job.config.transport == "shm";
    return {needed ? Level::kWrong : Level::kNote, kTopic, failure.what(),
            "allow memfd_create (a seccomp profile may forbid it); ranks of this host use TCP meanwhile"};
  }
}

// Other libraries need a large /dev/shm. A small one is no fault for Rondo.
Finding dev_shm() {
  struct statvfs facts {};
  if (::statvfs("/dev/shm", &facts) != 0) return {Level::kFine, kTopic, "no /dev/shm, and Rondo needs none", ""};
  return {Level::kFine, kTopic,
          fmt::format("/dev/shm has {} MiB; Rondo does not use it", uint64_t{facts.f_blocks} * facts.f_frsize / kMiB),
          ""};
}

// Runs `body` in a child; its exit code, -1 if there is none.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// Whether one process may read another that is not its child, as ranks do: both are children of this one. Yama lets a
// process read its descendants: a check of a parent and its child would say too much.
bool siblings_read() {
  static uint64_t secret = 0;
  int end[2];
  if (::pipe2(end, O_CLOEXEC) != 0) return false;
  const pid_t owner = ::fork();
  if (owner == 0) {
    char byte;
    secret = 42;
    ::close(end[1]);
    ::_exit(::read(end[0], &byte, 1) == 0 ? 0 : 1);  // until this process closes its end
  }
  const int code = in_child([owner] {
    uint64_t found = 0;
    const iovec here{&found, sizeof found}, there{&secret, sizeof secret};
    return ::process_vm_readv(owner, &here, 1, &there, 1, 0) == sizeof found ? 0 : 1;
  });
  ::close(end[0]);
  ::close(end[1]);
  if (owner > 0) ::waitpid(owner, nullptr, 0);
  return code == 0;
}

// Wrong only where RONDO_SINGLE_COPY insists.
Finding single_copy(const Job& job) {
  std::string scope = "not there";
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  if (siblings_read()) {
    return {Level::kFine, "single copy", fmt::format("ranks may read each other's memory (ptrace_scope {})", scope),
            ""};
  }
  const bool wanted = job.config.single_copy == "on";
  return {wanted ? Level::kWrong : Level::kNote, "single copy",
          fmt::format("the kernel forbids ranks to read each other's memory (ptrace_scope {})", scope),
          "sysctl kernel.yama.ptrace_scope=0, or --cap-add SYS_PTRACE; large buffers are copied twice meanwhile"};
}

std::string link_target(const char* path) {
  char target[PATH_MAX];
  const ssize_t length = ::readlink(path, target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : "?";
}

// A note, no verdict: whether other ranks have the same namespaces can only be compared with what they say.
Finding namespaces() {
  return {Level::kFine, "namespaces",
          fmt::format("user {}, {}, {}: ranks share memory where all three are equal", ::geteuid(),
                      link_target("/proc/self/ns/pid"), link_target("/proc/self/ns/net")),
          ""};
}

}  // namespace

Findings check_memory(const Job& job) { return {memory_files(job), dev_shm(), single_copy(job), namespaces()}; }

}  // namespace rondo::doctor
