#include "ring/engine/p2p/pool.h"

#include <bit>
#include <new>
#include <utility>

namespace rondo {
namespace {

// The most free memory that is kept: what a burst of 16 messages of 64 KiB needs. More goes back to the heap.
constexpr uint64_t kKeepBytes = 1 << 20;

}  // namespace

P2pPool::~P2pPool() {
  for (P2pMessage& node : nodes_) delete[] node.data;
  for (Block* block : free_) {
    while (block != nullptr) delete[] reinterpret_cast<std::byte*>(std::exchange(block, block->next));
  }
}

// Both allocations come before the first change: if one throws, nothing has happened.
P2pMessage* P2pPool::take(const P2pEnvelope& envelope, int peer) {
  if (free_nodes_ == nullptr) free_nodes_ = &nodes_.emplace_back();
  const bool has_data = envelope.kind == P2pKind::kEager && envelope.bytes > 0;
  std::byte* const data = has_data ? take_block(p2p_charge(envelope.bytes)) : nullptr;
  P2pMessage* const message = std::exchange(free_nodes_, free_nodes_->next);
  *message = P2pMessage{};
  message->envelope = envelope;
  message->peer = peer;
  message->data = data;
  ++messages_;
  return message;
}

void P2pPool::give(P2pMessage* message) noexcept {
  if (message->data) give_block(std::exchange(message->data, nullptr), p2p_charge(message->envelope.bytes));
  message->next = std::exchange(free_nodes_, message);
  --messages_;
}

std::byte* P2pPool::take_block(uint64_t bytes) {
  Block*& first = free_[std::countr_zero(bytes)];
  std::byte* memory = nullptr;
  if (first == nullptr) {
    memory = new std::byte[bytes];
  } else {
    memory = reinterpret_cast<std::byte*>(std::exchange(first, first->next));
    kept_bytes_ -= bytes;
  }
  used_bytes_ += bytes;
  return memory;
}

// A free block is linked through its own memory.
void P2pPool::give_block(std::byte* memory, uint64_t bytes) noexcept {
  used_bytes_ -= bytes;
  if (kept_bytes_ + bytes > kKeepBytes) {
    delete[] memory;
    return;
  }
  Block*& first = free_[std::countr_zero(bytes)];
  first = ::new (memory) Block{first};
  kept_bytes_ += bytes;
}

}  // namespace rondo
