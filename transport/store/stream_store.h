#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ring/base/descriptor.h"
#include "ring/base/log.h"
#include "rondo/store.h"
#include "transport/auth/authenticator.h"
#include "transport/auth/records.h"
#include "transport/store/store_wire.h"
#include "transport/tcp/socket.h"

namespace rondo {

// The client of a StoreServer, over TCP or a unix socket. A call that runs out gives up the connection (its answer may
// still be under way); the next call makes a new one.
class StreamStore : public Store {
 public:
  struct Options {
    // Where to try, asked anew before every attempt: a host's addresses, or a port that has yet to be published.
    // Empty: nothing known yet.
    std::function<std::vector<SocketAddress>()> addresses;
    std::string name;  // for messages: "tcp://host:29500"
    std::string job_id;
    Authenticator auth;
    bool encrypt = false;
    int64_t handshake_ms = 5'000;  // for a listener to say who it is, before the client tries again
    Logger log;
  };

  explicit StreamStore(Options options) : options_(std::move(options)) {}

  // Connects; tries again, 1 ms to 100 ms apart, while nobody listens yet. Throws kTimeout at the deadline, and
  // kBootstrap at once where waiting is no use: another job, another version, another program; kAuthFailed where it
  // does not know this process's secret.
  void connect(Deadline deadline);

  void put(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::optional<std::string> try_get(std::string_view key, Deadline deadline) override;
  int64_t add(std::string_view key, int64_t amount, Deadline deadline) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override;
  bool remove(std::string_view key, Deadline deadline) override;

 private:
  // True once connected; false if it is worth trying again, *why then says what happened.
  bool try_connect(Deadline deadline, std::string* why);
  bool shake_hands(Descriptor socket, const SocketAddress& address, Deadline deadline, std::string* why);
  StoreReply transact(const StoreRequest& request, Deadline deadline);
  [[noreturn]] void lost(const std::string& why);
  [[noreturn]] void late(const std::string& key) const;

  Options options_;
  Descriptor socket_;
  TextSeal seal_;         // of this connection
  std::string plain_;     // what has come and was not taken
  bool reached_ = false;  // the server was there once: from then on its absence means that it is gone
  int owner_ = 0;         // the process that connected
};

}  // namespace rondo
