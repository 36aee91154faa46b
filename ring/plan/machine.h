#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ring/plan/cost_model.h"
#include "ring/plan/layout.h"
#include "ring/plan/plan.h"
#include "ring/plan/walk.h"

namespace rondo {

// What a run moves.
struct Load {
  Slicing slicing;                    // in bytes (elements of one byte)
  std::vector<uint64_t> block_bytes;  // by length_of(); its size is lengths_of()
  bool counted = false;               // an empty block sent over a link is one empty slice
  Topology topology;                  // what kind each pair is; empty: all ranks on one host, without shared memory
};

// Runs all ranks slice by slice: every rank walks as in the engine (walk.h), over links that hold `depth` slices a
// direction. It takes the strictest reading of the executor's contract:
//   - landings are posted in the order of the plan; one that may not be written yet holds up those behind it;
//   - a slice is sent only when its receiver has posted a landing for it.
// Whatever runs here to the end does so under any executor that waits for less. Whether a slice can move never ends by
// another's moving, so the order in which ranks are tried changes nothing: one run proves that there is no deadlock,
// and the earliest time of every move is well defined.
class Machine {
 public:
  Machine(std::span<const Plan> plans, const Load& load, uint32_t depth, const CostModel& cost = {});

  // True if every rank finished; else stuck() says who waits for what.
  bool run();
  std::string stuck() const;
  // Microseconds from the start until the last rank has combined and sent its last slice.
  double finish_us() const { return finish_us_; }
  uint64_t slices() const { return slices_; }

  // A slice that a rank has combined.
  struct Move {
    int rank = 0;
    uint64_t round = 0;
    uint32_t step = 0;  // of its plan
    uint32_t slice = 0;
    uint64_t bytes = 0;
    double end_us = 0;
  };
  // run() appends all of them, those of one rank in its order: what executors are compared with.
  void record(std::vector<Move>* moves) { moves_ = moves; }

  // A slice on a link.
  struct Transfer {
    int from = 0, to = 0;
    uint32_t step = 0;  // of the sender's plan
    uint64_t bytes = 0;
    double begin_us = 0;  // it begins to leave through the sender's port
    double end_us = 0;    // all of it has come in through the receiver's port
  };
  // run() appends all of them, those of one sender in its order.
  void record(std::vector<Transfer>* transfers) {
    transfers_ = transfers;
    transfer_.resize(first_byte_us_.size());
  }

 private:
  // One rank of the run: its walk, when its slices were sent, and until when its two ports are busy.
  struct Rank {
    const Plan* plan = nullptr;
    Walk<WalkStep> walk;
    std::vector<uint32_t> ref_link;  // by ref of the plan: the link it sends on or receives from
    Cursor sent;
    std::vector<double> sent_us;     // by slice number: when it has left
    std::vector<double> arrived_us;  // by barrier number - 1
    double now_us = 0, out_free_us = 0, in_free_us = 0;
    bool queued = false;
  };
  // One direction of a link. Slices are counted in four stages: committed by the sender's combine, posted by the
  // receiver, combined by the receiver, and sent once a landing was posted. committed - combined is at most the
  // depth.
  struct Channel {
    int receiver = 0;
    uint64_t committed = 0, posted = 0, combined = 0, sent = 0;
    PairCost cost;
    size_t times = 0;  // of its last `depth` slices, in first_byte_us_, freed_us_ and transfer_
  };
  // A slice that a step takes from a link.
  struct Arrival {
    double first_byte_us = 0, beta_us_per_byte = 0;  // when its first byte is there; what a byte costs on the port
    size_t slot = 0;                                 // in transfer_
    bool operator<(const Arrival& other) const { return first_byte_us < other.first_byte_us; }
  };

  // The walk of one rank over its plan, and the channel behind each of its mailboxes.
  void bind(Rank& rank, std::vector<uint32_t>& first_channel);
  const Step& step_at(const Rank& rank, const Cursor& cursor) const { return rank.plan->steps[cursor.step]; }
  // Each tries the next slice of a rank. True: it has moved, and ranks that may wait for that are queued.
  bool post(Rank& rank);
  bool combine(Rank& rank);
  bool send(Rank& rank);
  int absent(const Rank& rank) const;
  void arrive(Rank& rank, const Step& step);
  const char* obstacle(const Rank& rank, int& peer) const;
  const PairCost& cost_of(int a, int b) const;
  // When the slice's work can begin, how long it takes, and what its sending occupies. Microseconds of the model.
  double start_us(Rank& rank, const Step& step, uint64_t bytes);
  double work_us(const Rank& rank, const Step& step, uint64_t bytes) const;
  void commit(Rank& rank, Channel& channel, uint64_t bytes);
  void record_transfer(const Rank& rank, const Channel& channel, uint64_t bytes, double begin_us);
  void wake(int rank);

  const Load load_;
  const uint64_t depth_;
  const CostModel cost_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
  std::vector<double> first_byte_us_;  // when a slice's first byte is there
  std::vector<double> freed_us_;       // when it was combined
  std::vector<size_t> transfer_;       // its index in *transfers_
  // Ranks to be tried, first in, first out; Rank::queued says that one is in it.
  std::vector<int> ready_;
  std::vector<Arrival> arrivals_;  // of the slices of one step
  double finish_us_ = 0;
  uint64_t slices_ = 0;
  std::vector<Move>* moves_ = nullptr;
  std::vector<Transfer>* transfers_ = nullptr;
};

}  // namespace rondo
