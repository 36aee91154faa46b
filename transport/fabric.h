#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/types.h"
#include "rondo/error.h"
#include "transport/bell.h"
#include "transport/byte_stream.h"
#include "transport/doorbell.h"
#include "transport/link.h"
#include "transport/shared_memory.h"
#include "transport/sleeper.h"

namespace rondo {

// Ranks in this file are world ranks (of the fabric); a communicator is a list of them.

// The sequence number of the exchange among the members while a communicator is made. The user's calls are numbered
// from the next one on.
inline constexpr uint64_t kMeetingSequence = 1;
// No collective call has this sequence number. A question with it is about messages: for whom does a rank wait in send
// or recv?
inline constexpr uint64_t kMessagesSequence = 0;

// What this rank sends to a peer over TCP: bytes that the peer's kernel has acknowledged.
struct LinkRate {
  int peer = -1;                  // world rank; -1: none is known
  uint64_t bytes_per_second = 0;  // over the last heartbeat
  uint64_t best = 0;              // the most that it has moved, in bytes per second

  // Part of the peer's best rate; 0 where that is not known.
  double share() const {
    return static_cast<double>(bytes_per_second) / static_cast<double>(std::max<uint64_t>(best, 1));
  }
};

// What a rank is doing, for the question "why does this operation not move?".
struct CallState {
  uint64_t current = 0;      // sequence of the newest collective call made on the communicator; 0: none yet
  uint64_t fingerprint = 0;  // of the call with the sequence that was asked for; 0 if not made yet or too long ago
  // That call in words, e.g. "all_reduce(count=8, float32, sum, ring)". Not made yet: what this rank waits in meanwhile
  // on another communicator; set by the fabric.
  std::string text;
  bool finished = false;  // that call has completed here
  // The route by which that call runs: its algorithm (types.h) << 32 | the version of the ranks' table of routes when
  // it was decided; 0 if it has not been. Members that know different ones can never complete the call.
  uint64_t route = 0;
  // The calling thread sleeps in a blocking send or recv for at least Config::stall_ms: its peer, or -1 for none or
  // any.
  bool in_p2p = false;
  int p2p_peer = -1;
  std::string p2p_text;
  // Bytes of messages that have moved, both ways: while it grows, waiting in p2p is no standstill.
  uint64_t p2p_moved = 0;
  // How often that thread has looked in vain for the end of its message: it has not run while this does not grow.
  uint64_t p2p_looks = 0;
  // Calls on this communicator came from more than one thread, or messages are under way beside the call, or bytes in
  // the network: waiting in p2p proves nothing.
  bool threads = false;
  uint64_t since_ms = 0;  // since the call began here, while it has not ended; 0: not long ago. Of kMessagesSequence:
                          // since the wait of p2p_text began
  LinkRate slowest;       // of this rank's links that have something to send, whatever the call; set by the fabric

  // At `sequence`.
  bool takes_part(uint64_t sequence) const { return sequence == kMessagesSequence ? in_p2p : current >= sequence; }
};

// The ranks for which this rank waits, by what the others have answered.
struct Waiting {
  std::vector<int> ranks;  // of the communicator; none: it waits for nobody, or it is not known yet
  std::string sentence;
};

// How far a rank was with a communicator when it failed it.
enum class Stage : uint8_t {
  kMaking = 0,  // it does not have it yet: the call that makes it may fail on the others, too
  kUse = 1,     // it has it, so all members do; on those that still make it a later call fails
};

// What happens to one communicator; implemented by the engine. Called from any thread, with no lock of the fabric held;
// the calls must not block.
class CommunicatorEvents {
 public:
  virtual ~CommunicatorEvents() = default;
  // The communicator is over; the first reason wins. Called again where it is a loss (kPeerLost) and another member has
  // died since: with all of them. stage: of the rank whose error it is.
  virtual void on_failure(const Error& error, Stage stage) = 0;
  // `peer` said goodbye after its call number `last_sequence`; operations up to that one may still complete here. The
  // p2p stream that it opened to this rank has come.
  virtual void on_peer_left(int peer, uint64_t last_sequence) = 0;
  // What this rank does, or did, at `sequence`.
  virtual CallState call_state(uint64_t sequence) = 0;
  // In which call or message it has waited for a while, in words; empty: in none.
  virtual std::string waits_in() { return {}; }
  // All that it does, for people: an object of JSON. whom: whom this rank waits for in the call of that sequence, while
  // it lasts, else in a message.
  using AskWhom = std::function<Waiting(uint64_t sequence, const CallState& messages)>;
  virtual std::string status_json(const AskWhom& /*whom*/) { return "null"; }
  // The counters of this rank's join, as Prometheus reads them.
  virtual std::string metrics_text() { return {}; }
  // Somebody has written to Fabric::wake_event().
  virtual void on_wake() {}
  // The fabric has failed on this rank, and has no memory to say why. Called with the fabric's lock held: it must not
  // call the fabric.
  virtual void on_broken() noexcept {}
};

// One link: two ranks have the same one, each with the other as peer.
struct LinkKey {
  uint64_t communicator = 0;
  int peer = -1;
};

// How a link is cut. Equal on both sides.
struct LinkShape {
  uint32_t depth = 2;            // slices
  uint32_t slice_bytes = 65536;  // the largest slice
  bool checked = false;          // slices carry checksums, over byte streams; for the fabric to choose
};

// What a rank of an island shows the other members of a communicator that it has opened.
struct RankPage {
  std::shared_ptr<std::byte> memory;  // kRankPageBytes, zeroed when it opened it; null: it is not there (yet)
  std::shared_ptr<Bell> bell;         // of its collectives; unspecified for this rank
};
inline constexpr size_t kRankPageBytes = 4096 - 256;  // aligned to 256 bytes

// What the members of a communicator have agreed on.
struct Shrunk {
  std::vector<int> members;  // who goes on: world ranks, in the communicator's order
  bool grown = false;        // in the communicator with newcomers
};

// Which members a stalled rank asks.
enum class Ask { kInTurn, kAll };

// Everything between the processes of a job: who they are, data links, p2p streams and the control plane. One per rank,
// shared by its communicators. Any thread.
class Fabric {
 public:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  virtual ~Fabric() = default;

  virtual const Place& place() const = 0;
  virtual const Topology& topology() const = 0;
  // "rank 3 (host b, pid 17)", for messages.
  virtual std::string peer_name(int peer) const = 0;
  // Its process id, as it knows itself, if it is on this host; else 0.
  virtual int64_t process(int peer) const = 0;
  // Every other process has proved that it knows the job's secret, or they are all this process.
  virtual bool authenticated() const { return true; }

  // What this rank's threads sleep on, and its doorbells are made over.
  virtual const std::shared_ptr<Sleepers>& sleepers() const = 0;

  // --- communicators. `id` is equal on all members; events must live until close() has returned.
  // members: world ranks, this rank among them. doorbell is rung when a link or page that this rank waits for has come,
  // p2p_doorbell for streams.
  virtual void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events,
                    std::shared_ptr<Doorbell> doorbell, std::shared_ptr<Doorbell> p2p_doorbell) = 0;
  // Instead of open(): this rank cannot. The others' communicator fails with this error (its ranks are world ranks),
  // now or once they open it.
  virtual void decline(uint64_t id, const std::vector<int>& members, const Error& error) = 0;
  // This rank has made it: what it fails with from now on is of its use (Stage).
  virtual void made(uint64_t id) = 0;
  // Says goodbye to the members (bye carries last_sequence). True if each has said it too or is lost. Does not wait; a
  // second call only looks.
  virtual bool leave(uint64_t id, uint64_t last_sequence) = 0;
  // leave(), then waits until each has said it, at most until the deadline. True if all did. What this rank has said
  // has gone then, also where the process ends at once. Afterwards no event of this communicator is delivered, and
  // links not yet taken are closed.
  virtual bool close(uint64_t id, uint64_t last_sequence, std::chrono::steady_clock::time_point deadline) = 0;

  // --- data. The first call asks for the link, which is made in the background by either side's wish; nullptr until it
  // is there (the doorbell rings). Its descriptors are then watched by the communicator's doorbell. Each link is taken
  // once. A failure to connect reaches the communicator as on_failure, naming both ends. The shape must be equal on
  // both sides.
  virtual std::unique_ptr<Link> take_link(const LinkKey& key, const LinkShape& shape) = 0;
  // One stream for each direction of p2p: the sender's side asks for it by take_stream_to (as take_link), the
  // receiver's side finds those that have come by take_stream_from: {peer, stream}.
  virtual std::unique_ptr<ByteStream> take_stream_to(uint64_t communicator, int peer) = 0;
  virtual std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(uint64_t communicator) = 0;

  // Whether what is written on streams to `peer` is to carry checksums.
  virtual bool checksums([[maybe_unused]] int peer) const { return false; }

  // The page of `rank`, this one or another of this island. The doorbell rings when it comes. The maker uses its memory
  // for nothing else before all members have let go of it.
  virtual RankPage page_of([[maybe_unused]] uint64_t communicator, [[maybe_unused]] int rank) { return {}; }
  // A window of this rank that the others find as long as any member uses this rank's page: one may read there what
  // this rank has left.
  virtual void keep([[maybe_unused]] uint64_t communicator, [[maybe_unused]] std::shared_ptr<Window> window) {}
  // Memory shared with the other ranks of this rank's island; nullptr where it has none. As long as the fabric.
  virtual SharedMemory* shared_memory() { return nullptr; }

  // --- control
  // The operation `sequence` has not moved for Config::stall_ms: asks every member what it does. A mismatch becomes
  // on_failure on every rank within a second. Call again while it lasts (at most every stall_ms).
  // In a communicator of more than 64 ranks kInTurn asks a part of the members, the next ones each time.
  // kMessagesSequence: a thread of this rank waits for a message; the log says for whom, and whom that one waits for.
  virtual void stalled(uint64_t communicator, uint64_t sequence, Ask ask = Ask::kInTurn) = 0;
  // Members whose last answer (or silence) says that they have not made the call `sequence`, ascending; of those that
  // were asked about it.
  virtual std::vector<int> absent(uint64_t communicator, uint64_t sequence) = 0;
  // A data link or stream to `peer` failed. The fabric waits 100 ms for a better reason (an abort, a goodbye, a death),
  // and for the rest of the suspicion where the peer is silent; then it fails the communicator, naming the peer. Damage
  // (kCorrupt) fails it at once.
  virtual void link_failed(uint64_t communicator, int peer, const Error& error) = 0;
  // Fails the communicator on every member, here included (on_failure), with this error (its ranks are world ranks).
  virtual void abort(uint64_t communicator, const Error& error) = 0;
  // Which members of a failed communicator go on, the same on all of them. Waits for those that can be reached and have
  // not called; without them after `patience`. opened: this rank has a communicator of all members and newcomers, in
  // which they go on where all of them have it. Throws Exception: kEpochStale (others go on without this rank),
  // kNoQuorum, kTimeout, kInterrupted; the ranks are world ranks.
  virtual Shrunk shrink(uint64_t communicator, std::chrono::milliseconds patience, bool opened) = 0;
  // After stalled() and a moment for the answers: whom the members wait for in this call, and why, as one sentence; ""
  // if nobody is known to be late. kMessagesSequence: whom the message waits for that a thread of this rank waits for;
  // "" if none does.
  virtual std::string blame(uint64_t communicator, uint64_t sequence) = 0;
  // An eventfd: after a write to it every open communicator's on_wake() is called. Constant, so that a signal handler
  // may use it; -1: there is none.
  virtual int wake_event() const { return -1; }
};

}  // namespace rondo
