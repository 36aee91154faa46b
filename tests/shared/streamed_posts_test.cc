// Posts that are written past the caches (streamed stores), seen whole by each rank that sees their flag: two ranks as
// threads over one board, with real streamed stores, which sanitizers replace. Every flag but the last of a post is a
// plain store, so nothing but the copy's own fence orders it behind the data.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cross_copy.h"
#include "ring/engine/island/post_board.h"
#include "ring/plan/layout.h"
#include "tests/support/whole_board.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kRounds = 4'000;
constexpr size_t kPiece = 16 * 1024;
constexpr size_t kBytes = kPostBytes;

struct alignas(128) Line {
  std::byte bytes[128] = {};
};

class Pair {
 public:
  // Pieces, on both ranks, that were not as their flag said.
  uint64_t wrong_pieces() {
    uint64_t wrong[2] = {0, 0};
    std::thread other([&] { wrong[1] = run(1); });
    wrong[0] = run(0);
    other.join();
    return wrong[0] + wrong[1];
  }

 private:
  static uint64_t word(int rank, uint64_t round) { return round * 2 + static_cast<uint64_t>(rank); }

  uint64_t run(int rank) {
    PostBoard board = whole_board<PostBoard>({memory_[0][0].bytes, memory_[1][0].bytes}, rank, Rings::kAll);
    std::vector<uint64_t> data(kBytes / sizeof(uint64_t));
    uint64_t wrong = 0;
    for (uint64_t round = 1; round <= kRounds; ++round) {
      std::fill(data.begin(), data.end(), word(rank, round));
      const size_t bytes[] = {kBytes, kBytes};
      while (board.make_room().sight != Sight::kThere) std::this_thread::yield();
      std::byte* place =
          board.begin(round, bytes, round % 2 == 0 ? PostBoard::Flow::kAllWays : PostBoard::Flow::kOneWay);
      for (size_t at = 0; at < kBytes; at += kPiece) {
        cross_copy(place + at, reinterpret_cast<const std::byte*>(data.data()) + at, kPiece, Stores::kStreamed);
        board.publish(static_cast<uint32_t>(at + kPiece), at + kPiece == kBytes);
      }
      wrong += read(board, 1 - rank, round);
    }
    return wrong;
  }

  // The newest piece first: its stores are the youngest.
  static uint64_t read(const PostBoard& board, int other, uint64_t round) {
    uint64_t wrong = 0;
    size_t seen = 0;
    for (uint32_t spins = 1; seen < kBytes; ++spins) {
      const PostBoard::Look look = board.look(other);
      if (look.sight == Sight::kThere && look.ready > seen) {
        for (size_t at = look.ready; at > seen; at -= sizeof(uint64_t)) {
          uint64_t value = 0;
          std::memcpy(&value, board.payload_of(other, kBytes) + at - sizeof value, sizeof value);
          if (value == word(other, round)) continue;
          ++wrong;
          break;
        }
        seen = look.ready;
      }
      if (spins % 4096 == 0) std::this_thread::yield();
    }
    return wrong;
  }

  std::unique_ptr<Line[]> memory_[2] = {
      std::make_unique<Line[]>(whole_board_bytes<PostBoard>(Rings::kAll) / sizeof(Line)),
      std::make_unique<Line[]>(whole_board_bytes<PostBoard>(Rings::kAll) / sizeof(Line))};
};

}  // namespace

TEST_CASE("a streamed post is whole when its flag is seen") { CHECK(Pair().wrong_pieces() == 0); }

}  // namespace rondo::testing
