#include "transport/tcp/endpoint.h"

#include <fmt/format.h>

namespace rondo {

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.address.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", endpoint.address, endpoint.port)
            : fmt::format("{}:{}", endpoint.address, endpoint.port);
}

}  // namespace rondo
