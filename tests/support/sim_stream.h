#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/byte_stream.h"

namespace rondo::testing {

// How a simulated connection behaves while nothing is wrong with it.
struct SimShape {
  size_t capacity_bytes = 16 * 1024;  // per direction: written and not yet read
  uint32_t delay_ticks = 8;           // written bytes become readable after 0 .. delay_ticks
  uint32_t refuse_percent = 10;       // of the calls that move nothing though they could
  uint32_t crumb_percent = 30;        // of the calls that move 1 .. 64 bytes at most
  uint32_t part_percent = 50;         // of the others, that move any part; the rest move all that can be moved
  bool lends = false;                 // view(): any part of what lies together, or nothing, as above; write_whole()
};

// How it ends.
enum class SimCut {
  kClose,  // nothing more can be written; what is under way still arrives, then reads say -1
  kReset,  // what is under way is lost; what could be read already stays readable, then reads say -1
};

class SimWire;

// A network of connections in one thread with a clock of its own: each write and read moves a random part, each part
// arrives after a random delay, so bytes of one direction stay in order and those of different connections do not.
// The same seed and the same calls give the same run; what happens on one connection does not depend on the others.
//
//   SimNetwork network(seed);
//   SimNetwork::Connection connection = network.connect({.capacity_bytes = 4096});
//   network.cut_after(connection.id, 1000, SimCut::kReset);
//   while (...) { step both sides; network.advance(); }
//
// A side that destroys its stream closes the connection (kClose). Streams may outlive the network.
class SimNetwork {
 public:
  struct Connection {
    int id = -1;
    std::unique_ptr<ByteStream> side[2];
  };

  explicit SimNetwork(uint64_t seed);
  ~SimNetwork();

  Connection connect(const SimShape& shape = {});

  uint64_t now() const;
  void advance(uint64_t ticks = 1);

  // --- faults; `from` (0 or 1) is the side whose outgoing bytes are meant.
  void cut(int id, SimCut how);
  // Cuts once `bytes` more have been written, both sides counted together.
  void cut_after(int id, uint64_t bytes, SimCut how);
  // Nothing that `from` has written or writes can be read in the next ticks.
  void stall(int id, int from, uint64_t ticks);
  // Flips one bit of the byte that `from` writes after `bytes` more. One flip at a time a direction.
  void flip_after(int id, int from, uint64_t bytes);

  // Bytes written and not yet read, and all that were ever written, in the direction of `from`.
  size_t in_flight(int id, int from) const;
  uint64_t written(int id, int from) const;
  // Calls of write() and read() by `side` that moved something: what an engine would pay in system calls.
  uint64_t transfers(int id, int side) const;

 private:
  uint64_t seed_;
  std::shared_ptr<uint64_t> now_;                // shared with the wires
  std::vector<std::shared_ptr<SimWire>> wires_;  // shared with the two streams of each
};

}  // namespace rondo::testing
