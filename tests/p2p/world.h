#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ring/engine/p2p/p2p.h"
#include "tests/support/random.h"
#include "tests/support/sim_stream.h"

namespace rondo::testing {

// A send or receive with its own memory. That of a send is written anew once it is complete, however it ended.
struct TestRequest : P2pRequest {
  std::vector<std::byte> memory;
  bool complete_called = false;
  Error failed;
  void complete(const Error* why) override {
    complete_called = true;
    if (why) failed = *why;
    if (sends()) std::fill(memory.begin(), memory.end(), std::byte{0x55});
  }
};

inline constexpr std::byte kUntouched{0xaa};

// The streams of worlds that are made from here on lend their memory, as those over shared memory do.
inline bool streams_lend = false;

// Byte i of message `index` from one rank to another.
std::byte message_byte(int from, int to, uint64_t index, uint64_t i);

// Ranks with a P2p each, in one thread, over a simulated network whose streams are made some ticks after they are asked
// for.
class SimWorld {
 public:
  struct Settings {
    int world = 2;
    uint64_t seed = 1;
    uint64_t eager_bytes = 1024;
    uint64_t pool_bytes = 8192;
    SimShape shape = {};
    uint64_t connect_ticks = 20;  // at most
    bool checked = false;         // frames carry checksums
    bool reads = false;           // ranks read what they ask for from one another's memory
    uint64_t unreadable = 0;      // of them, reading fails once so many pieces were read; 0: it does not
  };

  explicit SimWorld(Settings settings);
  ~SimWorld();

  int size() const { return static_cast<int>(ranks_.size()); }
  P2p& at(int rank) { return *ranks_[rank]; }
  SimNetwork& network() { return network_; }
  Random& random() { return random_; }

  // Starts message number `index` of this pair: payload by message_byte(). The request lives as long as this.
  TestRequest& send(int from, int to, int tag, uint64_t bytes, DType dtype = DType::kUint8, bool synchronous = false);
  TestRequest& recv(int at, int from, int tag, uint64_t bytes, DType dtype = DType::kUint8, bool truncate = false);
  TestRequest& probe(int at, int from, int tag, MessageKind kind = MessageKind::kProbe);
  // The receive of what a matched probe has found.
  TestRequest& mrecv(int at, const TestRequest& probe, uint64_t bytes, DType dtype = DType::kUint8);
  // The receive's memory is what the sender of message `receive.sequence` had sent, or the beginning of it, and
  // untouched behind it.
  static bool intact(const TestRequest& receive, int at);

  // One progress() of each rank that lives, in random order, with random sweeps; then the clock advances.
  // True if anything happened.
  bool step();
  // Steps until nothing has happened for longer than the network keeps anything back. Not longer than limit ticks.
  void settle(uint64_t limit = 200'000);

  // Pieces of memory that ranks have read.
  uint64_t pieces_read() const { return pieces_read_; }
  // The connection that carries messages of `from` to `to`; -1: not made yet.
  int connection(int from, int to) const;
  // Destroys a rank's P2p, its streams with it.
  void destroy(int rank);
  bool lives(int rank) const { return ranks_[rank] != nullptr; }

 private:
  TestRequest& made(MessageKind kind, int peer, int tag, uint64_t bytes, DType dtype);
  class Streams;
  struct Wanted {
    uint64_t ready = 0;
    int id = -1;
    std::unique_ptr<ByteStream> to, from;
  };

  Settings settings_;
  Random random_;
  SimNetwork network_;
  uint64_t pieces_read_ = 0;
  std::map<std::pair<int, int>, Wanted> wanted_;  // by (from, to)
  std::map<std::pair<int, int>, uint64_t> sent_;  // messages
  std::vector<std::unique_ptr<Streams>> streams_;
  std::vector<std::unique_ptr<TestRequest>> requests_;
  std::vector<std::unique_ptr<P2p>> ranks_;  // destroyed before what they refer to
};

}  // namespace rondo::testing
