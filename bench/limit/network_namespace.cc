#include "bench/limit/network_namespace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ring/base/descriptor.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Exception(ErrorCode::kSystem, fmt::format("a network namespace: {}: {}", what, std::strerror(errno)));
}

void write_text(const char* path, const std::string& text) {
  const Descriptor file(open(path, O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail(path);
}

void enter() {
  if (unshare(CLONE_NEWNET) == 0) return;
  const uid_t user = getuid();
  const gid_t group = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) fail("unshare");
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", fmt::format("0 {} 1", user));
  write_text("/proc/self/gid_map", fmt::format("0 {} 1", group));
}

void raise_loopback() {
  const Descriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (any.get() < 0 || ioctl(any.get(), SIOCSIFFLAGS, &request) != 0) fail("raising lo");
}

void prepare(const std::string& congestion) {
  enter();
  raise_loopback();
  write_text("/proc/sys/net/ipv4/tcp_congestion_control", congestion);
}

}  // namespace

void run_in_network_namespace(const std::string& congestion, const std::vector<std::string>& program) {
  if (program.empty()) throw Exception(ErrorCode::kInvalid, "namespace: which program?");
  prepare(congestion);
  std::vector<char*> args;
  for (const std::string& arg : program) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  execv(args[0], args.data());
  fail(program[0]);
}

}  // namespace rondo::bench
