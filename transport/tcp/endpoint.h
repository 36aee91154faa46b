#pragma once

#include <cstdint>
#include <string>

namespace rondo {

// Where a listener is: a numeric address (v4, or v6 without brackets) and a port.
struct Endpoint {
  std::string address;
  uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

// "10.0.0.1:4000", "[fe80::1]:4000".
inline std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.address.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.address + "]:" : endpoint.address + ":") + std::to_string(endpoint.port);
}

}  // namespace rondo
