// Messages take the way by which their exchange is shortest, find out when that changes, and cost little where there is
// nothing to gain. Time is simulated.
#include "ring/engine/p2p/message_trials.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ring/engine/p2p/p2p.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;

enum class How : uint8_t { kCached, kStreamed, kRead };
constexpr How kHows[] = {How::kCached, How::kStreamed, How::kRead};

How how(const Way& way) {
  if (way.algorithm == Algorithm::kPull) return How::kRead;
  return way.streamed ? How::kStreamed : How::kCached;
}

// Exchanges of messages of one size, each of which takes a time by its way.
struct Exchange {
  explicit Exchange(uint64_t size, bool reads = false) : bytes(size), peer(reads ? 0 : UINT64_MAX) {}

  void run(uint64_t messages) {
    for (uint64_t i = 0; i < messages; ++i) {
      peer.of(bytes).count([this] { return ++looks, now_ns; });
      const auto way = static_cast<size_t>(current());
      now_ns += takes_ns[way] + random.below(1 + takes_ns[way] / 10);
      if (random.chance(1)) now_ns += 100 * takes_ns[way];  // another process runs
      ++carried[way];
    }
  }
  How current() { return how(peer.of(bytes).way()); }
  uint64_t& takes(How way) { return takes_ns[static_cast<size_t>(way)]; }
  uint64_t by(How way) const { return carried[static_cast<size_t>(way)]; }
  // Share of the next messages that go this way.
  double share(How way, uint64_t messages) {
    const uint64_t before = by(way);
    run(messages);
    return static_cast<double>(by(way) - before) / static_cast<double>(messages);
  }

  const uint64_t bytes;
  PeerMessageTrials peer;
  uint64_t takes_ns[3] = {1000, 1000, 1000};
  uint64_t now_ns = 12345, looks = 0;
  uint64_t carried[3] = {};
  Random random{7};
};

uint64_t messages(uint64_t of_bytes, uint64_t bytes) { return (of_bytes + bytes - 1) / bytes; }
// Messages until trials have surely ended: three blocks of two ways, of either kind of stores, and of all again with
// the better one; and what comes before.
uint64_t of_trials(uint64_t bytes) {
  const uint64_t calls = Trials::kBlock * messages(MessageTrials::kCallBytes, bytes);
  return MessageTrials::kFew + 18 * (messages(MessageTrials::kSettlingBytes, bytes) + calls);
}
// Messages until all ways are tried again, at most.
uint64_t of_patience(uint64_t bytes) {
  return MessageTrials::kPatience.last * messages(MessageTrials::kCallBytes, bytes) + of_trials(bytes);
}

TEST_CASE("the way with the shortest exchange wins, at every size") {
  for (uint64_t bytes = MessageTrials::kFewestBytes; bytes <= 64 * kMiB; bytes *= 2) {
    for (const bool reads : {false, true}) {
      for (const How best : kHows) {
        if (best == How::kRead && !reads) continue;
        CAPTURE(bytes);
        CAPTURE(reads);
        Exchange exchange(bytes, reads);
        for (const How way : kHows) exchange.takes(way) = 4000;
        exchange.takes(best) = 1000;
        exchange.run(of_trials(bytes));
        CHECK_EQ(exchange.current(), best);
        CHECK_EQ(exchange.by(How::kRead) > 0, reads);
      }
    }
  }
}

TEST_CASE("a program that sends a few messages is left alone") {
  Exchange exchange(kMiB, true);
  exchange.takes(How::kCached) = 10'000;
  exchange.run(MessageTrials::kFew);
  CHECK_EQ(exchange.by(How::kCached), MessageTrials::kFew);
  CHECK_LE(exchange.looks, 1);
}

TEST_CASE("where one way is always better, each other one carries at most a fiftieth of the messages") {
  for (const uint64_t bytes : {MessageTrials::kFewestBytes, uint64_t{64 * 1024}, kMiB, 16 * kMiB}) {
    for (const bool reads : {false, true}) {
      CAPTURE(bytes);
      Exchange exchange(bytes, reads);
      exchange.takes(How::kStreamed) = exchange.takes(How::kRead) = 3000;
      exchange.run(of_trials(bytes) + 8 * of_patience(bytes));
      const uint64_t looks = exchange.looks;
      const uint64_t read = exchange.by(How::kRead);
      CHECK_LT(exchange.share(How::kStreamed, 8 * of_patience(bytes)), 0.02);
      CHECK_LT(exchange.by(How::kRead) - read, 8 * of_patience(bytes) / 50);
      // The clock is read twice for every 64th call, and for each of a trial.
      CHECK_LE(exchange.looks - looks, 8 * (64 + (reads ? 48 : 32)));
    }
  }
}

TEST_CASE("cores that part and come near again, and buffers that are written again, are noticed at the next look") {
  constexpr uint64_t kBytes = 64 * 1024;
  Exchange exchange(kBytes, true);
  exchange.takes(How::kStreamed) = exchange.takes(How::kRead) = 2000;
  exchange.run(of_trials(kBytes) + 10 * of_patience(kBytes));
  REQUIRE_EQ(exchange.current(), How::kCached);
  for (const How best : {How::kStreamed, How::kRead, How::kCached}) {
    for (const How way : kHows) exchange.takes(way) = way == best ? 1000 : 4000;
    exchange.run(of_patience(kBytes) + of_trials(kBytes));
    CHECK_GT(exchange.share(best, 100'000), 0.9);
  }
}

TEST_CASE("after reading was given up nothing is read, and the stores go on being tried") {
  for (const uint64_t messages : {0u, 10u, 40u, 60u, 100u, 1000u}) {
    Exchange exchange(64 * 1024, true);
    exchange.takes(How::kCached) = 2000;
    exchange.takes(How::kRead) = 500;
    exchange.run(messages);
    exchange.peer.give_up_reading();
    CHECK_NE(exchange.current(), How::kRead);
    CHECK_EQ(exchange.share(How::kRead, of_patience(64 * 1024) + of_trials(64 * 1024)), 0);
    CHECK_EQ(exchange.current(), How::kStreamed);
  }
}

// One direction of bytes in memory, whose writer takes a time by its kind of stores.
struct Pipe {
  std::vector<std::byte> bytes;
  size_t taken = 0;
};

struct TimedStream final : ByteStream {
  TimedStream(Pipe& from, Pipe& to, uint64_t& clock, uint64_t& by_streamed, uint64_t& all)
      : in(from), out(to), now_ns(clock), streamed(by_streamed), written(all) {}

  long read(const iovec* parts, int count) override {
    long moved = 0;
    for (int i = 0; i < count; ++i) {
      const size_t run = std::min(parts[i].iov_len, in.bytes.size() - in.taken);
      if (run > 0) std::memcpy(parts[i].iov_base, in.bytes.data() + in.taken, run);
      in.taken += run;
      moved += static_cast<long>(run);
    }
    if (in.taken == in.bytes.size()) in.bytes.clear(), in.taken = 0;
    return moved;
  }
  long write(const iovec* parts, int count) override {
    const size_t moved = bytes_of(parts, count);
    for (int i = 0; i < count; ++i) {
      const auto* memory = static_cast<const std::byte*>(parts[i].iov_base);
      out.bytes.insert(out.bytes.end(), memory, memory + parts[i].iov_len);
    }
    now_ns += moved * (stores == Stores::kStreamed ? 1 : 4);
    written += moved;
    if (stores == Stores::kStreamed) streamed += moved;
    return static_cast<long>(moved);
  }
  bool set_stores(Stores chosen) override {
    stores = chosen;
    return true;
  }
  const Error& error() const override { return no_error; }

  Pipe& in;
  Pipe& out;
  uint64_t& now_ns;
  uint64_t& streamed;
  uint64_t& written;
  Stores stores = Stores::kCached;
  Error no_error;
};

struct Side : P2pStreams {
  std::unique_ptr<ByteStream> to, from;
  int peer = 0;
  std::unique_ptr<ByteStream> take_stream_to(int) override { return std::move(to); }
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from() override {
    if (!from) return std::nullopt;
    return std::pair(peer, std::move(from));
  }
};

struct Request : P2pRequest {
  bool finished = false;
  void complete(const Error* why) override { finished = why == nullptr; }
};

// Streamed share of the bytes of messages of this size from rank 0 to rank 1.
double share_of_messages(size_t bytes, uint64_t messages, bool with_clock) {
  Pipe pipes[4];
  uint64_t now_ns = 1, streamed = 0, written = 0;
  Side sides[2];
  for (const int rank : {0, 1}) {
    sides[rank].peer = 1 - rank;
    auto stream = [&](int in, int out) {
      return std::make_unique<TimedStream>(pipes[in], pipes[out], now_ns, streamed, written);
    };
    sides[rank].to = stream(2 * rank + 1, 2 * rank);
    sides[1 - rank].from = stream(2 * rank, 2 * rank + 1);
  }
  P2pOptions options;
  if (with_clock) options.now_ns = [&now_ns] { return now_ns; };
  P2p first(0, 2, options, sides[0]), second(1, 2, options, sides[1]);
  std::vector<std::byte> out(bytes), in(bytes);
  Random random(3);
  const auto exchange = [&](size_t some) {
    for (int k = 0; k < 8; ++k) out[random.below(some)] = static_cast<std::byte>(random.next());
    Request send, recv;
    recv.kind = MessageKind::kReceive;
    send.peer = 1;
    send.data = out.data();
    recv.data = in.data();
    send.bytes = recv.bytes = some;
    second.submit(recv);
    first.submit(send);
    for (int pass = 0; pass < 100 && !(send.finished && recv.finished); ++pass) {
      first.progress();
      second.progress();
    }
    REQUIRE(send.finished);
    REQUIRE(recv.finished);
    REQUIRE(std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(some), in.begin()));
  };
  for (uint64_t i = 0; i < messages; ++i) exchange(bytes);
  const double share = static_cast<double>(streamed) / static_cast<double>(written);
  const uint64_t before = streamed;
  for (const size_t some : {size_t{kFewestStreamed}, size_t{MessageTrials::kFewestBytes - 1}}) {
    exchange(std::min(some, bytes));
  }
  REQUIRE(streamed - before <= 64 * 4);  // envelopes at most
  return share;
}

TEST_CASE("messages go by the better kind of stores, eager or asked for, and arrive whole") {
  for (const size_t bytes : {size_t{16 * 1024}, size_t{64 * 1024}, size_t{80'000}, size_t{kMiB}}) {
    CAPTURE(bytes);
    const uint64_t messages = of_trials(bytes) + 2000 * 16 * 1024 / bytes + 100;
    CHECK_GT(share_of_messages(bytes, messages, true), 0.4);
    CHECK_EQ(share_of_messages(bytes, 100, false), 0);
  }
  CHECK_EQ(share_of_messages(MessageTrials::kFewestBytes - 1, 3000, true), 0);
}

}  // namespace
}  // namespace rondo::testing
