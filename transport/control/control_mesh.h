#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/control/control_message.h"
#include "transport/control/mesh_map.h"
#include "transport/hello/secured_socket.h"

namespace asio {
class io_context;
}

namespace rondo {

class ControlConnection;

// Ranks that may pass a frame on. Steps of 2^i take at most 16 in a world of 65535; the rest is for ways around ranks
// that are gone. A frame beyond it is dropped.
inline constexpr int kMaxHops = 64;

// The control connections of one rank. In worlds beyond kMaxFullMesh frames go from rank to rank: each nearer to the
// destination on the circle of ranks, so that none goes round though some connections of others are not yet made; once
// a rank or a connection of others is gone, by MeshMap, at most kMaxHops times, since those on the way may know of
// different ones that are gone. On the I/O thread.
class ControlMesh {
 public:
  // A message for this rank.
  using OnMessage = std::function<void(int source, const ControlBody&)>;
  // The connection has ended, or does not keep to the protocol: remove() it.
  using OnEnd = std::function<void(int peer, const std::string& why)>;
  // A neighbor has sent a frame, whosever it is.
  using OnSign = std::function<void(int peer)>;

  ControlMesh(asio::io_context& io, int rank, int world, OnMessage on_message, OnEnd on_end, OnSign on_sign);
  ~ControlMesh();

  // The connection to a neighbor; at most one for each.
  void add(int peer, SecuredSocket socket);
  bool remove(int peer);  // false: it was not there
  // Nothing will be said to it any more: the end of our side lets it end without waiting.
  void finish(int peer);
  void finish_all();
  // finish(), and nothing of it is heard any more: OnEnd will not be called. False: it was not there.
  bool drop(int peer);
  // That rank passes nothing on any more.
  void forget(int peer);
  // Those two have no connection to each other any more.
  void cut(int one, int other);
  // Dropped where no way is left.
  void send(int destination, const ControlBody& body);

 private:
  void on_frame(int peer, const ControlFrame& frame);
  int next_hop(int destination);
  void forward(const ControlFrame& frame);

  asio::io_context& io_;
  const int rank_, world_;
  const OnMessage on_message_;
  const OnEnd on_end_;
  const OnSign on_sign_;
  std::map<int, std::unique_ptr<ControlConnection>> connections_;
  std::map<int, std::unique_ptr<ControlConnection>> dropped_;  // until they end
  MeshMap map_;
  bool some_gone_ = false;
  std::vector<int> next_;  // MeshMap::next_hops(); empty: to be found anew
};

}  // namespace rondo
