#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/error.h"
#include "transport/control/peer_dialer.h"
#include "transport/control/plane/control_connections.h"
#include "transport/control/plane/control_driver.h"
#include "transport/control/plane/data_links.h"
#include "transport/control/plane/open_communicators.h"
#include "transport/control/plane/plane_settings.h"
#include "transport/control/plane/process_watch.h"
#include "transport/control/plane/wake_event.h"
#include "transport/hello/reception.h"
#include "transport/tcp/io_thread.h"
#include "transport/tcp/io_timer.h"

namespace rondo {

// A rank's connections and the I/O thread that serves them: the listener (Reception), the control connections, the data
// links, and what the engine and the other ranks say of its communicators. Here they are made, hellos are judged,
// messages and actions go to whom they concern, and the rank leaves. Calls are for any thread.
class ControlPlane {
 public:
  using Deadline = ControlDriver::Clock::time_point;

  // Binds, listens and accepts from here on. Throws Exception.
  explicit ControlPlane(PlaneSettings settings);
  ~ControlPlane();  // closes everything at once; leave() first

  const std::vector<Endpoint>& endpoints() const { return reception_->endpoints(); }
  // Who the ranks are. Once, first of all: what is below needs it. No rank is welcomed before connect() has given the
  // roster to the I/O thread, too.
  void know(const Roster& roster);
  // Makes the control connections. Throws Exception: kBootstrap, kPeerLost or kNetwork.
  void connect(Roster roster, Deadline deadline);
  // The error to report where a step behind connect() has failed with `error`: a death, if one came first. Waits up to
  // 100 ms for that death to be seen.
  Error cause_of(const Error& error);
  // Fails this rank's start, and tells the others why.
  void fail_start(const Error& error);
  // Says goodbye to every process, and reads to the end of what they send. A failed start is told to all instead, also
  // to those that are not connected yet.
  void leave(Farewell farewell, Deadline deadline);

  // Ends the I/O thread, so that what else it serves can be destroyed.
  void stop() { thread_.stop(); }
  asio::io_context& context() { return thread_.context(); }

  // --- after connect()
  std::string peer_name(int peer) const { return driver_.peer_name(peer); }
  // That process has died or left.
  bool gone(int peer) { return driver_.hold()->logic->departures().gone(peer); }
  // A rank has died, or another rank's start has failed since.
  bool anyone_lost() { return driver_.hold()->logic->departures().anyone_lost(); }
  OpenCommunicators& communicators() { return communicators_; }
  DataLinks& links() { return links_; }
  int wake_event() const { return wake_.descriptor(); }

 private:
  void on_exception(const Error& error) noexcept;
  void fail_everything(const Error& error);
  void on_wake();
  void look();
  std::optional<Answer> judge(const Hello& hello);
  Answer judge_control(int peer);
  void on_message(int source, const ControlBody& body);
  void carry_out(const control::Action& action);
  void begin_leave(Farewell farewell);

  const PlaneSettings settings_;
  IoThread thread_;
  WakeEvent wake_;
  ControlDriver driver_;
  PeerDialer dialer_;
  ControlConnections connections_;
  DataLinks links_;
  OpenCommunicators communicators_;
  ProcessWatch processes_;
  std::unique_ptr<Reception> reception_;
  IoTimer look_;                             // at data sockets and this process's own descriptors, once a heartbeat
  std::optional<Farewell> wanted_farewell_;  // for which there was no memory to post; the driver's lock guards it
};

}  // namespace rondo
