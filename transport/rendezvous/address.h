#pragma once

#include <string>
#include <vector>

#include "rondo/config.h"
#include "rondo/store.h"
#include "transport/rendezvous/launch.h"

namespace rondo {

// The local IP addresses (numeric, v4 or v6) to listen on and to publish for data and control, best first; at least
// one. Loopback only if launch.one_host (or the master address is a loopback address). Otherwise the address that
// routes to the master, or those of config.socket_interface; never link-local, docker0 or 127.0.1.1 by itself. Throws
// Exception(kBootstrap) naming what was looked at; Exception(kInvalid) if an address is beyond loopback and this job
// may not listen there (Exposure, listener.h).
std::vector<std::string> listen_addresses(const Launch& launch, const Config& config);

// The first address of this machine that other machines could reach (those of config.socket_interface, if set);
// loopback where there is none.
std::string reachable_address(const Config& config);
// 127.0.0.1, or ::1 on a machine with IPv6 only. Throws Exception(kBootstrap) where loopback is down.
std::string loopback_address();
// The name or number is that of one of this machine's interfaces. Throws Exception(kNetwork) for an unknown name.
bool names_this_machine(const std::string& host, Store::Deadline deadline = Store::Deadline::max());
// All of its addresses are loopback's. Throws as names_this_machine.
bool is_loopback_host(const std::string& host, Store::Deadline deadline = Store::Deadline::max());

// "lo 127.0.0.1, eth0 10.0.0.5": the addresses of the interfaces that are up. Throws Exception(kBootstrap).
std::string describe_interfaces();

// This machine, the same for all processes on it and different between machines and network namespaces: boot id plus
// the network namespace's inode.
std::string host_identity();

}  // namespace rondo
