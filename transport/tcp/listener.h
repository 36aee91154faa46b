#pragma once

#include <cstdint>
#include <string>

#include "ring/base/descriptor.h"
#include "rondo/config.h"
#include "transport/auth/secret.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/socket_options.h"

namespace rondo {

// Where this process may listen: beyond loopback only with a secret that other hosts can have, or with `insecure`.
enum class Exposure { kLoopback, kNetwork };
Exposure exposure_of(const Config& config, const Secret& secret);

// First and last port of Config::data_ports ({0, 0}: any). Throws Exception(kInvalid).
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;
};
PortRange data_port_range(const Config& config);

// A socket that listens.
struct Listener {
  Descriptor socket;
  SocketAddress address;    // as bound: the real port where 0 was asked for
  std::string unlink_path;  // unix: to be removed when the service ends
};

// Listens on a numeric address, on the first free port of the range. Throws Exception naming address and ports:
// kNetwork, or kSystem where this process may not listen at all.
Listener listen_in_range(const std::string& address, PortRange ports, const SocketTuning& tuning = {});

// Listens on the first of the host's addresses that is this machine's. Where none is (a name that leads to 127.0.1.1,
// an address that a router translates), on all addresses. `advice` says which variables change the port, for the error
// when it is taken. A taken port is tried again for up to 5 s: that long the store of an earlier run may serve its last
// goodbyes. Throws Exception(kBootstrap); kInvalid beyond loopback where that is not permitted.
Listener listen_tcp(const std::string& host, uint16_t port, const std::string& advice, Exposure exposure,
                    Store::Deadline deadline);

// Replaces the socket of a crashed run, but not that of a living one. Throws Exception(kBootstrap).
Listener listen_unix(const std::string& path, Store::Deadline deadline);

// Throws Exception(kInvalid), naming RONDO_SECRET_FILE and RONDO_INSECURE, if it is not permitted.
void check_may_listen_beyond_loopback(const std::string& address, Exposure exposure);

// What a user's id is outside of this process's user namespace, as /proc/self/uid_map says: root of a container whose
// /tmp is the host's is another user than the host's root. Without a line for it: the id.
uint32_t outside_id(const std::string& map, uint32_t id);
// /tmp/rondo-<uid outside>: where sockets live whose names are derived and not given. The same for all processes of a
// user, whatever their environment.
std::string private_directory();
// Makes it, mode 0700. Throws Exception(kBootstrap) if it is a link, another user's, or open to others.
void make_private_directory();

}  // namespace rondo
