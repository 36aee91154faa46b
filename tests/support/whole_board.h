#pragma once

#include <cstddef>
#include <vector>

namespace rondo::testing {

enum class Rings : bool { kNone, kAll };

// A post board of which all parts of a rank lie in one memory, one behind the other.
template <typename Board>
constexpr size_t whole_board_bytes(Rings rings) {
  using Part = typename Board::Part;
  return Board::kHeadBytes + Board::bytes_of(Part::kShortSlots) + Board::bytes_of(Part::kLongSlots) +
         (rings == Rings::kAll ? Board::bytes_of(Part::kRing) : 0);
}

template <typename Board>
Board whole_board(const std::vector<std::byte*>& memory, int rank, Rings rings) {
  using Part = typename Board::Part;
  Board board(memory, rank, rings == Rings::kAll);
  for (size_t of = 0; of < memory.size(); ++of) {
    std::byte* begin = memory[of] + Board::kHeadBytes;
    for (const Part part : {Part::kShortSlots, Part::kLongSlots, Part::kRing}) {
      if (part != Part::kRing || rings == Rings::kAll) board.lay(part, static_cast<int>(of), begin);
      begin += Board::bytes_of(part);
    }
  }
  return board;
}

}  // namespace rondo::testing
