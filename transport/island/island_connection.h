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

// Frames with descriptors to and from one rank of the island. Handlers run on the I/O thread; send() is for any thread.
class IslandConnection {
 public:
  // `descriptors` are as many as the topic has. An Exception that it throws ends the connection, as broken.
  using OnFrame = std::function<void(const IslandFrame&, std::vector<Descriptor> descriptors)>;
  // kGone: the peer has closed it, or died. kBroken: the peer lives and does not keep to the protocol.
  enum class End { kGone, kBroken };
  // Nothing comes any more; why, in words. Called once at most.
  using OnEnd = std::function<void(End end, const std::string& why)>;

  IslandConnection(asio::io_context& io, Descriptor socket, OnFrame on_frame, OnEnd on_end);
  // The I/O thread must have been stopped, or never started by start().
  ~IslandConnection();

  void start();  // posts to the I/O thread
  // Sends, or queues while the peer does not read; `keep` holds what the descriptors belong to until then. More than
  // kMaxQueued in the queue end the connection. Frames arrive in the order of the calls. Where it throws
  // std::bad_alloc, nothing has happened.
  void send(const IslandFrame& frame, std::vector<int> descriptors = {}, std::shared_ptr<void> keep = nullptr);

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the handlers that Asio still holds
};

}  // namespace rondo
