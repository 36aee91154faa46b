// Proves that each ordering of a ring of cells is needed by every face that uses it, and that all of them suffice.
// Ranks are threads over one mapping: in a ring of links, slices of odd sizes go round; two ranks send each other bytes
// over a stream; all post to a board, meet, and close their notes one after the other. Under the thread sanitizer
// --weaken=none is clean, and each --weaken=FACE_ORDERING of run() below makes it report a race (exit code 66): there
// links and streams carry bytes one way alone, since what comes back orders what has gone there.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ring/engine/island/post_board.h"
#include "tests/support/both_ways.h"
#include "tests/support/whole_board.h"
#include "transport/island/memory_file.h"
#include "transport/island/shared_link_body.h"
#include "transport/island/shared_stream_body.h"

namespace rondo {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
template <typename Orders>
struct WeakPublish : Orders {
  static constexpr std::memory_order kPublish = kRelaxed;
};
template <typename Orders>
struct WeakPublishLast : Orders {
  static constexpr std::memory_order kPublishLast = kRelaxed;
};
template <typename Orders>
struct WeakObserve : Orders {
  static constexpr std::memory_order kObserve = kRelaxed;
};
template <typename Orders>
struct WeakFree : Orders {
  static constexpr std::memory_order kFree = kRelaxed;
};
template <typename Orders>
struct WeakReuse : Orders {
  static constexpr std::memory_order kReuse = kRelaxed;
};

// Odd sizes on both sides of what a cell holds, and whole slices.
uint32_t size_of(uint32_t slice, uint32_t largest) {
  const uint32_t sizes[] = {1, 7, 63, 103, 104, 105, 129, 0, 1021, largest - 1, largest};
  return sizes[slice % std::size(sizes)];
}

std::byte content(int from, uint32_t slice, uint32_t at) {
  return static_cast<std::byte>((static_cast<uint32_t>(from) * 31 + slice * 7 + at) & 0xff);
}

enum class Ways { kBoth, kOne };

// Runs every rank on a thread of its own; true if every one returned true.
template <typename Drive>
bool all_ranks(int world, Drive drive) {
  std::vector<std::thread> threads;
  std::vector<char> good(static_cast<size_t>(world), 0);
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([drive, rank, &good] { good[static_cast<size_t>(rank)] = drive(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return std::find(good.begin(), good.end(), 0) == good.end();
}

template <typename Orders>
class Ring {
 public:
  // Ways::kOne: the last rank sends nothing.
  Ring(int world, const LinkShape& shape, uint32_t slices, Ways ways)
      : world_(world), shape_(shape), slices_(slices), ways_(ways) {
    const size_t bytes = whole_pages(shared_link_bytes(shape));
    const Descriptor file = make_memory_file(bytes * static_cast<size_t>(world), Pages::kSparse);
    memory_ = std::make_shared<Mapping>(file.get(), bytes * static_cast<size_t>(world), Mapping::Touch::kLater);
    for (int pair = 0; pair < world; ++pair) {
      for (const bool lower : {true, false}) {
        ChannelEnd end{memory_,
                       memory_->data() + bytes * static_cast<size_t>(pair),
                       lower,
                       std::make_shared<Bell>(),
                       std::make_shared<PeerLife>(),
                       "the peer"};
        auto link = std::make_unique<SharedLink<Orders>>(std::move(end), shape);
        (lower ? to_next_ : from_previous_).push_back(std::move(link));
      }
    }
  }

  // False if any byte was wrong, or it hangs.
  bool run() {
    return all_ranks(world_, [this](int rank) { return drive(rank); });
  }

 private:
  bool drive(int rank) {
    Link& out = *to_next_[static_cast<size_t>(rank)];
    const int previous = (rank + world_ - 1) % world_;
    Link& in = *from_previous_[static_cast<size_t>(previous)];
    std::vector<std::vector<std::byte>> landings(shape_.depth, std::vector<std::byte>(shape_.slice_bytes));
    const uint32_t to_send = slices_from(rank), to_receive = slices_from(previous);
    uint32_t posted = 0, sent = 0, received = 0;
    bool good = true;
    for (uint64_t idle = 0; received < to_receive || sent < to_send;) {
      bool moved = in.pump();
      moved |= out.pump();
      if (out.error() != nullptr || in.error() != nullptr || ++idle > 100'000'000) return false;
      while (posted < to_receive && in.can_post()) {
        const uint32_t bytes = size_of(posted, shape_.slice_bytes);
        in.post({1, posted, bytes}, posted % 3 == 0 ? landings[posted % shape_.depth].data() : nullptr);
        ++posted;
      }
      if (sent < to_send && out.can_send()) {
        const uint32_t bytes = size_of(sent, shape_.slice_bytes);
        std::byte* slot = out.reserve(bytes);
        for (uint32_t i = 0; i < bytes; ++i) slot[i] = content(rank, sent, i);
        out.commit({1, sent++, bytes});
        moved = true;
      }
      if (const std::byte* payload = in.arrived()) {
        for (uint32_t i = 0; i < size_of(received, shape_.slice_bytes); ++i) {
          good &= payload[i] == content(previous, received, i);
        }
        in.release();
        ++received;
        moved = true;
      }
      if (!moved) std::this_thread::yield();
    }
    return good;
  }

  uint32_t slices_from(int rank) const { return ways_ == Ways::kOne && rank == world_ - 1 ? 0 : slices_; }

  const int world_;
  const LinkShape shape_;
  const uint32_t slices_;
  const Ways ways_;
  std::shared_ptr<Mapping> memory_;                             // shared with the links
  std::vector<std::unique_ptr<Link>> to_next_, from_previous_;  // by the lower end of the pair
};

// Two ranks that send each other bytes, many pieces in one write and single ones, over a stream that each has made.
// Ways::kOne: rank 1 sends none.
template <typename Orders>
class Bytes {
 public:
  explicit Bytes(Ways ways) : ways_(ways) {
    using Buffers = TravelingBuffers<Orders>;
    const std::shared_ptr<Buffers> buffers[] = {std::make_shared<Buffers>(kSmallStreamBuffers),
                                                std::make_shared<Buffers>(kSmallStreamBuffers)};
    std::unique_ptr<ByteStream> ends[2][2];  // of the stream by maker, of the end by rank
    for (const int maker : {0, 1}) {
      const size_t bytes = shared_stream_bytes(kSmallStreamBuffers);
      const Descriptor file = make_memory_file(bytes, Pages::kSparse);
      const auto memory = std::make_shared<Mapping>(file.get(), bytes, Mapping::Touch::kLater);
      for (const int rank : {0, 1}) {
        ChannelEnd end{memory,    memory->data(), rank == maker, std::make_shared<Bell>(), std::make_shared<PeerLife>(),
                       "the peer"};
        ends[maker][rank] = std::make_unique<SharedStream<Orders>>(std::move(end), buffers[rank]);
      }
    }
    for (const int rank : {0, 1}) {
      sides_[rank] = std::make_unique<testing::BothWays>(std::move(ends[rank][rank]), std::move(ends[1 - rank][rank]));
    }
  }
  // False if any byte was wrong, or it hangs.
  bool run() {
    return all_ranks(2, [this](int rank) { return drive(rank); });
  }

 private:
  static constexpr uint32_t kAll = 3'000'000;  // many times all buffers
  static constexpr uint32_t kMost = 50'000;

  bool drive(int rank) {
    ByteStream& stream = *sides_[rank];
    std::vector<std::byte> out(kMost), in(kMost);
    const uint32_t to_write = bytes_from(rank), to_read = bytes_from(1 - rank);
    uint32_t written = 0, read = 0, turn = 0;
    for (uint64_t idle = 0; written < to_write || read < to_read; ++idle) {
      const uint32_t bytes = std::min(to_write - written, size_of(turn++, kMost));
      for (uint32_t i = 0; i < bytes; ++i) out[i] = content(rank, 0, written + i);
      const iovec from{out.data(), bytes}, to{in.data(), in.size()};
      const long sent = stream.write(&from, 1), got = stream.read(&to, 1);
      if (sent < 0 || got < 0 || idle > 100'000'000) return false;
      for (uint32_t i = 0; i < got; ++i) {
        if (in[i] != content(1 - rank, 0, read + i)) return false;
      }
      written += static_cast<uint32_t>(sent);
      read += static_cast<uint32_t>(got);
      if (sent + got == 0) std::this_thread::yield();
    }
    return true;
  }

  uint32_t bytes_from(int rank) const { return ways_ == Ways::kOne && rank == 1 ? 0 : kAll; }

  const Ways ways_;
  std::unique_ptr<ByteStream> sides_[2];
};

struct WeakArrive : BoardOrders {
  static constexpr std::memory_order kArrive = kRelaxed;
};
struct WeakSeeArrival : BoardOrders {
  static constexpr std::memory_order kSeeArrival = kRelaxed;
};

struct WeakLeave : BoardOrders {
  static constexpr std::memory_order kLeave = kRelaxed;
};
struct WeakSeeAccess : BoardOrders {
  static constexpr std::memory_order kSeeAccess = kRelaxed;
};

constexpr uint32_t kNotesBytes = 4099;

// Every rank posts a payload of an odd size, in two pieces, and reads all others' posts, round after round.
template <typename Orders>
class Posts {
 public:
  using PostBoard = BasicPostBoard<Orders>;
  static constexpr testing::Rings kRings = testing::Rings::kAll;
  static constexpr uint32_t kMostPosted = 3 * 4099;  // some beside the flag, some in slots, some in rings

  Posts(int world, uint32_t rounds) : world_(world), rounds_(rounds) {
    const size_t bytes = whole_pages(testing::whole_board_bytes<PostBoard>(kRings) + kNotesBytes);
    const Descriptor file = make_memory_file(bytes * static_cast<size_t>(world), Pages::kSparse);
    memory_ = std::make_shared<Mapping>(file.get(), bytes * static_cast<size_t>(world), Mapping::Touch::kLater);
    for (int rank = 0; rank < world; ++rank) places_.push_back(memory_->data() + bytes * static_cast<size_t>(rank));
  }

  // False if any byte was wrong, or it hangs.
  bool run() {
    return all_ranks(world_, [this](int rank) { return drive(rank); });
  }

 private:
  bool drive(int rank) const {
    PostBoard board = testing::whole_board<PostBoard>(places_, rank, kRings);
    for (uint32_t round = 0; round < rounds_; ++round) {
      const uint32_t bytes = size_of(round, kMostPosted);
      if (!post(board, rank, round, bytes)) return false;
      for (int other = 0; other < world_; ++other) {
        if (other != rank && !reads(board, other, round, bytes)) return false;
      }
      if (!meets(board, rank, round)) return false;
    }
    return ends(board, rank);
  }

  // What failing ranks do: rank 0 closes its notes first, then rank 1 and so on, and overwrites them at once; the
  // others read them in accesses until they are closed.
  bool ends(PostBoard& board, int rank) const {
    for (uint32_t i = 0; i < kNotesBytes; ++i) notes(rank)[i] = content(rank, rounds_, i);
    if (!meet(board, rank, 2 * uint64_t{rounds_} + 1)) return false;
    for (int owner = 0; owner < world_; ++owner) {
      if (owner == rank) {
        for (int i = 0; i < 50; ++i) std::this_thread::yield();
        close(board, rank);
        continue;
      }
      for (uint64_t idle = 0; read_notes(board, owner); ++idle) {
        if (idle > 100'000'000) return false;
      }
    }
    return good_;
  }

  void close(PostBoard& board, int rank) const {
    board.close();
    for (int other = 0; other < world_; ++other) {
      const uint64_t number = board.access(other);
      while (other != rank && number % 2 != 0 && board.access(other) == number) std::this_thread::yield();
    }
    for (uint32_t i = 0; i < kNotesBytes; ++i) notes(rank)[i] = std::byte{0};
  }

  // False: they are closed.
  bool read_notes(PostBoard& board, int owner) const {
    board.enter();
    const bool open = !board.closed(owner);
    for (uint32_t i = 0; open && i < kNotesBytes; ++i) {
      if (notes(owner)[i] != content(owner, rounds_, i)) good_ = false;
    }
    board.leave();
    // The owner is to see this number, and not that of the next access, whose beginning orders the same.
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    return open;
  }

  // A plan over windows: every rank writes its notes, all meet, every rank reads the others' notes, all meet.
  bool meets(PostBoard& board, int rank, uint32_t round) const {
    const uint32_t bytes = size_of(round, kNotesBytes);
    for (uint32_t i = 0; i < bytes; ++i) notes(rank)[i] = content(rank, round, i);
    if (!meet(board, rank, 2 * uint64_t{round} + 1)) return false;
    for (int other = 0; other < world_; ++other) {
      for (uint32_t i = 0; i < bytes; ++i) {
        if (notes(other)[i] != content(other, round, i)) return false;
      }
    }
    return meet(board, rank, 2 * uint64_t{round} + 2);
  }

  bool meet(PostBoard& board, int rank, uint64_t number) const {
    board.arrive(number);
    for (int other = 0; other < world_; ++other) {
      for (uint64_t idle = 0; other != rank && board.arrived(other) < number; ++idle) {
        if (idle > 100'000'000) return false;
        std::this_thread::yield();
      }
    }
    return true;
  }

  std::byte* notes(int rank) const {
    return places_[static_cast<size_t>(rank)] + testing::whole_board_bytes<PostBoard>(kRings);
  }

  bool post(PostBoard& board, int rank, uint32_t round, uint32_t bytes) const {
    for (uint64_t idle = 0; board.make_room().sight != Sight::kThere; ++idle) {
      if (idle > 100'000'000) return false;
      std::this_thread::yield();
    }
    const auto flow = round / 3 % 2 == 0 ? PostBoard::Flow::kAllWays : PostBoard::Flow::kOneWay;
    std::byte* place = board.begin(round, std::vector<size_t>(static_cast<size_t>(world_), bytes), flow);
    const uint32_t half = bytes / 2;
    for (uint32_t i = 0; i < half; ++i) place[i] = content(rank, round, i);
    board.publish(half, false);
    for (int i = 0; i < 20; ++i) std::this_thread::yield();  // the others are to read the half
    for (uint32_t i = half; i < bytes; ++i) place[i] = content(rank, round, i);
    board.publish(bytes, true);
    return true;
  }

  static bool reads(const PostBoard& board, int other, uint32_t round, uint32_t bytes) {
    uint32_t read = 0;
    for (uint64_t idle = 0; idle < 100'000'000; ++idle) {
      const typename PostBoard::Look look = board.look(other);
      if (look.sight == Sight::kCorrupt) return false;
      if (look.sight == Sight::kThere) {
        if (look.fingerprint != round || look.ready > bytes) return false;
        const std::byte* payload = board.payload_of(other, bytes);
        for (; read < look.ready; ++read) {
          if (payload[read] != content(other, round, read)) return false;
        }
        if (read == bytes) return true;
      }
      std::this_thread::yield();
    }
    return false;
  }

  const int world_;
  const uint32_t rounds_;
  std::shared_ptr<Mapping> memory_;
  std::vector<std::byte*> places_;
  mutable std::atomic<bool> good_{true};
};

template <typename Orders>
bool stress_board() {
  for (int world = 2; world <= 8; ++world) {
    if (Posts<Orders>(world, 300).run()) continue;
    std::fprintf(stderr, "world %d, posts: wrong bytes or no end\n", world);
    return false;
  }
  return true;
}

template <typename Orders>
bool stress_link(Ways ways = Ways::kOne) {
  for (int world = 2; world <= 8; ++world) {
    for (const LinkShape& shape : {LinkShape{2, 1023}, LinkShape{3, 4099}}) {
      if (!Ring<Orders>(world, shape, 300, ways).run()) {
        std::fprintf(stderr, "world %d, slices of %u bytes: wrong bytes, an error or no end\n", world,
                     shape.slice_bytes);
        return false;
      }
    }
  }
  return true;
}

template <typename Orders>
bool stress_stream(Ways ways = Ways::kOne) {
  if (Bytes<Orders>(ways).run()) return true;
  std::fprintf(stderr, "streams: wrong bytes, an error or no end\n");
  return false;
}

bool run(const std::string& weakened) {
  using Cells = CellOrders;
  using Board = BoardOrders;
  if (weakened == "none") {
    return stress_link<Cells>(Ways::kBoth) && stress_stream<Cells>(Ways::kBoth) && stress_board<Board>();
  }
  if (weakened == "link_publish_last") return stress_link<WeakPublishLast<Cells>>();
  if (weakened == "link_observe") return stress_link<WeakObserve<Cells>>();
  if (weakened == "link_free") return stress_link<WeakFree<Cells>>();
  if (weakened == "link_reuse") return stress_link<WeakReuse<Cells>>();
  if (weakened == "stream_publish") return stress_stream<WeakPublish<Cells>>();
  if (weakened == "stream_publish_last") return stress_stream<WeakPublishLast<Cells>>();
  if (weakened == "stream_observe") return stress_stream<WeakObserve<Cells>>();
  if (weakened == "stream_free") return stress_stream<WeakFree<Cells>>();
  if (weakened == "stream_reuse") return stress_stream<WeakReuse<Cells>>();
  if (weakened == "board_publish") return stress_board<WeakPublish<Board>>();
  if (weakened == "board_publish_last") return stress_board<WeakPublishLast<Board>>();
  if (weakened == "board_observe") return stress_board<WeakObserve<Board>>();
  if (weakened == "board_arrive") return stress_board<WeakArrive>();
  if (weakened == "board_see_arrival") return stress_board<WeakSeeArrival>();
  if (weakened == "board_leave") return stress_board<WeakLeave>();
  if (weakened == "board_see_access") return stress_board<WeakSeeAccess>();
  std::fprintf(stderr, "no ordering is called %s\n", weakened.c_str());
  std::exit(2);
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "--weaken=none";
  return rondo::run(argument.substr(argument.find('=') + 1)) ? 0 : 1;
}
