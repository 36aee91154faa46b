#include "tests/faults/hosts.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

namespace rondo::testing {
namespace {

constexpr int kHosts = 2;
const char* const kAddresses[kHosts] = {"10.77.0.1", "10.77.0.2"};

std::string shell(const std::string& commands) {
  return std::system(("set -e; PATH=$PATH:/usr/sbin:/sbin; " + commands).c_str()) == 0 ? "ready" : "failed";
}

// Of the calling process, from here on.
void enter(pid_t holder) {
  const int space = ::open(fmt::format("/proc/{}/ns/net", holder).c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) throw Exception(ErrorCode::kSystem, "cannot enter the host");
  ::close(space);
}

}  // namespace

Hosts::Hosts() {
  holders_.reserve(kHosts);
  for (int host = 0; host < kHosts; ++host) {
    holders_.emplace_back(JoinOptions(), [](Here& here) {
      here.say(::unshare(CLONE_NEWNET) == 0 ? shell("ip link set lo up") : "failed");
      while (true) here.say(shell(here.await()));
    });
    require_ready(host);
  }
  run(0, fmt::format("ip link add eth0 type veth peer name eth1; ip link set eth1 netns {}", pid(1)));
  run(0, fmt::format("ip addr add {}/24 dev eth0; ip link set eth0 up", kAddresses[0]));
  run(1, fmt::format("ip addr add {}/24 dev eth1; ip link set eth1 up", kAddresses[1]));
}

void Hosts::start(Job& job, const std::vector<int>& host_of, const RankProcess::Body& body,
                  const Config& config) const {
  const int world = static_cast<int>(host_of.size());
  for (int rank = 0; rank < world; ++rank) {
    JoinOptions options = job.options(rank, world, config);
    options.rendezvous = fmt::format("tcp://{}:5577", kAddresses[host_of[0]]);
    options.config.socket_interface = "";
    options.config.insecure = true;
    const pid_t host = pid(host_of[static_cast<size_t>(rank)]);
    job.ranks.emplace_back(options, [host, body](Here& here) {
      enter(host);
      body(here);
    });
  }
}

void Hosts::run(int host, const std::string& commands) {
  holders_[static_cast<size_t>(host)].tell(commands);
  require_ready(host);
}

void Hosts::require_ready(int host) {
  REQUIRE_MESSAGE(holders_[static_cast<size_t>(host)].hear() == "ready",
                  "cannot make network namespaces: run as root, with iproute2 installed");
}

}  // namespace rondo::testing
