// A board of posts whose areas go from hand to hand: what a rank posts is what the others read, however far it is ahead
// of them and whichever way the posts of a round go; where all post, a rank posts where another has before; ranks
// that make different calls see each other's fingerprints in every round; and posts that are written past the caches
// (streamed stores) are seen whole.
#include "ring/engine/island/post_board.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cross_copy.h"
#include "ring/plan/layout.h"
#include "tests/support/random.h"
#include "tests/support/whole_board.h"

namespace rondo::testing {
namespace {

struct alignas(128) Line {
  std::byte bytes[128] = {};
};

// The boards of all ranks, over the same memory.
class Boards {
 public:
  Boards(int world, Rings rings) : bytes_(whole_board_bytes<PostBoard>(rings)) {
    std::vector<std::byte*> places;
    for (int rank = 0; rank < world; ++rank) {
      memory_.push_back(std::make_unique<Line[]>(bytes_ / sizeof(Line)));
      places.push_back(memory_.back()[0].bytes);
    }
    for (int rank = 0; rank < world; ++rank) boards_.push_back(whole_board<PostBoard>(places, rank, rings));
  }
  PostBoard& of(int rank) { return boards_[static_cast<size_t>(rank)]; }
  // Whether that is memory of one rank.
  bool hold(const std::byte* place, size_t bytes) const {
    return std::any_of(memory_.begin(), memory_.end(), [&](const auto& memory) {
      return place >= memory[0].bytes && place + bytes <= memory[0].bytes + bytes_;
    });
  }

 private:
  const size_t bytes_;
  std::vector<std::unique_ptr<Line[]>> memory_;
  std::vector<PostBoard> boards_;
};

std::byte content(int rank, uint64_t round, size_t at) {
  return static_cast<std::byte>(static_cast<uint64_t>(rank) * 91 + round * 37 + at * 11 + at / 256);
}

struct Round {
  PostBoard::Flow flow;
  std::vector<size_t> bytes;  // by rank
  std::vector<bool> reads;    // whether a rank waits for the others' posts
};

Round make_round(Random& random, int world) {
  constexpr size_t kSizes[] = {0, 1, 112, 113, 1000, 4096, 4097, 20'000, 65'535, 65'536};
  const size_t bytes = kSizes[random.below(std::size(kSizes))];
  Round round{random.chance(50) ? PostBoard::Flow::kAllWays : PostBoard::Flow::kOneWay, {}, {}};
  for (int rank = 0; rank < world; ++rank) {
    const bool one_way = round.flow == PostBoard::Flow::kOneWay;
    round.bytes.push_back(one_way && rank == 0 ? 0 : bytes);
    round.reads.push_back(!one_way || rank == 0);
  }
  return round;
}

// One rank in its turn: posts, and reads the others' posts of that round piecemeal.
class Member {
 public:
  Member(Boards& boards, int rank) : boards_(boards), board_(boards.of(rank)), rank_(rank) {}

  uint64_t round() const { return round_; }
  // True: something moved. Whatever it reads is compared.
  bool step(const std::vector<Round>& rounds, Random& random) {
    if (round_ == rounds.size()) return false;
    const Round& round = rounds[round_];
    if (!posted_) return post(round);
    for (int from = 0; from < static_cast<int>(round.bytes.size()); ++from) {
      if (from == rank_ || seen_[static_cast<size_t>(from)] || !round.reads[static_cast<size_t>(rank_)]) continue;
      const PostBoard::Look look = board_.look(from);
      REQUIRE(look.sight != Sight::kCorrupt);
      if (look.sight == Sight::kNothing || random.chance(30)) return false;
      compare(round, from, look);
      seen_[static_cast<size_t>(from)] = true;
      return true;
    }
    if (round.reads[static_cast<size_t>(rank_)]) board_.all_seen();
    ++round_;
    posted_ = false;
    return true;
  }

 private:
  bool post(const Round& round) {
    const PostBoard::Room room = board_.make_room();
    REQUIRE(room.sight != Sight::kCorrupt);
    if (room.sight == Sight::kNothing) return false;
    const size_t bytes = round.bytes[static_cast<size_t>(rank_)];
    std::byte* const place = board_.begin(round_, round.bytes, round.flow);
    REQUIRE(boards_.hold(place, bytes));
    for (size_t at = 0; at < bytes; ++at) place[at] = content(rank_, round_, at);
    board_.publish(static_cast<uint32_t>(bytes), true);
    seen_.assign(round.bytes.size(), false);
    return posted_ = true;
  }
  void compare(const Round& round, int from, const PostBoard::Look& look) const {
    const size_t bytes = round.bytes[static_cast<size_t>(from)];
    REQUIRE(look.fingerprint == round_);
    REQUIRE(look.ready == bytes);
    const std::byte* const payload = board_.payload_of(from, bytes);
    size_t wrong = 0;
    for (size_t at = 0; at < bytes; ++at) wrong += payload[at] != content(from, round_, at);
    REQUIRE(wrong == 0);
  }

  const Boards& boards_;
  PostBoard& board_;
  const int rank_;
  uint64_t round_ = 0;
  bool posted_ = false;
  std::vector<bool> seen_;
};

}  // namespace

TEST_CASE("what is posted is what is read, all ways and one way, by ranks that are ahead of each other") {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const int world = 2 + static_cast<int>(seed % 4);
    Boards boards(world, seed % 3 == 0 ? Rings::kNone : Rings::kAll);
    std::vector<Member> members;
    for (int rank = 0; rank < world; ++rank) members.emplace_back(boards, rank);
    std::vector<Round> rounds;  // the rings come round once and more
    for (int i = 0; i < 500; ++i) rounds.push_back(make_round(random, world));
    const auto done = [&](const Member& member) { return member.round() == rounds.size(); };
    uint64_t ahead = 0;
    for (int idle = 0; !std::all_of(members.begin(), members.end(), done); ++idle) {
      REQUIRE(idle < 10'000);
      Member& member = members[random.below(members.size())];
      // In runs, so that some get as far ahead as they may.
      for (uint64_t i = random.below(60); i > 0 && member.step(rounds, random); --i) idle = 0;
      const auto [least, most] = std::minmax_element(
          members.begin(), members.end(), [](const Member& a, const Member& b) { return a.round() < b.round(); });
      ahead = std::max(ahead, most->round() - least->round());
    }
    CHECK(ahead > 1);
    CHECK(ahead <= PostBoard::kDepth);
  }
}

TEST_CASE("where all post, a rank posts where another has before, whatever comes in between; one way it keeps places") {
  for (const auto flow : {PostBoard::Flow::kAllWays, PostBoard::Flow::kOneWay}) {
    Random random(flow == PostBoard::Flow::kAllWays ? 1 : 2);
    Boards boards(3, Rings::kNone);
    std::map<size_t, std::vector<std::vector<std::byte*>>> places;  // by bytes and rank: those of its posts
    for (int round = 1; round <= 400; ++round) {
      const size_t bytes = std::vector<size_t>{8, 1000, 20'000}[random.below(3)];
      places[bytes].resize(3);
      for (const int rank : {0, 1, 2}) {
        REQUIRE(boards.of(rank).make_room().sight == Sight::kThere);
        places[bytes][static_cast<size_t>(rank)].push_back(
            boards.of(rank).begin(1, std::vector<size_t>(3, bytes), flow));
        boards.of(rank).publish(static_cast<uint32_t>(bytes), true);
      }
      for (const int rank : {0, 1, 2}) boards.of(rank).all_seen();
    }
    for (const size_t bytes : {size_t{1000}, size_t{20'000}}) {
      CAPTURE(bytes);
      const auto& of = places[bytes];
      REQUIRE(of[0].size() > 4 * PostBoard::kDepth);
      for (size_t i = PostBoard::kDepth; i < of[0].size(); ++i) {
        CHECK(of[0][i] == of[flow == PostBoard::Flow::kAllWays ? 1 : 0][i - PostBoard::kDepth]);
      }
    }
  }
}

TEST_CASE("ranks that make different calls see each other's, in whichever hands the areas are") {
  for (uint64_t round = 1; round <= 3 * PostBoard::kDepth; ++round) {
    CAPTURE(round);
    Boards boards(2, Rings::kAll);
    const std::vector<size_t> bytes{5000, 5000};
    for (uint64_t i = 1; i <= round; ++i) {
      const bool differ = i == round;
      for (const int rank : {0, 1}) {
        REQUIRE(boards.of(rank).make_room().sight == Sight::kThere);
        const bool other = differ && rank == 1;
        boards.of(rank).begin(other ? 7 : 3, bytes, other ? PostBoard::Flow::kOneWay : PostBoard::Flow::kAllWays);
        boards.of(rank).publish(5000, true);
      }
      for (const int rank : {0, 1}) {
        const PostBoard::Look look = boards.of(rank).look(1 - rank);
        REQUIRE(look.sight == Sight::kThere);
        CHECK(look.fingerprint == (differ && rank == 0 ? 7 : 3));
        boards.of(rank).all_seen();
      }
    }
  }
}

namespace {

constexpr uint64_t kRounds = 4'000;
constexpr size_t kPiece = 16 * 1024;
constexpr size_t kBytes = kPostBytes;

uint64_t word(int rank, uint64_t round) { return round * 2 + static_cast<uint64_t>(rank); }

// The newest piece first: its stores are the youngest.
uint64_t wrong_in_post(const PostBoard& board, int other, uint64_t round) {
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

// Pieces of the other rank's posts that were not as their flag said, while this one posts, too. Every flag but the last
// of a post is a plain store, so nothing but the copy's own fence orders it behind the data.
uint64_t wrong_pieces(PostBoard& board, int rank) {
  std::vector<uint64_t> data(kBytes / sizeof(uint64_t));
  uint64_t wrong = 0;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    std::fill(data.begin(), data.end(), word(rank, round));
    const size_t bytes[] = {kBytes, kBytes};
    while (board.make_room().sight != Sight::kThere) std::this_thread::yield();
    std::byte* place = board.begin(round, bytes, round % 2 == 0 ? PostBoard::Flow::kAllWays : PostBoard::Flow::kOneWay);
    for (size_t at = 0; at < kBytes; at += kPiece) {
      cross_copy(place + at, reinterpret_cast<const std::byte*>(data.data()) + at, kPiece, Stores::kStreamed);
      board.publish(static_cast<uint32_t>(at + kPiece), at + kPiece == kBytes);
    }
    wrong += wrong_in_post(board, 1 - rank, round);
  }
  return wrong;
}

}  // namespace

// Real streamed stores, which sanitizers replace.
TEST_CASE("a streamed post is whole when its flag is seen") {
  Boards boards(2, Rings::kAll);
  uint64_t wrong = 0;
  std::thread other([&] { wrong = wrong_pieces(boards.of(1), 1); });
  CHECK(wrong_pieces(boards.of(0), 0) == 0);
  other.join();
  CHECK(wrong == 0);
}

}  // namespace rondo::testing
