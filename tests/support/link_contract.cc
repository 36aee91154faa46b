#include "tests/support/link_contract.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "tests/support/random.h"

namespace rondo::testing {
namespace {

// A link counts as stuck after so many passes and so much time without any movement: far beyond the longest simulated
// delay, and beyond the kernel's timers. Over loopback TCP that sends from the caller's memory nothing moved for 205 ms
// at times, with no segment lost: likely a window that had less room than a segment, which is of 64 KiB there.
constexpr int kStuckPasses = 20'000;
constexpr std::chrono::seconds kStuckTime{10};
constexpr std::byte kUntouched{0xee};

std::byte content(uint64_t seed, uint64_t slice, uint32_t at) {
  return static_cast<std::byte>((seed + slice * 131 + at * 7) & 0xff);
}

uint32_t size_of(uint64_t seed, uint64_t slice, uint32_t largest) {
  Random random(seed * 1'000'003 + slice);
  switch (random.below(5)) {
    case 0:
      return 0;
    case 1:
      return static_cast<uint32_t>(random.below(std::min<uint64_t>(64, uint64_t{largest} + 1)));
    case 2:
      return largest;
    default:
      return static_cast<uint32_t>(random.below(uint64_t{largest} + 1));
  }
}

SliceTag tag_of(uint64_t seed, uint64_t slice, uint32_t largest) {
  return {1 + slice / 10, seed ^ (slice / 10), size_of(seed, slice, largest)};
}

// One end: sends its slices and receives the other's, doing at each step what a die says. The first thing found wrong
// stays in trouble().
class End {
 public:
  End(Link& link, const LinkShape& shape, uint64_t out_seed, uint64_t in_seed, uint64_t slices)
      : link_(link), shape_(shape), random_(out_seed * 7919), out_seed_(out_seed), in_seed_(in_seed), slices_(slices) {}

  // True if anything moved.
  bool step() {
    bool moved = link_.pump();
    for (int i = 0; i < 3; ++i) {
      if (random_.chance(60)) moved |= post();
      if (random_.chance(60)) moved |= send();
      if (random_.chance(50)) moved |= receive();
    }
    scribble();
    if (link_.error() != nullptr) fail("error: " + link_.error()->message);
    return moved;
  }
  bool done() const {
    return !trouble_.empty() || (received_ == slices_ && sent_ == slices_ && link_.sent() == slices_);
  }
  const std::string& trouble() const { return trouble_; }

 private:
  void fail(const std::string& what) {
    if (trouble_.empty()) trouble_ = what;
  }

  bool post() {
    const bool room = posted_ - received_ < link_.depth();
    if (room != link_.can_post()) fail("can_post() is not about open landings");
    if (!room || posted_ == slices_) return false;
    SliceTag tag = tag_of(in_seed_, posted_, shape_.slice_bytes);
    tag.at_most = random_.chance(30);
    if (tag.at_most) tag.bytes = static_cast<uint32_t>(random_.between(tag.bytes, shape_.slice_bytes));
    const bool in_slot = random_.chance(40);
    landings_.emplace_back(in_slot ? 0 : tag.bytes + 1, kUntouched);
    link_.post(tag, in_slot ? nullptr : landings_.back().data());
    ++posted_;
    return true;
  }

  bool send() {
    if (sent_ == slices_ || !link_.can_send()) return false;
    const SliceTag tag = tag_of(out_seed_, sent_, shape_.slice_bytes);
    uint64_t number = 0;
    if (random_.chance(50)) {
      const auto room = static_cast<uint32_t>(random_.between(tag.bytes, shape_.slice_bytes));
      std::byte* slot = link_.reserve(room);
      if (link_.reserve(room) != slot) fail("reserving twice gives two slots");
      fill(slot, tag.bytes);
      payloads_.emplace_back();
      number = link_.commit(tag);
    } else {
      payloads_.emplace_back(tag.bytes);
      fill(payloads_.back().data(), tag.bytes);
      number = link_.send(tag, payloads_.back().data());
    }
    ++sent_;
    if (number != sent_) fail("slices are not numbered from 1 on");
    return true;
  }

  void fill(std::byte* memory, uint32_t bytes) const {
    for (uint32_t i = 0; i < bytes; ++i) memory[i] = content(out_seed_, sent_, i);
  }

  // What the link says it needs no more is overwritten at once.
  void scribble() {
    const uint64_t now = link_.sent();
    if (now < freed_ || now > sent_) fail("sent() goes back, or beyond what was sent");
    for (; freed_ < now; ++freed_) {
      std::fill(payloads_.front().begin(), payloads_.front().end(), std::byte{0xdd});
      payloads_.pop_front();
    }
  }

  bool receive() {
    const std::byte* memory = link_.arrived();
    if (memory == nullptr) return false;
    if (received_ == posted_) {
      fail("a slice without a landing has arrived");
      return false;
    }
    std::vector<std::byte>& landing = landings_.front();
    const uint32_t bytes = size_of(in_seed_, received_, shape_.slice_bytes);
    if (!landing.empty() && bytes > 0 && memory != landing.data()) fail("it did not land where it was told to");
    if (!landing.empty() &&
        std::count(landing.begin() + bytes, landing.end(), kUntouched) + bytes != std::ssize(landing))
      fail("it wrote beyond the slice");
    if (link_.arrived_bytes() != bytes) fail("it has arrived with another length");
    for (uint32_t i = 0; i < bytes; ++i) {
      if (memory[i] != content(in_seed_, received_, i))
        return fail("wrong bytes in slice " + std::to_string(received_)), false;
    }
    link_.release();
    landings_.pop_front();
    ++received_;
    return true;
  }

  Link& link_;
  const LinkShape shape_;
  Random random_;
  const uint64_t out_seed_, in_seed_, slices_;
  std::deque<std::vector<std::byte>> payloads_;  // not yet freed
  std::deque<std::vector<std::byte>> landings_;  // not yet released
  uint64_t posted_ = 0;
  uint64_t received_ = 0;
  uint64_t sent_ = 0;
  uint64_t freed_ = 0;
  std::string trouble_;
};

LinkShape random_shape(uint64_t seed) {
  Random random(seed + 77);
  return {static_cast<uint32_t>(2 + random.below(6)), static_cast<uint32_t>(1 + random.below(20'000))};
}

// Calls `step` until it says that all is done; false if nothing has moved for long.
template <typename Step>
bool run_until_done(LinkEnds& ends, Step step) {
  auto last_move = std::chrono::steady_clock::now();
  for (int idle = 0; idle < kStuckPasses || std::chrono::steady_clock::now() - last_move < kStuckTime;) {
    bool moved = false;
    if (step(moved)) return true;
    ends.advance();
    if (moved) last_move = std::chrono::steady_clock::now();
    idle = moved ? 0 : idle + 1;
  }
  return false;
}

void check_traffic(const MakeLink& make, uint64_t seed) {
  const LinkShape shape = random_shape(seed);
  LinkEnds ends = make(shape, seed);
  const uint64_t slices = seed % 10 == 0 ? 3000 : 150;  // far more than the depth
  End first(*ends.side[0], shape, seed, seed + 1'000'000, slices);
  End second(*ends.side[1], shape, seed + 1'000'000, seed, slices);
  const bool done = run_until_done(ends, [&](bool& moved) {
    moved = first.step();
    moved |= second.step();
    return first.done() && second.done();
  });
  CHECK(first.trouble() == "");
  CHECK(second.trouble() == "");
  CHECK(done);
}

// depth() slices can be committed though the peer releases none, and more once it does.
void check_depth(const MakeLink& make, uint64_t seed) {
  const LinkShape shape = random_shape(seed);
  LinkEnds ends = make(shape, seed);
  Link& sender = *ends.side[0];
  Link& receiver = *ends.side[1];
  REQUIRE(sender.depth() == shape.depth);
  const SliceTag tag{1, seed, shape.slice_bytes};
  for (uint32_t i = 0; i < shape.depth; ++i) receiver.post(tag, nullptr);
  CHECK_FALSE(receiver.can_post());
  uint32_t committed = 0;
  const bool all = run_until_done(ends, [&](bool& moved) {
    if (committed < shape.depth && sender.can_send()) {
      std::memset(sender.reserve(tag.bytes), static_cast<int>(committed), tag.bytes);
      sender.commit(tag);
      ++committed;
      moved = true;
    }
    moved |= sender.pump();
    moved |= receiver.pump();
    return committed == shape.depth && receiver.unfilled() == 0;
  });
  CHECK(all);
  for (uint32_t i = 0; i < shape.depth; ++i) {
    const std::byte* memory = receiver.arrived();
    REQUIRE(memory != nullptr);
    if (tag.bytes > 0) CHECK(memory[tag.bytes - 1] == static_cast<std::byte>(i));
    receiver.release();
  }
  CHECK(receiver.arrived() == nullptr);
  CHECK(receiver.can_post());
}

// A slice that is not the one expected: refused before a byte lands, and for good.
void check_refusal(const MakeLink& make, uint64_t seed) {
  const LinkShape shape{4, 3000};
  std::vector<std::byte> payload(3000, std::byte{1}), landing(3000, kUntouched);
  LinkEnds ends = make(shape, seed);
  Link& sender = *ends.side[0];
  Link& receiver = *ends.side[1];
  SliceTag right{5, 6, 2000};
  SliceTag wrong = right;
  if (seed % 3 == 0) wrong.sequence = 4;
  if (seed % 3 == 1) wrong.fingerprint = 7;
  if (seed % 3 == 2) wrong.bytes = seed % 2 == 0 ? 2001 : 1999;
  right.at_most = wrong.bytes >= right.bytes;
  receiver.post(right, nullptr);
  receiver.post(right, landing.data());
  receiver.post(right, nullptr);
  for (const SliceTag& tag : {right, wrong, right}) sender.send(tag, payload.data());
  // With several streams the wrong slice may be seen before the one that it follows.
  int arrived = 0;
  const auto look = [&] {
    if (receiver.arrived() == nullptr) return;
    ++arrived;
    CHECK(receiver.arrived()[1999] == std::byte{1});
    receiver.release();
  };
  CHECK(run_until_done(ends, [&](bool& moved) {
    moved = sender.pump();
    moved |= receiver.pump();
    look();
    return receiver.error() != nullptr;
  }));
  for (int i = 0; i < 200; ++i) {
    ends.advance();
    sender.pump();
    receiver.pump();
    look();
  }
  CHECK(arrived <= 1);
  REQUIRE(receiver.error() != nullptr);
  CHECK(receiver.error()->code == ErrorCode::kMismatch);
  CHECK(receiver.error()->message.find("first peer") != std::string::npos);
  CHECK(std::count(landing.begin(), landing.end(), kUntouched) == 3000);
}

// The peer is gone: what has arrived can be read, then there is an error, which stays.
void check_end(const MakeLink& make, uint64_t seed) {
  const LinkShape shape{4, 3000};
  LinkEnds ends = make(shape, seed);
  Link& receiver = *ends.side[1];
  const SliceTag tag{5, 6, 100};
  std::vector<std::byte> payload(100, std::byte{1});
  for (int i = 0; i < 2; ++i) receiver.post(tag, nullptr);
  ends.side[0]->send(tag, payload.data());
  REQUIRE(run_until_done(ends, [&](bool& moved) {
    moved = ends.side[0]->pump();
    moved |= receiver.pump();
    return receiver.arrived() != nullptr;
  }));
  ends.side[0].reset();
  REQUIRE(run_until_done(ends, [&](bool& moved) {
    moved = receiver.pump();
    return receiver.error() != nullptr;
  }));
  CHECK(receiver.error()->code == ErrorCode::kPeerLost);
  const std::string message = receiver.error()->message;
  REQUIRE(receiver.arrived() != nullptr);
  CHECK(receiver.arrived()[99] == std::byte{1});
  receiver.release();
  for (int i = 0; i < 50; ++i) {
    receiver.pump();
    CHECK(receiver.arrived() == nullptr);
    REQUIRE(receiver.error() != nullptr);
    CHECK(receiver.error()->message == message);
  }
}

// A sender that pumps no more has its memory back: whatever it becomes, what arrives is what was sent.
void check_memory(const MakeLink& make, uint64_t seed) {
  const LinkShape shape{4, 30'000};
  LinkEnds ends = make(shape, seed);
  Link& sender = *ends.side[0];
  Link& receiver = *ends.side[1];
  const SliceTag tag{5, 6, static_cast<uint32_t>(seed % 2 == 0 ? 30'000 : 300)};
  std::vector<std::byte> payload(tag.bytes, std::byte{1});
  for (int i = 0; i < 4; ++i) receiver.post(tag, nullptr);
  for (int i = 0; i < 4; ++i) sender.send(tag, payload.data());
  for (uint64_t i = 0; i <= seed % 5; ++i) {
    sender.pump();
    ends.advance();
    if (seed % 3 == 0) receiver.pump();
  }
  std::fill(payload.begin(), payload.end(), std::byte{0xdd});
  for (int i = 0; i < 200; ++i) {
    ends.advance();
    receiver.pump();
    const std::byte* memory = receiver.arrived();
    if (memory == nullptr) continue;
    CHECK(std::count(memory, memory + tag.bytes, std::byte{1}) == tag.bytes);
    receiver.release();
  }
}

}  // namespace

void check_link_contract(const MakeLink& make, uint64_t first_seed, uint64_t seeds) {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    check_traffic(make, seed);
    check_depth(make, seed);
    check_refusal(make, seed);
    check_end(make, seed);
    check_memory(make, seed);
  }
}

void check_link_between_threads(const MakeLink& make, uint64_t first_seed, uint64_t seeds) {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    const LinkShape shape = random_shape(seed);
    LinkEnds ends = make(shape, seed);
    End first(*ends.side[0], shape, seed, seed + 1'000'000, 1000);
    End second(*ends.side[1], shape, seed + 1'000'000, seed, 1000);
    // Not of the whole: on a busy machine the two threads take turns of many milliseconds.
    using Clock = std::chrono::steady_clock;
    std::atomic<Clock::rep> last_move = Clock::now().time_since_epoch().count();
    const auto drive = [&last_move](End& end) {
      while (!end.done()) {
        const Clock::rep now = Clock::now().time_since_epoch().count();
        if (end.step()) {
          last_move = now;
        } else if (now - last_move > Clock::duration(kStuckTime).count()) {
          return;
        } else {
          std::this_thread::yield();
        }
      }
    };
    std::thread other([&] { drive(second); });
    drive(first);
    other.join();
    CHECK(first.trouble() == "");
    CHECK(second.trouble() == "");
    CHECK(first.done());
    CHECK(second.done());
  }
}

}  // namespace rondo::testing
