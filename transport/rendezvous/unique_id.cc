#include "rondo/unique_id.h"

#include <fmt/format.h>

#include "rondo/error.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/roster.h"
#include "transport/rendezvous/secret.h"
#include "transport/store/store_server.h"
#include "transport/store/store_wire.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/socket_options.h"

namespace rondo {
namespace {

// The address that goes into the id: ranks of other hosts connect to it.
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

}  // namespace

// The world's size is unknown until rank 0 puts it (world_key); the server's limits follow then.
UniqueIdServer::UniqueIdServer(const std::string& host, const Config& config) {
  StoreServer::Options options;
  options.listener = listen_in_range(own_address(host, config).host(), data_port_range(config));
  const SocketAddress bound = options.listener.address;
  UniqueKey key;
  fill_random(key);
  const std::string id = unique_url(bound.host(), bound.port(), key);
  options.auth = Authenticator(find_secret(config, parse_rendezvous(id), Environment::current()));
  options.job_id = kUniqueJobId;
  options.handshake_ms = config.handshake_timeout_ms;
  options.silence_ms = store_silence_ms(config);
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
