#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "tests/rendezvous/test_jobs.h"
#include "transport/hello/wire.h"
#include "transport/rendezvous/roster.h"
#include "transport/store/store_server.h"
#include "transport/store/stream_store.h"
#include "transport/tcp/listener.h"

namespace rondo::test {

// What a client of the store says first.
inline Hello store_hello(const std::string& job_id, bool sealed = false) {
  Hello hello;
  hello.role = Role::kStore;
  hello.job_id = job_id;
  hello.sealed = sealed;
  return hello;
}

// A server on a free port of 127.0.0.1, unless it has a listener.
class Served {
 public:
  using Change = std::function<void(StoreServer::Options&)>;
  explicit Served(int64_t handshake_ms = 300, const std::string& job_id = "j", uint16_t port = 0,
                  const Authenticator& auth = Authenticator(), int world = 0)
      : Served(local_listener(port), [&](StoreServer::Options& options) {
          options.handshake_ms = handshake_ms;
          options.job_id = job_id;
          options.auth = auth;
          options.world = world;
        }) {}
  explicit Served(const Change& change) : Served(local_listener(0), change) {}
  explicit Served(
      Listener listener, const Change& change = [](StoreServer::Options&) {})
      : address_(listener.address) {
    StoreServer::Options options;
    options.listener = std::move(listener);
    options.job_id = "j";
    options.handshake_ms = 300;
    options.world_key = kRosterWorldKey;
    options.log = Logger("off");
    change(options);
    auth_ = options.auth;
    server_ = std::make_unique<StoreServer>(std::move(options));
  }
  StreamStore::Options client(const std::string& job_id = "j") const {
    StreamStore::Options options;
    options.addresses = [address = address_](Store::Deadline) { return std::vector{address}; };
    options.name = address_.text();
    options.job_id = job_id;
    options.auth = auth_;
    return options;
  }
  const SocketAddress& address() const { return address_; }
  Descriptor stranger() const { return connect_socket(address_, soon()); }

 private:
  static Listener local_listener(uint16_t port) {
    return listen_tcp("127.0.0.1", port, "advice", Exposure::kLoopback, soon());
  }

  Authenticator auth_;
  SocketAddress address_;
  std::unique_ptr<StoreServer> server_;
};

inline void check_serving(const Served& served, const std::string& job_id = "j") {
  StreamStore store(served.client(job_id));
  int64_t before = store.add("alive", 1, soon());
  CHECK(store.add("alive", 1, soon()) == before + 1);
}

}  // namespace rondo::test
