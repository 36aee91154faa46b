#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rondo/config.h"
#include "transport/control/pending_links.h"
#include "transport/hello/dial.h"
#include "transport/rendezvous/peer_card.h"

namespace rondo {

// The dials of one rank: to its neighbors of the control plane, for data links, and knocks at listeners. Each ends
// by its handler; those that are forgotten end without. On the I/O thread.
class PeerDialer {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using Done = std::function<void(DialResult)>;

  struct Settings {
    int rank = 0;
    int world = 1;
    std::string job_id;  // bounded
    Config config;
    Authenticator auth;
  };
  PeerDialer(asio::io_context& io, Settings settings) : io_(io), settings_(std::move(settings)) {}

  // Before the first dial.
  void know(Roster roster) { roster_ = std::move(roster); }
  const std::optional<Roster>& roster() const { return roster_; }

  void dial_control(int peer, Deadline deadline, Done done);
  // Only finds out whether anything listens there. Nothing while a knock at that peer is under way.
  void knock(int peer, Deadline deadline, Done done);
  // All connections of the link, within the suspicion and twice the handshake's time; `done` for each, with its index.
  void dial_link(const LinkName& name, const std::function<void(uint32_t index, DialResult)>& done);

  // What has come of the dials to a neighbor that is not connected, with the addresses. accepted: it took the last
  // connection, and has not answered.
  struct Missing {
    std::string why;
    bool accepted = false;
  };
  Missing why_missing(int peer) const;

  // Dials that are forgotten end without a call of their handlers.
  void forget_knock(int peer) { knocks_.erase(peer); }
  void forget_starts();
  void forget_link(const LinkName& name);
  void forget_communicator(uint64_t communicator);
  void forget_links() { links_.clear(); }

 private:
  Hello hello_to(int peer, Role role) const;
  DialOrder order_to(int peer, Deadline deadline) const;
  std::string addresses_of(int rank) const;

  asio::io_context& io_;
  const Settings settings_;
  // Empty before know(): no hello can be judged then (ControlPlane::judge()).
  std::optional<Roster> roster_;
  std::map<int, std::unique_ptr<Dial>> controls_, knocks_;
  std::map<int, Missing> last_;  // of those that have ended
  std::map<std::pair<LinkName, uint32_t>, std::unique_ptr<Dial>> links_;
};

}  // namespace rondo
