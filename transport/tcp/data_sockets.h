#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/fabric.h"

namespace rondo {

// The data sockets that are in use. The I/O thread looks at them once a heartbeat: at bytes that the peer does not
// acknowledge, and at what each link moves. TCP_USER_TIMEOUT cannot do this: since Linux 5.11 it also ends connections
// whose receiver does not read (a rank that is late for its call). It owns no socket.
class DataSockets {
 public:
  // What a socket is part of: all sockets to a peer on a communicator have the same key.
  struct Key {
    uint64_t communicator = 0;
    int peer = -1;
  };
  // patience_ms: unacknowledged bytes are a failure after so long; 0: never.
  explicit DataSockets(int64_t patience_ms) : patience_ms_(patience_ms) {}

  // Looks at the socket from now on, until what is returned is gone, which must be before it is closed. Any thread.
  std::shared_ptr<void> add(const Key& key, int socket);

  struct Failure {
    Key key;
    std::string what;
  };
  // The sockets that have failed since the last call of this, each once. now_ms: of a clock that never goes back. On
  // the I/O thread, as slowest().
  std::vector<Failure> look(int64_t now_ms);
  // The link with the smallest share of its best rate, as of the last look(), of those that have something to send.
  LinkRate slowest() const;
  // Bytes of this communicator are on their way, and not known to have arrived.
  bool anything_under_way(uint64_t communicator) const;

 private:
  struct Facts;  // of the kernel
  // A socket that add() has returned a handle of. Its owner keeps it open as long as that lives.
  struct Socket {
    Key key;
    int descriptor = -1;
    uint64_t acknowledged = 0;    // bytes, at the last look
    int64_t stuck_since_ms = -1;  // sent again, and nothing acknowledged, since that look; -1: it is not so
    bool failed = false;
  };
  // What a peer's sockets moved together, at the last look. busy: some have bytes that are not sent or not
  // acknowledged.
  struct Rate {
    LinkRate rate;
    bool busy = false;
  };
  static bool ask(const Socket& socket, Facts& facts);
  static std::string way_of(const Socket& socket, const Facts& facts);
  bool stuck(Socket& socket, const Facts& facts, int64_t now_ms) const;
  void end_soon(const Socket& socket) const;

  // By number, since descriptors are used again. The lock is held during system calls that do not block.
  struct Shared {
    std::mutex mutex;
    std::map<uint64_t, Socket> sockets;
    uint64_t next = 0;
  };

  const int64_t patience_ms_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();  // shared with what add() has returned
  std::map<int, Rate> rates_;                                          // by peer. Of the I/O thread
  int64_t looked_at_ms_ = 0;
};

}  // namespace rondo
