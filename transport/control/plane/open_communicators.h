#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rondo/error.h"
#include "transport/control/plane/control_driver.h"
#include "transport/control/plane/data_links.h"
#include "transport/fabric.h"

namespace rondo {

// The communicators of a rank, each between its open() and the end of its close(): what the engine says of them goes to
// ControlLogic, and what comes of that, and questions, to their events. Methods are like Fabric's, and for any thread,
// where nothing is said.
class OpenCommunicators {
 public:
  using Deadline = ControlDriver::Clock::time_point;
  // The members to whom this rank has opened a stream in shared memory.
  using IslandStreams = std::function<std::set<int>()>;

  // links: null where no data goes over sockets, between threads of one process.
  OpenCommunicators(ControlDriver& driver, DataLinks* links) : driver_(driver), links_(links) {}

  void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events, std::shared_ptr<Doorbell> doorbell,
            std::shared_ptr<Doorbell> p2p_doorbell);
  void decline(uint64_t id, const std::vector<int>& members, const Error& error);
  void made(uint64_t id);
  bool leave(uint64_t id, uint64_t last_sequence, const IslandStreams& island_streams);
  bool close(uint64_t id, uint64_t last_sequence, const IslandStreams& island_streams, Deadline deadline);

  // Like ControlLogic::streamed(), for a stream in shared memory.
  void streamed(uint64_t id, int peer);
  void link_failed(uint64_t id, int peer, const Error& error);
  void abort(uint64_t id, const Error& error);
  Shrunk shrink(uint64_t id, std::chrono::milliseconds patience, bool opened);
  void stalled(uint64_t id, uint64_t sequence, Ask how);
  std::vector<int> absent(uint64_t id, uint64_t sequence);
  std::string blame(uint64_t id, uint64_t sequence);
  // The doorbell that a link or stream of this name rings; null: its communicator is not open.
  std::shared_ptr<Doorbell> doorbell(const LinkName& name);

  // close() without a goodbye.
  void forget(uint64_t id);

  // --- on the I/O thread
  // Whether the action is an event of a communicator, which has been called then.
  bool carry_out(const control::Action& action);
  void wake_all();
  void on_query(int source, const QueryMessage& question);
  // What this rank does on each of them.
  std::vector<std::string> status();
  // CommunicatorEvents::metrics_text() of one of them; empty: none is open.
  std::string metrics();
  // All of them have failed, which the logic says to the others. With the driver's lock held.
  void abort_all(ControlLogic& logic, const Error& error);
  // The same where there is no memory to say it.
  void break_all();

 private:
  // events is null once close() ends: nothing is delivered then. delivering: the I/O thread is in a call of events, and
  // close() waits for its end.
  struct Open {
    CommunicatorEvents* events = nullptr;
    std::shared_ptr<Doorbell> doorbell, p2p_doorbell;  // shared with the flows
    bool delivering = false;
  };

  // Calls the communicator's events without the lock, if it is open.
  void deliver(uint64_t id, const std::function<void(CommunicatorEvents&)>& call);
  std::vector<uint64_t> ids();
  CallState ask(uint64_t id, uint64_t sequence);
  std::string waits_beside(uint64_t id);

  ControlDriver& driver_;
  DataLinks* const links_;
  std::map<uint64_t, Open> open_;  // the driver's lock guards it
};

}  // namespace rondo
