#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rondo/config.h"
#include "rondo/store.h"
#include "transport/rendezvous/launch.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/store/store_server.h"
#include "transport/store/stream_store.h"
#include "transport/tcp/socket.h"

namespace rondo {

// Stores at tcp:// and unix:// addresses: what open_store() and the Door are made of.

// Where such a store may be reached; empty: its port is not published yet.
std::vector<SocketAddress> addresses_of(const RendezvousUrl& url, Store::Deadline deadline);
StreamStore::Options client_options(const RendezvousUrl& url, const Launch& launch, const Config& config);
// Listens. Without a last key. Throws Exception: kBootstrap, kInvalid.
StoreServer::Options server_options(const RendezvousUrl& url, const Launch& launch, const Config& config,
                                    Store::Deadline deadline);
// Rank 0's: serves it until the ranks have met. port_found: that of port 0.
std::shared_ptr<Store> serve_store(const RendezvousUrl& url, const Launch& launch, const Config& config,
                                   Store::Deadline deadline, uint16_t* port_found = nullptr);

}  // namespace rondo
