#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ring/base/types.h"
#include "ring/engine/observe/metrics.h"
#include "ring/engine/observe/trace_file.h"
#include "ring/plan/plan.h"
#include "rondo/dtype.h"
#include "rondo/error.h"
#include "rondo/op.h"

namespace rondo {

// The place of one rank in the job, for the reader of its trace.
struct ObservedRank {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int node = 0;
  std::string name;                // "rank 3 (host b, pid 17)"
  std::vector<int> host;           // of every rank: Topology::host
  std::string settings;            // Config::describe()
  uint64_t trace_bytes = 1 << 24;  // of the ring of records
};

// Records what the communicators of one join do: in a trace, in metrics, or not at all. All communicators of
// the join share it. Callers ask Observed::on() before they call a hook, so that an observer that is off costs
// one load. Hooks neither lock nor allocate, but for rare events (communicator, failed). Any thread.
class Observer {
 public:
  explicit Observer(ObservedRank about) : about_(std::move(about)) {}
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // Begins a trace; one that is under way ends. Throws Exception(kSystem) if the file cannot be made.
  void start_trace(const std::string& folder);
  void stop_trace();
  // Whether a trace is under way. Acquire pairs with start_trace(): the file is complete before it is seen.
  bool tracing() const { return trace_.load(std::memory_order_acquire) != nullptr; }
  // Begins to count; a second call changes nothing. There is no end: counters only grow.
  Metrics& start_metrics();
  // nullptr: no metrics were started.
  const Metrics* metrics() const { return metrics_.load(std::memory_order_acquire); }
  const ObservedRank& about() const { return about_; }

  // Nanoseconds of CLOCK_MONOTONIC, as in the records.
  static uint64_t now() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

  // Hooks. A communicator of these world ranks: returns its number in the records.
  uint32_t communicator(uint64_t id, const std::vector<int>& members);
  // The first failure of a communicator is recorded; later ones are not.
  void failed(uint32_t communicator, const Error& error);

  // What a record says of a collective. bytes: of the whole buffers.
  struct Call {
    Collective collective = Collective::kBarrier;
    DType dtype = DType::kFloat32;
    Op op = Op::kSum;
    Algorithm algorithm = Algorithm::kAuto;
    int root = -1;
    uint64_t bytes = 0;
  };
  // Why a route was taken: a RouteReason, and its text, which goes into the trace once.
  struct Reason {
    uint8_t number = 0;
    const char* text = "";
  };
  // number: of the operation. at, predicted_ns, Span: nanoseconds of now(); predicted_ns 0: not known. medium: a
  // Medium.
  void began(uint32_t communicator, uint64_t number, uint64_t at, const Call& call);
  void routed(uint32_t communicator, uint64_t number, const Call& call, const Reason& reason, uint8_t medium,
              uint64_t predicted_ns);
  struct Span {
    uint64_t begin = 0, end = 0;
  };
  void ended(uint32_t communicator, uint64_t number, const Span& span, const Call& call, ErrorCode code);
  void stopped(uint32_t communicator, uint64_t number, const Span& span);
  // The record has begin, peer, tag, bytes and direction (a); this fills in the rest.
  void message(uint32_t communicator, TraceRecord record, ErrorCode code);
  // Events of one operation (step_observer.h).
  void waited(const TraceRecord& wait);
  void stepped(const TraceRecord& step, std::span<const Ref> sources, std::span<const Ref> targets);

 private:
  friend struct Observed;
  // The rank of the job; -1: not known, or a newcomer, which the counters do not have.
  int world_rank(uint32_t communicator, int peer) const;
  bool is_transfer(uint32_t communicator, const Ref& ref) const;
  void put(const TraceRecord& record) {
    if (TraceFile* trace = trace_.load(std::memory_order_acquire)) trace->put(record);
  }
  void say(const std::string& line);
  std::string about_line() const;

  // Communicators with numbers of their own in the records; those beyond share the last number.
  static constexpr uint32_t kMostCommunicators = 4096;
  static constexpr size_t kReasons = 64;

  const ObservedRank about_;
  // Whether any hook has something to do. Relaxed: an event beside start_trace() may be in no trace.
  std::atomic<bool> on_{false};
  std::atomic<TraceFile*> trace_{nullptr};
  std::atomic<Metrics*> metrics_{nullptr};
  // By RouteReason: its text is in the trace under way.
  std::array<std::atomic<bool>, kReasons> reasons_said_{};
  // members_[n]: the world ranks of communicator n; null until it is known. It never moves, so hooks read it
  // without a lock.
  std::array<std::atomic<const std::vector<int>*>, kMostCommunicators> members_{};

  std::mutex start_mutex_;                          // of the file that start_trace() makes; before mutex_
  std::mutex mutex_;                                // of what follows
  std::vector<std::unique_ptr<TraceFile>> traces_;  // earlier ones stay, let go: a hook may be in one
  std::unique_ptr<Metrics> own_metrics_;
  std::set<std::vector<int>> kept_members_;  // equal lists once: a program may make communicators for ever
  std::vector<std::string> lines_;           // of the first communicators, for traces that start later
  std::vector<char> failed_;                 // by communicator: its failure is recorded
  uint32_t communicators_ = 0;
};

// How the parts of one communicator reach their observer.
struct Observed {
  std::shared_ptr<Observer> observer;  // shared by all communicators of a join
  uint32_t communicator = 0;
  // Clock reads that serve twice, since each costs a hundredth of a call of 64 KiB. begun_at: when the
  // operation began, until its run takes it. ended_at: when its run ended; 0 if the run has worked since.
  // Under the lease.
  mutable uint64_t begun_at = 0, ended_at = 0;
  bool on() const { return observer->on_.load(std::memory_order_relaxed); }
};

}  // namespace rondo
