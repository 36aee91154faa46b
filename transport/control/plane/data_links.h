#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rondo/error.h"
#include "transport/control/control_mesh.h"
#include "transport/control/peer_dialer.h"
#include "transport/control/pending_links.h"
#include "transport/control/plane/control_driver.h"
#include "transport/control/plane/plane_settings.h"
#include "transport/hello/wire.h"
#include "transport/tcp/data_sockets.h"

namespace rondo {

// The data links and streams of a rank over sockets: which are wished for, how they come about, and how those in use
// fare. A link of two ranks is dialed by the higher one, which the lower asks for it; a stream by the rank that sends.
class DataLinks {
 public:
  // Called on the I/O thread: this link is complete, and its communicator may wait for it.
  using OnComplete = std::function<void(const LinkName& name)>;
  DataLinks(const PlaneSettings& settings, ControlDriver& driver, PeerDialer& dialer, ControlMesh& mesh,
            OnComplete on_complete);

  // --- any thread
  // The sockets of a link; empty: not there yet, and asked for.
  std::vector<SecuredSocket> take(const LinkName& name);
  std::optional<std::pair<int, SecuredSocket>> take_stream_from(uint64_t communicator);
  // Watches a socket that was taken; the result is kept until before it is closed (DataSockets).
  std::shared_ptr<void> watch(const LinkName& name, int socket) {
    return sockets_.add({name.communicator, name.peer}, socket);
  }
  // Dials of a communicator that was closed are of no use. Throws std::bad_alloc.
  void forget(uint64_t communicator);

  // --- any thread that holds the driver's state
  // Sockets that have come early count as this communicator's from here on.
  void open(uint64_t communicator) { table_.open(communicator); }
  // What came for it is closed, and what comes later. True: forget() it, too.
  bool close(uint64_t communicator) { return table_.close(communicator); }
  // To whom this rank has a stream.
  std::set<int> streams_to(uint64_t communicator) const { return table_.streams(communicator, LinkKind::kStreamTo); }
  // What to answer to a hello of a link; its rank and world have been compared.
  Answer judge(const ControlLogic& logic, const Hello& hello) const;

  // --- on the I/O thread
  // A socket that was accepted.
  void welcome(const Hello& hello, SecuredSocket socket);
  // A lower rank asks for a link.
  void on_wish(int source, const ConnectMessage& wish);
  // Looks at the sockets in use.
  void look();
  LinkRate slowest() const { return sockets_.slowest(); }
  // A message, perhaps: the network may have lost it once.
  bool anything_under_way(uint64_t communicator) const { return sockets_.anything_under_way(communicator); }
  // Nothing is dialed any more.
  void end();

 private:
  void bring_about(const LinkName& name);
  void dial(const LinkName& name);
  void failed(const LinkName& name, const Error& error);
  void add(const LinkName& name, uint32_t index, SecuredSocket socket);

  const PlaneSettings& settings_;
  ControlDriver& driver_;
  PeerDialer& dialer_;
  ControlMesh& mesh_;
  const OnComplete on_complete_;
  PendingLinks table_;  // the driver's lock guards it
  // The I/O thread's, but for DataSockets::add().
  DataSockets sockets_;
  bool ended_ = false;
};

}  // namespace rondo
