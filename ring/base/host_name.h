#pragma once

#include <string>

namespace rondo {

// What this host calls itself, for messages; "unknown-host" if it has no name.
std::string host_name();

}  // namespace rondo
