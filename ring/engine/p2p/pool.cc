#include "ring/engine/p2p/pool.h"

#include <bit>

namespace rondo {
namespace {

// Free memory kept: what a burst of 16 messages of the default eager limit needs. More goes back to the heap.
constexpr uint64_t kKeepBytes = 1 << 20;

}  // namespace

uint64_t p2p_charge(uint64_t bytes) {
  if (bytes == 0) return 0;
  return bytes <= 64 ? 64 : std::bit_ceil(bytes);
}

P2pPool::~P2pPool() {
  for (P2pMessage& node : nodes_) delete[] node.data;
  for (auto& blocks : free_) {
    for (std::byte* block : blocks) delete[] block;
  }
}

P2pMessage* P2pPool::take(const P2pEnvelope& envelope, int peer) {
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
    free_nodes_.reserve(nodes_.size());
    free_nodes_.push_back(&nodes_.back());
  }
  P2pMessage* message = free_nodes_.back();
  free_nodes_.pop_back();
  *message = P2pMessage{};
  message->envelope = envelope;
  message->peer = peer;
  ++messages_;
  if (envelope.kind != P2pKind::kEager || envelope.bytes == 0) return message;

  const uint64_t charge = p2p_charge(envelope.bytes);
  auto& blocks = free_[std::countr_zero(charge)];
  if (blocks.empty()) {
    message->data = new std::byte[charge];
  } else {
    message->data = blocks.back();
    blocks.pop_back();
    kept_bytes_ -= charge;
  }
  used_bytes_ += charge;
  return message;
}

void P2pPool::give(P2pMessage* message) {
  if (message->data) {
    const uint64_t charge = p2p_charge(message->envelope.bytes);
    used_bytes_ -= charge;
    if (kept_bytes_ + charge <= kKeepBytes) {
      free_[std::countr_zero(charge)].push_back(message->data);
      kept_bytes_ += charge;
    } else {
      delete[] message->data;
    }
    message->data = nullptr;
  }
  --messages_;
  free_nodes_.push_back(message);
}

}  // namespace rondo
