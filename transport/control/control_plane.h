#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/log.h"
#include "rondo/config.h"
#include "rondo/error.h"
#include "transport/control/control_logic.h"
#include "transport/control/control_mesh.h"
#include "transport/control/peer_dialer.h"
#include "transport/control/pending_links.h"
#include "transport/control/start_logic.h"
#include "transport/fabric.h"
#include "transport/hello/reception.h"
#include "transport/rendezvous/peer_card.h"
#include "transport/tcp/data_sockets.h"
#include "transport/tcp/io_thread.h"

namespace rondo {

// A rank's connections: the I/O thread with the listener (Reception), the control connections (ControlMesh) and the
// dials (PeerDialer), driving StartLogic, ControlLogic and PendingLinks. Calls are for any thread; handlers
// (control_plane_io.cc) run on the I/O thread only.
//
// mutex_ guards the members from logic_ to wanted_farewell_, but for flush_posted_. Nothing is called out with it held:
// actions of the logic are collected under it and carried out by flush() on the I/O thread, so a communicator's events
// come from that thread alone, in order.
class ControlPlane {
 public:
  using Clock = std::chrono::steady_clock;
  struct Settings {
    int rank = 0;
    int world = 1;
    std::string job_id;  // bounded
    int ended = -1;      // Launch::ended
    Config config;
    std::vector<std::string> addresses;
    PortRange ports;
    Logger logger;
    Authenticator auth;
    size_t max_pending = 128;  // connections that have not said who they are
    size_t max_known = 1024;   // and those that have, and are not through yet
    size_t max_early = 1024;   // data sockets of communicators that are not open here yet
  };

  // Binds, listens and accepts from here on. Throws Exception.
  explicit ControlPlane(Settings settings);
  ~ControlPlane();  // closes everything at once; leave() first

  const std::vector<Endpoint>& endpoints() const { return reception_->endpoints(); }
  // Who the ranks are. Once, first of all: what is below needs it. No rank is welcomed before connect() has given the
  // roster to the I/O thread, too.
  void know(const Roster& roster);
  // Makes the control connections. Throws Exception: kBootstrap, kPeerLost or kNetwork.
  void connect(Roster roster, Clock::time_point deadline);
  // The error to report where a step behind connect() has failed with `error`: a death, if one came first. Waits up to
  // 100 ms for that death to be seen.
  Error cause_of(const Error& error);
  // Fails this rank's start, and tells the others why.
  void fail_start(const Error& error);
  enum class Farewell { kGoodbye, kFailedStart };
  // Says goodbye to every process, and reads to the end of what they send. A failed start is told to all instead, also
  // to those that are not connected yet.
  void leave(Farewell farewell, Clock::time_point deadline);

  // Ends the I/O thread, so that what else it serves can be destroyed.
  void stop() { thread_.stop(); }
  asio::io_context& context() { return thread_.context(); }

  // --- after connect()
  // That process has died or left.
  bool gone(int peer) const;
  std::string peer_name(int peer) const { return rank_name(peer, names_); }  // any thread, no lock
  // A rank has died, or another rank's start has failed since.
  bool anyone_lost() const;
  void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events, std::shared_ptr<Doorbell> doorbell,
            std::shared_ptr<Doorbell> p2p_doorbell);
  void decline(uint64_t id, const std::vector<int>& members, const Error& error);
  void made(uint64_t id);
  // Like Fabric's. island_streams: the members to whom this rank has opened a stream in shared memory.
  using IslandStreams = std::function<std::set<int>()>;
  bool leave(uint64_t id, uint64_t last_sequence, const IslandStreams& island_streams);
  bool close(uint64_t id, uint64_t last_sequence, const IslandStreams& island_streams, Clock::time_point deadline);
  // Like ControlLogic::streamed(), for a stream in shared memory.
  void streamed(uint64_t id, int peer);
  // The sockets of a link; empty: not there yet, and asked for.
  std::vector<SecuredSocket> take(const LinkName& name);
  std::optional<std::pair<int, SecuredSocket>> take_stream_from(uint64_t communicator);
  // The doorbell that a link or stream of this name rings; null: its communicator is not open.
  std::shared_ptr<Doorbell> doorbell(const LinkName& name) const;
  void stalled(uint64_t id, uint64_t sequence, Ask how);
  std::vector<int> absent(uint64_t id, uint64_t sequence) const;
  void link_failed(uint64_t id, int peer, const Error& error);
  void abort(uint64_t id, const Error& error);
  std::string blame(uint64_t id, uint64_t sequence) const;
  Shrunk shrink(uint64_t id, std::chrono::milliseconds patience, bool opened);
  // Watches a data socket that was taken; the result is kept until before it is closed (DataSockets).
  std::shared_ptr<void> watch_data(const LinkName& name, int socket) {
    return sockets_.add({name.communicator, name.peer}, socket);
  }
  int wake_event() const { return wake_.get(); }
  // What this rank does on its open communicators, and the link of LinkRate. On the I/O thread.
  std::vector<std::string> status();
  // CommunicatorEvents::metrics_text() of one of them; empty: none is open.
  std::string metrics();
  LinkRate slowest_link() const { return sockets_.slowest(); }

 private:
  std::vector<uint64_t> communicators();  // that are known here
  // A communicator between open() and the end of close(). events is null once close() ends: nothing is delivered then.
  // delivering: the I/O thread is in a call of events, and close() waits for its end.
  struct OpenCommunicator {
    CommunicatorEvents* events = nullptr;
    std::shared_ptr<Doorbell> doorbell, p2p_doorbell;  // shared with the flows
    bool delivering = false;
  };

  // control_plane.cc
  static ControlLogic::Time now();
  // From a thread of the program; tell_logic() and tell_start() are the I/O thread's, and carry out what follows at
  // once.
  template <typename Event>
  void tell_later(Event&& event);
  void request_flush();
  void ring_io_thread();
  void forget(uint64_t id);
  std::string missing_names() const;

  // control_plane_io.cc
  void on_exception(const Error& error) noexcept;
  void fail_everything(const Error& error);
  void drop(int peer);
  void watch_process(int peer);
  void hear_launcher(ControlLogic& logic);
  void await_wake();
  void wake();
  void look_at_sockets();
  void look_at_own_descriptor();
  void flush();
  void flush_soon();
  void carry_out(const control::Action& action);
  void arm_timer();
  // Calls the communicator's events without the lock, if it is open.
  void deliver(uint64_t communicator, const std::function<void(CommunicatorEvents&)>& call);
  CallState ask(uint64_t communicator, uint64_t sequence);
  std::string waits_beside(uint64_t communicator);
  void tell_logic(const std::function<void(ControlLogic&)>& event);

  // Reception's questions: what to answer to a hello, and what to do with the connection.
  std::optional<Answer> judge(const Hello& hello);
  Answer judge_link(const Hello& hello);
  void welcome(const Hello& hello, SecuredSocket socket);
  void add_control(int peer, SecuredSocket socket);
  void add_link(const LinkName& name, uint32_t index, SecuredSocket socket);

  void begin_start(Clock::time_point deadline);
  void probe_missing(Clock::time_point deadline);
  void fail_late();
  void control_failed(int peer, const Error& error);
  void tell_start(const std::function<void(StartLogic&)>& event);
  void send_start_messages();
  void on_question(int by, const LostMessage& question);

  void on_message(int source, const ControlBody& body);
  void on_failed_start(int source, const AbortMessage& abort);
  bool started() const;
  void on_control_end(int peer, const std::string& why);

  // A link that was wished for first. This rank dials streams, and links to lower ranks; a higher rank is asked to
  // dial.
  void bring_about(const LinkName& name);
  void dial_link(const LinkName& name);
  void link_dial_failed(const LinkName& name, const Error& error);
  void begin_leave(Farewell farewell);

  const Settings settings_;
  const Descriptor wake_;  // an eventfd
  // Tells whether another part of the process has closed wake_, and with it perhaps all descriptors.
  const FileIdentity wake_identity_;
  const Descriptor ended_;  // Settings::ended; none: nothing is known there
  IoThread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<ControlLogic> logic_;
  PendingLinks table_;
  std::map<uint64_t, OpenCommunicator> communicators_;
  std::optional<StartLogic> start_;
  bool flush_posted_ = false;                   // I/O thread
  uint64_t flushes_ = 0, flushes_written_ = 0;  // that had actions; whose messages went to the sockets, of these
  // Control connections that have not ended; leave() waits until there is none.
  size_t live_controls_ = 0;
  Error broken_;                     // what a handler has thrown: the end of every communicator, also of later ones
  bool descriptors_closed_ = false;  // by another part of the process
  std::optional<Farewell> wanted_farewell_;  // for which there was no memory to post

  std::vector<std::string> names_;  // constant once know() has returned
  // The I/O thread's.
  ControlMesh mesh_;
  PeerDialer dialer_;
  DataSockets sockets_;
  std::unique_ptr<Reception> reception_;
  struct Timers;
  std::unique_ptr<Timers> timers_;
  std::optional<ControlLogic::Time> armed_for_;  // when the logic's timer fires
  std::optional<Farewell> leaving_;
};

}  // namespace rondo
