#include "transport/control/control_mesh.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace rondo {
namespace {

int circle_distance(int one, int other, int world) {
  const int forward = (other - one + world) % world;
  return std::min(forward, world - forward);
}

}  // namespace

ControlMesh::ControlMesh(asio::io_context& io, int rank, int world, OnMessage on_message, OnEnd on_end, OnSign on_sign)
    : io_(io),
      rank_(rank),
      world_(world),
      on_message_(std::move(on_message)),
      on_end_(std::move(on_end)),
      on_sign_(std::move(on_sign)),
      map_(world) {}

void ControlMesh::add(int peer, SecuredSocket socket) {
  next_.clear();
  connections_[peer] = std::make_unique<ControlConnection>(
      io_, std::move(socket), [this, peer](const ControlFrame& frame) { on_frame(peer, frame); },
      [this, peer](const std::string& why) {
        if (dropped_.erase(peer) == 0) on_end_(peer, why);
      });
}

bool ControlMesh::remove(int peer) {
  next_.clear();
  return connections_.erase(peer) != 0;
}

void ControlMesh::finish(int peer) {
  if (const auto found = connections_.find(peer); found != connections_.end()) found->second->finish();
}

void ControlMesh::finish_all() {
  for (const auto& [peer, connection] : connections_) connection->finish();
}

bool ControlMesh::drop(int peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return false;
  found->second->finish();
  dropped_[peer] = std::move(found->second);
  next_.clear();
  connections_.erase(found);
  return true;
}

void ControlMesh::send(int destination, const ControlBody& body) {
  forward({static_cast<uint32_t>(rank_), static_cast<uint32_t>(destination), body});
}

void ControlMesh::on_frame(int peer, const ControlFrame& frame) {
  if (dropped_.count(peer)) return;
  on_sign_(peer);
  const auto world = static_cast<uint32_t>(world_);
  const auto own = static_cast<uint32_t>(rank_);
  // What this rank has sent may come back where others do not yet know who is gone.
  const bool honest = frame.source < world && frame.destination < world && (frame.source != own || frame.hops > 0) &&
                      (world_ > kMaxFullMesh || frame.source == static_cast<uint32_t>(peer));
  if (!honest) return on_end_(peer, "it sent a control message in another rank's name");
  if (frame.destination != own) {
    ControlFrame passed = frame;
    if (++passed.hops <= kMaxHops) forward(passed);
    return;
  }
  on_message_(static_cast<int>(frame.source), frame.body);
}

void ControlMesh::forget(int peer) {
  map_.forget(peer);
  some_gone_ = true;
  next_.clear();
}

void ControlMesh::cut(int one, int other) {
  map_.cut(one, other);
  some_gone_ = true;
  next_.clear();
}

int ControlMesh::next_hop(int destination) {
  if (connections_.count(destination)) return destination;
  if (world_ <= kMaxFullMesh) return -1;
  if (some_gone_) {
    if (next_.empty()) {
      std::vector<int> connected;
      for (const auto& [peer, connection] : connections_) connected.push_back(peer);
      next_ = map_.next_hops(rank_, connected);
    }
    return next_[static_cast<size_t>(destination)];
  }
  int best = -1;
  int nearest = circle_distance(rank_, destination, world_);
  for (const auto& [peer, connection] : connections_) {
    const int distance = circle_distance(peer, destination, world_);
    if (distance >= nearest) continue;
    nearest = distance;
    best = peer;
  }
  return best;
}

void ControlMesh::forward(const ControlFrame& frame) {
  const auto found = connections_.find(next_hop(static_cast<int>(frame.destination)));
  if (found != connections_.end()) found->second->send(frame);
}

}  // namespace rondo
