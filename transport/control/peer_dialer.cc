#include "transport/control/peer_dialer.h"

#include <fmt/format.h>

#include "transport/tcp/socket_options.h"

namespace rondo {

using std::chrono::milliseconds;

// A Dial moves its handler out before it calls it, so the handler may erase the Dial that it belongs to.
void PeerDialer::dial_control(int peer, Deadline deadline, Done done) {
  DialOrder order = order_to(peer, deadline);
  order.hello = hello_to(peer, Role::kControl);
  controls_[peer] = std::make_unique<Dial>(io_, std::move(order), [this, peer, done](DialResult result) {
    last_[peer] = {result.error.message, controls_.at(peer)->accepted()};
    controls_.erase(peer);
    done(std::move(result));
  });
}

void PeerDialer::knock(int peer, Deadline deadline, Done done) {
  if (knocks_.count(peer)) return;
  knocks_[peer] = std::make_unique<Dial>(io_, order_to(peer, deadline), [this, peer, done](DialResult result) {
    last_[peer] = {result.error.message};
    knocks_.erase(peer);
    done(std::move(result));
  });
}

void PeerDialer::dial_link(const LinkName& name, const std::function<void(uint32_t, DialResult)>& done) {
  const bool data = name.kind == LinkKind::kData;
  const Config& config = settings_.config;
  const uint32_t connections = data ? config.connections : 1;
  // A peer that stands still for less than the suspicion answers the attempt after it.
  const auto deadline =
      std::chrono::steady_clock::now() + milliseconds(config.suspicion_ms + 2 * config.handshake_timeout_ms);
  for (uint32_t index = 0; index < connections; ++index) {
    DialOrder order = order_to(name.peer, deadline);
    Hello hello = hello_to(name.peer, data ? Role::kData : Role::kStream);
    hello.communicator = name.communicator;
    hello.connection = static_cast<uint16_t>(index);
    hello.connections = static_cast<uint16_t>(connections);
    order.hello = std::move(hello);
    const std::pair key(name, index);
    links_[key] = std::make_unique<Dial>(io_, std::move(order), [this, key, done](DialResult result) {
      links_.erase(key);
      done(key.second, std::move(result));
    });
  }
}

// Lower ranks are dialed by this one, so the dial under way says most. Higher ones dial this rank, and only a knock
// knows whether anything listens there.
PeerDialer::Missing PeerDialer::why_missing(int peer) const {
  const auto& dials = peer < settings_.rank ? controls_ : knocks_;
  const auto last = last_.find(peer);
  Missing missing = last == last_.end() ? Missing{} : last->second;
  const auto dial = dials.find(peer);
  if (dial != dials.end() && (peer < settings_.rank || last == last_.end())) {
    missing = {dial->second->words(), dial->second->accepted()};
  }
  if (peer < settings_.rank) return missing;
  // Higher ranks dial this one.
  return {fmt::format("rank {} ({}) at {} has not connected to rank {} at {}{}", peer, roster_->name(peer),
                      addresses_of(peer), settings_.rank, addresses_of(settings_.rank),
                      missing.why.empty() ? ", though its host answers" : " (" + missing.why + ")"),
          false};
}

std::string PeerDialer::addresses_of(int rank) const {
  std::string text;
  for (const Endpoint& endpoint : roster_->card(rank).endpoints) {
    text += (text.empty() ? "" : ", ") + to_string(endpoint);
  }
  return text;
}

void PeerDialer::forget_starts() {
  controls_.clear();
  knocks_.clear();
}

void PeerDialer::forget_link(const LinkName& name) {
  std::erase_if(links_, [&](const auto& entry) { return entry.first.first == name; });
}

void PeerDialer::forget_communicator(uint64_t communicator) {
  std::erase_if(links_, [&](const auto& entry) { return entry.first.first.communicator == communicator; });
}

// Nonce and proof are made by the handshake.
Hello PeerDialer::hello_to(int peer, Role role) const {
  Hello hello;
  hello.role = role;
  hello.rank = static_cast<uint32_t>(settings_.rank);
  hello.destination = static_cast<uint32_t>(peer);
  hello.world = static_cast<uint32_t>(settings_.world);
  hello.shared_hash = settings_.config.shared_hash();
  hello.session = roster_->session();
  hello.sealed = settings_.config.encrypt;
  hello.job_id = settings_.job_id;
  return hello;
}

// Without a hello it is a knock.
DialOrder PeerDialer::order_to(int peer, Deadline deadline) const {
  DialOrder order;
  order.peer = fmt::format("rank {} ({})", peer, roster_->name(peer));
  order.endpoints = roster_->card(peer).endpoints;
  order.auth = settings_.auth;
  order.tuning = tuning_of(settings_.config);
  order.deadline = deadline;
  order.attempt = milliseconds(settings_.config.handshake_timeout_ms);
  return order;
}

}  // namespace rondo
