#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/ranks.h"

namespace rondo::testing {

// Network namespaces, each joined to a bridge by a pair of virtual interfaces, stand for hosts at a switch. They end
// with the processes that hold them. Needs root (or CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2: fails the test, and
// says so, without.
class Hosts {
 public:
  explicit Hosts(int hosts = 2);
  // What every host sends at most, headers included, from now on.
  void limit_rate(uint64_t bits_per_second);
  // The cable between a host and the switch.
  void pull_cable(int host) { run(hosts_, "ip link set port" + std::to_string(host) + " down"); }
  void plug_cable(int host) { run(hosts_, "ip link set port" + std::to_string(host) + " up"); }
  // What `from` sends to `to` goes nowhere from now on, and nobody is told: it is addressed to no host's card.
  void swallow(int from, int to);
  // What `from` sends to `to` arrives at the host `through` from now on, which takes it for its own: a relay there
  // listens, by sockets with IP_TRANSPARENT, at the address of `to`.
  void divert(int from, int to, int through);
  // Every TCP connection of a host ends with a RST to its other end.
  void reset_connections(int host) { run(host, "ss -K -t state established > /dev/null"); }
  static constexpr uint16_t kRendezvousPort = 5577;
  // Starts the ranks of the job, rank r on host host_of[r]; rank 0's host serves the rendezvous. Without authentication
  // unless the config has a secret.
  void start(Job& job, const std::vector<int>& host_of, const RankProcess::Body& body,
             const Config& config = fault_config()) const;
  // Puts a process, made by fork from the one that made the hosts, on that host.
  void enter(int host) const;

 private:
  pid_t pid(int host) const { return holders_[static_cast<size_t>(host)].pid(); }
  void run(int host, const std::string& commands);
  void require_ready(int host);

  const int hosts_;
  std::vector<RankProcess> holders_;  // of the hosts, then of the switch
};

}  // namespace rondo::testing
