#pragma once

#include <string>
#include <vector>

namespace rondo::bench {

// The congestion controls that this process may set on a socket, the system's default among them.
std::vector<std::string> allowed_congestion_controls();
std::string default_congestion_control();

// That of Rondo's sockets over loopback: RONDO_TCP_CONGESTION, else the system's, but for one that paces (BBR), in
// whose place reno or cubic is set where that is allowed.
std::string congestion_in_force();

}  // namespace rondo::bench
