#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include "ring/engine/p2p/p2p.h"

// Every allocation of this program is counted.
namespace {
uint64_t allocations = 0;
}
void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rondo::testing {
namespace {

// One direction of a connection in memory, as cheap as can be.
struct Pipe {
  std::array<std::byte, 1 << 18> ring;
  uint64_t written = 0;
  uint64_t taken = 0;
};

class PipeStream : public ByteStream {
 public:
  PipeStream(Pipe& in, Pipe& out) : in_(in), out_(out) {}

  long read(const iovec* parts, int count) override { return move(parts, count, in_, in_.taken, Way::kOut); }
  long write(const iovec* parts, int count) override { return move(parts, count, out_, out_.written, Way::kIn); }
  const Error& error() const override { return error_; }

 private:
  enum class Way { kIn, kOut };

  static long move(const iovec* parts, int count, Pipe& pipe, uint64_t& position, Way way) {
    uint64_t limit = way == Way::kIn ? pipe.ring.size() - (pipe.written - pipe.taken) : pipe.written - pipe.taken;
    long moved = 0;
    for (int i = 0; i < count && limit > 0; ++i) {
      size_t left = std::min<uint64_t>(parts[i].iov_len, limit);
      auto* memory = static_cast<std::byte*>(parts[i].iov_base);
      limit -= left;
      moved += static_cast<long>(left);
      while (left > 0) {
        const size_t at = position % pipe.ring.size();
        const size_t run = std::min(left, pipe.ring.size() - at);
        way == Way::kIn ? std::memcpy(&pipe.ring[at], memory, run) : std::memcpy(memory, &pipe.ring[at], run);
        position += run;
        memory += run;
        left -= run;
      }
    }
    return moved;
  }

  Pipe& in_;
  Pipe& out_;
  Error error_;
};

// Two ranks over four pipes.
struct Pair {
  struct Side : P2pStreams {
    std::unique_ptr<ByteStream> to, from;
    std::unique_ptr<ByteStream> take_stream_to(int) override { return std::move(to); }
    std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from() override {
      if (!from) return std::nullopt;
      return std::pair(peer, std::move(from));
    }
    int peer = 0;
  };

  Pair() {
    for (int rank : {0, 1}) {
      sides[rank].peer = 1 - rank;
      sides[rank].to = std::make_unique<PipeStream>(pipes[2 * rank + 1], pipes[2 * rank]);
      sides[1 - rank].from = std::make_unique<PipeStream>(pipes[2 * rank], pipes[2 * rank + 1]);
    }
    for (int rank : {0, 1}) ranks[rank].emplace(rank, 2, P2pOptions{}, sides[rank]);
  }

  Pipe pipes[4];
  Side sides[2];
  std::optional<P2p> ranks[2];
};

struct Request : P2pRequest {
  bool finished = false;
  void complete(const Error* why) override { finished = !why; }
};

// One message to the other rank, polled for as an engine does; receive_first: posted before it comes.
bool exchange(Pair& pair, int from, size_t bytes, bool receive_first, std::byte* memory) {
  Request send, receive;
  receive.kind = MessageKind::kReceive;
  send.peer = 1 - from;
  send.data = memory;
  receive.peer = from;
  receive.data = memory + bytes;
  send.bytes = receive.bytes = bytes;
  if (receive_first) pair.ranks[1 - from]->submit(receive);
  pair.ranks[from]->submit(send);
  const P2pSweep sweep = receive_first ? P2pSweep::kAwaited : P2pSweep::kAll;
  for (int i = 0; i < 2 && !receive.finished; ++i) {
    pair.ranks[from]->progress(sweep);
    pair.ranks[1 - from]->progress(sweep);
    if (i == 0 && !receive_first) pair.ranks[1 - from]->submit(receive);
  }
  return send.finished && receive.finished;
}

TEST_CASE("a steady exchange of eager messages allocates nothing, expected or not") {
  auto pair = std::make_unique<Pair>();
  std::vector<std::byte> memory(2 * 65536);
  for (size_t bytes : {8u, 1000u, 65536u}) {
    for (bool receive_first : {true, false}) {
      CAPTURE(bytes);
      CAPTURE(receive_first);
      int complete = 0;
      for (int i = 0; i < 4; ++i) complete += exchange(*pair, i % 2, bytes, receive_first, memory.data());
      const uint64_t before = allocations;
      const std::clock_t start = std::clock();
      constexpr int kMessages = 40'000;
      for (int i = 0; i < kMessages; ++i) complete += exchange(*pair, i % 2, bytes, receive_first, memory.data());
      const double elapsed_ns = 1e9 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      const uint64_t after = allocations;
      CHECK_EQ(after, before);
      CHECK_EQ(complete, kMessages + 4);
      std::printf("%zu bytes, receive %s: %.0f ns of processor time a message\n", bytes,
                  receive_first ? "first" : "after", elapsed_ns / kMessages);
    }
  }
}

}  // namespace
}  // namespace rondo::testing
