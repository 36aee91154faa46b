#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/log.h"
#include "transport/auth/authenticator.h"
#include "transport/tcp/listener.h"

namespace rondo {

// Serves a StoreMap to stream clients from a thread of its own, from construction to destruction. Who a client is, is
// found out as everywhere (hello/reception.h). What clients may use (connections, unfinished requests, the map) grows
// with the world.
class StoreServer {
 public:
  // Where the last client came from that was refused, since it does not know the secret: the server puts it there.
  static constexpr std::string_view kWrongSecretKey = "wrong-secret";
  // Connections that have not said hello yet. A hello follows its connection within a round trip, so that an honest
  // client is the oldest of 256 only under a flood, and it tries again.
  static constexpr size_t kMaxStrangers = 256;
  // For a world that is not known yet; a known one has twice its ranks and 16.
  static constexpr size_t kMaxClients = 16384;

  // Times are in milliseconds.
  struct Options {
    Listener listener;  // TCP or unix
    std::string job_id;
    Authenticator auth;
    bool encrypt = false;  // refuses clients that do not ask for it; those that do have it anyway
    int world = 0;         // 0: known once the number is put under world_key, at the beginning of the text
    std::string world_key;
    int64_t handshake_ms = 5'000;
    // From one reply until the next request has come, and for a reply to be taken. Longer than an outage of the network
    // that the ranks survive.
    int64_t idle_ms = 1'800'000;
    int64_t silence_ms = 9'000;  // a client's host gives no sign of life for so long: it has gone (socket_options.h)
    std::string last_key;        // once this key exists the server stops listening, and ends when its clients have gone
    Logger log;
  };

  explicit StoreServer(Options options);
  // Stops at once; waiting clients see the connection end. In a child made by fork it does nothing.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // True once last_key exists and every client has gone: nothing is open any more.
  bool ended() const;

  // --- for the process that serves it; any thread but the server's
  // Clients that wait in get() for a key that is not there yet.
  size_t waiting() const;
  // For each connected client whose last request was a get() that had to wait: its key, and whether it still waits.
  // callers() sorts them by key.
  struct Caller {
    std::string key;
    bool waits;
  };
  std::vector<Caller> callers() const;
  // Like put(), but only for those that wait for it now.
  void answer(const std::string& key, const std::string& value);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace rondo
