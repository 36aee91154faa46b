#pragma once

#include <cstddef>
#include <vector>

namespace rondo::testing {

// A post board of which all parts of a rank lie in one memory, one behind the other.
template <typename Board>
constexpr size_t whole_board_bytes(size_t ring_bytes) {
  return Board::kHeadBytes + Board::kSlotsBytes + ring_bytes;
}

template <typename Board>
Board whole_board(const std::vector<std::byte*>& memory, int rank, size_t ring_bytes) {
  Board board(memory, rank, ring_bytes);
  for (size_t of = 0; of < memory.size(); ++of) {
    board.lay_slots(static_cast<int>(of), memory[of] + Board::kHeadBytes);
    board.lay_ring(static_cast<int>(of), memory[of] + Board::kHeadBytes + Board::kSlotsBytes);
  }
  return board;
}

}  // namespace rondo::testing
