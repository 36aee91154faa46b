#include "rondo/unique_id.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "rondo/error.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/roster.h"
#include "transport/rendezvous/secret.h"
#include "transport/store/store_server.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

SocketAddress own_address(const std::string& host, const Config& config) {
  SocketAddress address = resolve(host.empty() ? reachable_address(config) : host, 0).front();
  // Whichever of the two this machine has; an error where loopback is down, since no rank would come.
  if (address.host() == "127.0.0.1" || address.host() == "::1") address = resolve(loopback_address(), 0).front();
  if (address.is_any()) {
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("\"{}\" cannot be published in a unique id: name the address that the ranks reach", host));
  }
  return address;
}

Descriptor listen_in_range(SocketAddress address, const PortRange& range, SocketAddress* bound) {
  for (int port = range.first; port <= range.last; ++port) {
    address.set_port(static_cast<uint16_t>(port));
    Descriptor socket = listen_socket(address, bound);
    if (socket.valid()) return socket;
    if (errno == EADDRINUSE && port < range.last) continue;
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("cannot serve a unique id at {} (ports {}-{}, RONDO_PORT_RANGE): {}", address.host(),
                                range.first, range.last, std::strerror(errno)));
  }
  return Descriptor();
}

}  // namespace

UniqueIdServer::UniqueIdServer(const std::string& host, const Config& config) {
  StoreServer::Options options;
  SocketAddress bound;
  options.listener = listen_in_range(own_address(host, config), data_port_range(config), &bound);
  UniqueKey key;
  fill_random(key);
  const std::string id = unique_url(bound.host(), bound.port(), key);
  options.auth = Authenticator(find_secret(config, parse_rendezvous(id), Environment::current()));
  options.job_id = kUniqueJobId;
  options.handshake_ms = config.handshake_timeout_ms;
  options.last_key = kRosterEndKey;
  options.world_key = kRosterWorldKey;
  options.log = Logger(config.debug);
  id_ = id;
  server_ = std::make_unique<StoreServer>(std::move(options));
}

UniqueIdServer::~UniqueIdServer() = default;
UniqueIdServer::UniqueIdServer(UniqueIdServer&&) noexcept = default;
UniqueIdServer& UniqueIdServer::operator=(UniqueIdServer&&) noexcept = default;

bool UniqueIdServer::complete() const { return server_->ended(); }

}  // namespace rondo
