#pragma once

#include <string>

namespace rondo {

// For people: what this host calls itself, or "unknown-host".
std::string host_name();

}  // namespace rondo
