#include "tests/support/namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace rondo::testing {
namespace {

std::string card_address(int host) { return fmt::format("02:00:00:00:00:{:02x}", host + 1); }

std::string shell(const std::string& commands) {
  return std::system(("set -e; PATH=$PATH:/usr/sbin:/sbin; " + commands).c_str()) == 0 ? "ready" : "failed";
}

}  // namespace

Namespaces::Namespaces(int hosts, unsigned lifetime_seconds) : hosts_(hosts) {
  const int bridge = hosts;
  holders_.reserve(static_cast<size_t>(hosts) + 1);
  for (int host = 0; host <= bridge; ++host) {
    const auto hold = [](Parent& test) -> int {
      test.say(::unshare(CLONE_NEWNET) == 0 ? shell("ip link set lo up") : "failed");
      while (true) test.say(shell(test.await()));
    };
    holders_.emplace_back(hold, lifetime_seconds);
    require_ready(host);
  }
  run(bridge, "ip link add bridge0 type bridge; ip link set bridge0 up");
  for (int host = 0; host < hosts; ++host) {
    run(bridge, fmt::format("ip link add port{0} type veth peer name eth0 address {1} netns {2}; "
                            "ip link set port{0} master bridge0 up",
                            host, card_address(host), pid(host)));
    run(host, fmt::format("ip addr add {}/24 dev eth0; ip link set eth0 up", address(host)));
  }
}

std::string Namespaces::address(int host) { return fmt::format("10.77.0.{}", host + 1); }

void Namespaces::limit_rate(uint64_t bits_per_second) {
  // The bucket holds what the kernel may hand over at once, 64 KiB and headers, twice.
  for (int host = 0; host < hosts_; ++host)
    run(host, fmt::format("tc qdisc replace dev eth0 root tbf rate {}bit burst 160kb latency 50ms", bits_per_second));
}

void Namespaces::swallow(int from, int to) {
  run(from, fmt::format("ip neigh replace {} lladdr 02:00:00:00:00:99 dev eth0 nud permanent", address(to)));
}

void Namespaces::divert(int from, int to, int through) {
  // Packets that come from outside are looked up in a table of their own, so that what `through` sends still leaves.
  run(through, fmt::format("ip rule del pref 10 2> /dev/null || true; ip rule add pref 10 iif eth0 lookup 100; "
                           "ip route replace local {}/32 dev lo table 100",
                           address(to)));
  run(from, fmt::format("ip neigh replace {} lladdr {} dev eth0 nud permanent", address(to), card_address(through)));
}

void Namespaces::enter(int host) const {
  const int space = ::open(fmt::format("/proc/{}/ns/net", pid(host)).c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || ::setns(space, CLONE_NEWNET) != 0)
    throw std::runtime_error("cannot enter host " + std::to_string(host));
  ::close(space);
}

void Namespaces::run(int host, const std::string& commands) {
  holders_[static_cast<size_t>(host)].tell(commands);
  require_ready(host);
}

void Namespaces::require_ready(int host) {
  if (holders_[static_cast<size_t>(host)].hear() == "ready") return;
  throw std::runtime_error("cannot make network namespaces: run as root, with iproute2 installed");
}

}  // namespace rondo::testing
