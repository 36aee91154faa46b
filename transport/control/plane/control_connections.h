#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "rondo/error.h"
#include "transport/control/control_mesh.h"
#include "transport/control/peer_dialer.h"
#include "transport/control/plane/control_driver.h"
#include "transport/control/plane/plane_settings.h"
#include "transport/tcp/io_timer.h"

namespace rondo {

enum class Farewell { kGoodbye, kFailedStart };

// The control connections of a rank, from the first dial to the last end, and StartLogic, which says who is to blame
// where they do not come about.
class ControlConnections {
 public:
  using Deadline = ControlDriver::Clock::time_point;
  ControlConnections(const PlaneSettings& settings, asio::io_context& io, ControlDriver& driver, PeerDialer& dialer,
                     ControlMesh::OnMessage on_message);

  // --- any thread
  // Waits for the start that begin() has begun. Throws Exception: kBootstrap, kPeerLost or kNetwork.
  void await_start();
  // The connections that have not ended, and ranks that are still to hear why the start has failed. Asked with the
  // driver's lock held.
  bool any_left(const ControlDriver::State& state) const { return live_ > 0 || !state.start->untold().empty(); }

  // --- on the I/O thread
  ControlMesh& mesh() { return mesh_; }
  // The lower neighbors are dialed; the higher ones dial this rank.
  void begin(Deadline deadline);
  // A connection that was dialed or accepted.
  void add(int peer, SecuredSocket socket);
  // Nothing is heard of that rank any more.
  void drop(int peer);
  // A rank asks whether another one, at which nothing listens for it, lives.
  void on_question(int by, const LostMessage& question);
  void on_failed_start(int source, const AbortMessage& abort);
  // After kGoodbye nobody may connect any more. After kFailedStart neighbors that are not connected yet still may, to
  // hear why (StartLogic::untold()).
  void leave(Farewell farewell);
  const std::optional<Farewell>& leaving() const { return leaving_; }

 private:
  void probe_missing(Deadline deadline);
  void fail_late();
  void failed(int peer, const Error& error);
  void on_end(int peer, const std::string& why);
  std::set<int> missing();
  bool started();

  const PlaneSettings& settings_;
  ControlDriver& driver_;
  PeerDialer& dialer_;
  ControlMesh mesh_;
  IoTimer probe_;  // of neighbors that have not dialed
  std::optional<Farewell> leaving_;
  size_t live_ = 0;  // connections that have not ended; the driver's lock guards it
};

}  // namespace rondo
