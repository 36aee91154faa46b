#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ring/base/descriptor.h"
#include "transport/island/island_frame.h"

namespace asio {
class io_context;
}

namespace rondo {

// Frames with descriptors to and from one rank of the island. It knows no topic but how many descriptors come with it.
// Handlers run on the I/O thread; send() is for any thread. Either rank may connect, and both at once: each sends on
// the first socket that it has, and reads both.
class IslandConnection {
 public:
  // `descriptors` are as many as the topic has. An Exception that it throws ends the connection: as unmade, where it is
  // kSystem, else as broken.
  using OnFrame = std::function<void(const IslandFrame& frame, std::vector<Descriptor> descriptors)>;
  // kGone: the peer has closed it, has died, or listens no more. kBroken: it does not keep to the protocol. kUnmade:
  // the system does not let this rank connect, or have what the peer has sent or asked for.
  enum class End { kGone, kBroken, kUnmade };
  // Nothing comes any more; why, in words. Called once at most.
  using OnEnd = std::function<void(End end, const std::string& why)>;
  // What became of a try to connect.
  struct Dialed {
    Descriptor socket;
    bool later = false;  // try again soon; else, without a socket:
    End end = End::kUnmade;
    std::string why = {};
  };
  using Dial = std::function<Dialed()>;  // on the I/O thread; does not block

  IslandConnection(asio::io_context& io, Dial dial, OnFrame on_frame, OnEnd on_end);
  // The I/O thread must have been stopped, or neither start() nor add() called.
  ~IslandConnection();

  // Dials, on the I/O thread, unless add() comes before.
  void start();
  // On the I/O thread: the peer has connected.
  void add(Descriptor socket);
  // Sends, or queues until it is connected and while the peer does not read; `keep` holds what the descriptors belong
  // to until then. More than kMaxQueued in the queue end the connection. Frames arrive in the order of the calls. Where
  // it throws std::bad_alloc, nothing has happened.
  void send(const IslandFrame& frame, std::vector<int> descriptors = {}, std::shared_ptr<void> keep = nullptr);

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the handlers that Asio still holds
};

}  // namespace rondo
