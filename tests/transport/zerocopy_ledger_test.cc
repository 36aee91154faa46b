// Of sends from the caller's memory, what is still held is known, whatever the order of the kernel's notifications.
#include "transport/zerocopy_ledger.h"

#include <doctest/doctest.h>

#include <deque>

#include "tests/support/random.h"

namespace rondo::testing {
namespace {

using How = ZerocopyLedger::How;

// Sends so many calls of 100 bytes.
void send(ZerocopyLedger& ledger, int calls) {
  for (int i = 0; i < calls; ++i) ledger.sent(static_cast<uint64_t>(i) * 100);
}

}  // namespace

TEST_CASE("the oldest pending send decides, and ranges may come merged and out of order") {
  ZerocopyLedger ledger;
  CHECK(ledger.empty());
  send(ledger, 6);
  CHECK(ledger.oldest() == 0);
  CHECK(ledger.completed(2, 3, How::kFromMemory));
  CHECK(ledger.oldest() == 0);
  CHECK(ledger.completed(0, 0, How::kFromMemory));
  CHECK(ledger.oldest() == 100);
  CHECK(ledger.completed(1, 1, How::kFromMemory));
  CHECK(ledger.oldest() == 400);
  CHECK(ledger.completed(4, 5, How::kFromMemory));
  CHECK(ledger.empty());
}

TEST_CASE("numbers wrap at 2^32") {
  for (uint32_t before = 0; before < 4; ++before) {
    CAPTURE(before);
    const uint32_t first = 0u - before;
    ZerocopyLedger ledger(first);
    send(ledger, 4);
    CHECK(ledger.completed(first + 1, first + 3, How::kFromMemory));
    CHECK(ledger.oldest() == 0);
    CHECK(ledger.completed(first, first, How::kFromMemory));
    CHECK(ledger.empty());
  }
}

TEST_CASE("a notification of a send that is not pending is refused, and changes nothing") {
  ZerocopyLedger ledger(10);
  CHECK(!ledger.completed(10, 10, How::kFromMemory));
  send(ledger, 4);
  CHECK(!ledger.completed(9, 10, How::kFromMemory));
  CHECK(!ledger.completed(13, 14, How::kFromMemory));
  CHECK(!ledger.completed(12, 11, How::kFromMemory));
  CHECK(!ledger.completed(0, UINT32_MAX, How::kFromMemory));
  CHECK(ledger.completed(11, 12, How::kFromMemory));
  CHECK(!ledger.completed(12, 13, How::kFromMemory));  // 12 again
  CHECK(!ledger.completed(10, 11, How::kFromMemory));
  CHECK(ledger.oldest() == 0);
  CHECK(ledger.completed(10, 10, How::kFromMemory));
  CHECK(!ledger.completed(10, 10, How::kFromMemory));
  CHECK(ledger.oldest() == 300);
}

TEST_CASE("it is full at its capacity, and has room again once the oldest is done") {
  ZerocopyLedger ledger;
  send(ledger, ZerocopyLedger::kCapacity);
  CHECK(ledger.full());
  CHECK(ledger.completed(1, ZerocopyLedger::kCapacity - 1, How::kFromMemory));
  CHECK(ledger.full());
  CHECK(ledger.completed(0, 0, How::kFromMemory));
  CHECK(ledger.empty());
}

TEST_CASE("copied sends are counted until one is not") {
  ZerocopyLedger ledger;
  send(ledger, 10);
  CHECK(ledger.copied_in_a_row() == 0);
  CHECK(ledger.completed(0, 2, How::kCopied));
  CHECK(ledger.completed(3, 3, How::kCopied));
  CHECK(ledger.copied_in_a_row() == 4);
  CHECK(ledger.completed(4, 4, How::kFromMemory));
  CHECK(ledger.copied_in_a_row() == 0);
  CHECK(ledger.completed(5, 9, How::kCopied));
  CHECK(ledger.copied_in_a_row() == 5);
}

TEST_CASE("random ranges in random order, beside a plain list") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    uint32_t number = static_cast<uint32_t>(0u - random.below(500));
    ZerocopyLedger ledger(number);
    struct Send {
      uint32_t number;
      uint64_t begin;
      bool done;
    };
    std::deque<Send> pending;
    uint64_t position = 0;
    for (int i = 0; i < 2000; ++i) {
      if (!ledger.full() && random.below(2) == 0) {
        ledger.sent(position);
        pending.push_back({number++, position, false});
        position += 1 + random.below(1000);
      } else if (!pending.empty()) {
        size_t begin = random.below(pending.size());
        while (pending[begin].done) begin = (begin + 1) % pending.size();  // the first is not done
        size_t end = begin + 1;
        while (end < pending.size() && !pending[end].done && random.below(3) != 0) ++end;
        REQUIRE(ledger.completed(pending[begin].number, pending[end - 1].number, How::kFromMemory));
        for (size_t at = begin; at < end; ++at) pending[at].done = true;
        while (!pending.empty() && pending.front().done) pending.pop_front();
      }
      REQUIRE(ledger.empty() == pending.empty());
      if (!pending.empty()) REQUIRE(ledger.oldest() == pending.front().begin);
    }
  }
}

}  // namespace rondo::testing
