#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/config.h"
#include "rondo/store.h"
#include "transport/rendezvous/launch.h"
#include "transport/rendezvous/rendezvous_url.h"

namespace rondo {

class StoreServer;

// Where processes that have no rank wait for one (RONDO_JOIN): addresses, comma-separated, "tcp://host:port" or
// "unix:///path". A rank serves the first that is its machine's; newcomers try all of them in turn.

// Throws Exception(kInvalid) that names the address and says which forms there are.
void check_door_addresses(const std::string& addresses);

// What a newcomer gets: its place in the start of a larger world.
struct Seat {
  int rank = 0, world = 0;
  uint64_t epoch = 0;                    // of that world
  std::chrono::milliseconds patience{};  // of the start
  std::string job_id, rendezvous;        // of the start
  std::shared_ptr<Store> door = {};      // a newcomer's: open until the start is over, so that the ranks see it live
};

// The launch of the start that this process takes part in. Throws Exception(kNetwork) where the name of its host is not
// known by the deadline.
Launch launch_of(const Launch& launch, const Seat& seat, Store::Deadline deadline);

// A newcomer's part: waits for a seat, by whichever rank serves it. Throws Exception: kTimeout; at once kPeerLeft
// (the job has ended), kBootstrap (it is another job), kProtocol (its answer is malformed) and kAuthFailed.
Seat await_seat(const Launch& launch, const Config& config, Store::Deadline deadline);

// A rank's part. It is served from a thread, until destruction.
class Door {
 public:
  // Throws Exception: kInvalid where no address is this machine's, kBootstrap where another process serves it.
  Door(const Launch& launch, const Config& config, Store::Deadline deadline);
  ~Door();
  // To those that wait: the job is over. Returns once it has been sent.
  void end() const;

  // Its address is of one host: a unix path, or loopback.
  bool on_one_host() const { return on_one_host_; }
  // Newcomers that wait.
  int waiting() const;
  // Those that came first, `count` of them once so many wait, else those that wait at the deadline, or once
  // `cancelled`, asked every 2 ms, is true: no more are of use.
  std::vector<std::string> await(
      size_t count, Store::Deadline deadline, const std::function<bool()>& cancelled = [] { return false; }) const;
  // The store of a start of its own, on this rank, which is its rank 0; sets the seat's job_id and rendezvous.
  std::shared_ptr<Store> serve_start(Seat& seat, Store::Deadline deadline) const;
  // The newcomers get rank, rank + 1, ... of this seat.
  void admit(const std::vector<std::string>& newcomers, Seat seat) const;
  // One of them has gone; in the start it is to stay until the start has ended.
  bool any_gone(const std::vector<std::string>& newcomers) const;

 private:
  const Launch launch_;
  const Config config_;
  // The address of launch_.newcomers that is this machine's.
  const RendezvousUrl url_;
  const bool on_one_host_;
  const std::unique_ptr<StoreServer> store_;  // without a last key: it is there until it is destroyed
};

}  // namespace rondo
