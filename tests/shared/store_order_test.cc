// A rank enters an access while an owner closes its buffers: one at least sees the other, by two sequentially
// consistent orderings of a board, which the thread sanitizer cannot judge. With either weakened both miss each other
// now and then, on processors that keep stores back (x86 does), which shows that the test can tell.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "ring/engine/island/post_board.h"

namespace rondo::testing {
namespace {

struct WeakEnter : BoardOrders {
  static constexpr std::memory_order kEnter = std::memory_order_relaxed;
};
struct WeakClose : BoardOrders {
  static constexpr std::memory_order kClose = std::memory_order_relaxed;
};

constexpr uint32_t kRounds = 150'000;
// Until one is missed: on a busy machine both sides seldom run at a time.
constexpr uint32_t kMostRounds = 40 * kRounds;

struct alignas(128) Line {
  std::byte bytes[128] = {};
};

// Rank 0 enters an access to the buffers of rank 1, which closes them, at about the same time.
template <typename Orders>
class Race {
 public:
  using PostBoard = BasicPostBoard<Orders>;

  // Rounds in which neither saw the other, of kRounds, or up to the first of kMostRounds.
  uint32_t missed(bool one_is_enough) {
    uint32_t missed = 0;
    std::thread owner([this] {
      PostBoard board(places(), 1, false);
      for (uint32_t round = 1; meet(round * 2 - 1); ++round) {
        delay(round / kDelays % kDelays);
        board.close();
        left_alone_ = board.access(0) % 2 == 0;
        meet(round * 2);
      }
    });
    PostBoard board(places(), 0, false);
    uint32_t round = 1;
    for (; one_is_enough ? missed == 0 && round <= kMostRounds : round <= kRounds; ++round) {
      meet(round * 2 - 1);
      delay(round % kDelays);
      board.enter();
      const bool open = !board.closed(1);
      meet(round * 2);
      if (open && left_alone_) ++missed;
      board.leave();
      for (auto& memory : memory_) std::fill_n(memory.get() + kLine, 2, Line{});
    }
    over_ = true;
    meet(round * 2 - 1);
    owner.join();
    return missed;
  }

 private:
  static constexpr size_t kLine = kCellBytes / sizeof(Line);  // of the access; the next one of the close

  std::vector<std::byte*> places() const { return {memory_[0][0].bytes, memory_[1][0].bytes}; }

  // One of the two leaves meet() later, by the time that a cache line takes between their cores: in some rounds delays
  // make up for it.
  static constexpr uint32_t kDelays = 64;
  static void delay(uint32_t steps) {
    for (uint32_t step = 0; step < steps; ++step) std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  // Both have come so far. False: it is over.
  bool meet(uint32_t number) {
    const uint32_t mine = arrived_.fetch_add(1) + 1;
    for (uint32_t spins = 0; arrived_.load() < 2 * number; ++spins) {
      if (mine < 2 * number && spins % 4096 == 4095) std::this_thread::yield();
    }
    return !over_;
  }

  std::unique_ptr<Line[]> memory_[2] = {std::make_unique<Line[]>(PostBoard::kHeadBytes / sizeof(Line)),
                                        std::make_unique<Line[]>(PostBoard::kHeadBytes / sizeof(Line))};
  alignas(128) std::atomic<uint32_t> arrived_{0};
  alignas(128) bool left_alone_ = false;
  std::atomic<bool> over_{false};
};

}  // namespace

TEST_CASE("an access and a close do not miss each other") { CHECK(Race<BoardOrders>().missed(false) == 0); }

TEST_CASE("a weakened access or close is missed") {
  if (std::thread::hardware_concurrency() < 2) return;
  CHECK(Race<WeakEnter>().missed(true) > 0);
  CHECK(Race<WeakClose>().missed(true) > 0);
}

}  // namespace rondo::testing
