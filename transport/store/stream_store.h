#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ring/base/descriptor.h"
#include "ring/base/log.h"
#include "transport/auth/authenticator.h"
#include "transport/auth/text_seal.h"
#include "transport/store/request_store.h"
#include "transport/tcp/socket.h"

namespace rondo {

// The client of a StoreServer, over TCP or a unix socket, by one connection: its end is that of one of the two, also to
// the server (leave_will). A call that runs out leaves it open, and the next one passes over the late answer.
class StreamStore : public RequestStore {
 public:
  struct Options {
    // Where to try, asked anew before every attempt: a host's addresses, or a port that has yet to be published.
    // Empty: nothing known yet.
    std::function<std::vector<SocketAddress>(Deadline)> addresses;
    std::string name;  // for messages: "tcp://host:29500"
    std::string job_id;
    Authenticator auth;
    bool encrypt = false;
    int64_t handshake_ms = 5'000;  // for a listener to say who it is, before the client tries again
    int64_t silence_ms = 9'000;    // without a sign of life of the server's host: it has gone (socket_options.h)
    Logger log;
  };

  explicit StreamStore(Options options) : options_(std::move(options)) {}

  // Connects; tries again, 1 ms to 100 ms apart, while nobody listens yet. Throws kTimeout at the deadline, and
  // kBootstrap at once where waiting is no use: another job, another version, another program; kAuthFailed where it
  // does not know this process's secret.
  void connect(Deadline deadline);

  // Once this connection ends, in whatever way, the server puts `value` and, in words, why it ended there, if the key
  // is not there yet. "": no more.
  void leave_will(std::string_view key, std::string_view value, Deadline deadline);

 private:
  // True once connected; false if it is worth trying again, *why then says what happened.
  bool try_connect(Deadline deadline, std::string* why);
  bool shake_hands(Descriptor socket, const SocketAddress& address, Deadline deadline, std::string* why);
  // Connects at the first request. Throws kInvalid in a forked child, which must not use the parent's connection.
  StoreReply transact(StoreRequest request, Deadline deadline) override;
  // These move bytes until the deadline. key: of the request, for the error. Where one throws kTimeout, no byte is
  // lost, and a later call goes on from there.
  void send_rest(const std::string& key, Deadline deadline);
  std::string_view peek(const std::string& key, size_t size, Deadline deadline);
  StoreReply next_reply(const std::string& key, Deadline deadline);
  // lost(): the connection is over for good, and every later call says so. late(): this call has run out of time.
  [[noreturn]] void lost(const std::string& why);
  [[noreturn]] void late(const std::string& key) const;

  Options options_;
  Descriptor socket_;
  TextSeal seal_;          // of this connection
  std::string rest_;       // of requests, sealed, that has yet to be sent
  std::string plain_;      // what has come and was not taken
  std::string gone_;       // not empty: why the connection has ended
  uint32_t requests_ = 0;  // the number of the last one
  int owner_ = 0;          // the process that connected
};

}  // namespace rondo
