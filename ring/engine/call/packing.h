#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rondo {

// Tensors that travel as one: gathered into contiguous memory when their operation begins, and scattered from there
// when it has succeeded. By the holder of the lease; operations of a communicator run one after the other, so that all
// of them can use the same memory.
struct Packing {
  struct Piece {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    size_t bytes = 0;
  };
  std::vector<Piece> pieces;  // one behind the other
  std::byte* memory = nullptr;

  void pack() const {
    std::byte* to = memory;
    for (const Piece& piece : pieces) {
      to = std::copy_n(piece.input, piece.bytes, to);
    }
  }
  void unpack() const {
    const std::byte* from = memory;
    for (const Piece& piece : pieces) {
      std::copy_n(from, piece.bytes, piece.output);
      from += piece.bytes;
    }
  }
};

}  // namespace rondo
