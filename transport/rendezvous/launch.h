#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ring/base/types.h"
#include "rondo/config.h"
#include "rondo/store.h"
#include "transport/auth/secret.h"
#include "transport/rendezvous/environment.h"

namespace rondo {

// The rendezvous where the program brings a Store of its own: open_store is then not called.
inline constexpr const char* kProgramsStore = "store:";
// The most ranks of a job: beyond any machine there is; keeps sums of ranks within int.
inline constexpr int64_t kMaxWorld = 1'000'000;

// What the program said about its place; -1 and empty are left to the environment.
struct LaunchRequest {
  int rank = -1;
  int world = -1;
  std::string rendezvous;
  std::string job_id;
  std::string newcomers = {};
};

// Where this process stands in its job, and how the job meets. A value, found once and passed on; nothing below reads
// the environment again, but for the PMI connection.
struct Launch {
  Place place;             // facts that the launcher did not say are -1: complete_place (roster.h) fills them in
  std::string job_id;      // processes with different ones refuse each other
  std::string rendezvous;  // "tcp://host:port", "file:///path", "unix:///path", "unique:...", "pmi:", "pmix:"
  std::string launcher;    // "rondo", "torchrun", "openmpi", "mpich", "slurm", "environment" or "program", for messages
  bool one_host = false;   // known to run on one host: loopback serves
  Secret secret = {};      // none in a job of one process, or with RONDO_INSECURE=1
  std::string newcomers = {};  // RONDO_JOIN: where processes without a rank ask for one (door.h); empty: nowhere
  // A file with one byte for each rank: the launcher sets it to 1 once it has seen the rank's process end. -1: none.
  int ended = -1;
  // Rank 0 asks it while ranks are missing: why they will not come, which ends the start; "" while they may.
  std::function<std::string()> cancelled = {};
};

// This process has no rank yet: it asks for one.
inline bool is_newcomer(const Launch& launch) { return launch.place.rank < 0; }

// Nothing says whether the ranks are on one host or on several: their host identities do (exchange_hosts, roster.h).
inline bool hosts_unknown(const Launch& launch) {
  return !launch.one_host && launch.place.nodes < 0 && launch.place.local_world < 0;
}

// Reads the request and the environment (docs/bootstrap.md has the order). Throws Exception(kInvalid) or (kBootstrap)
// naming the variable, its value and what to do; of a secret too (secret.h).
Launch find_launch(const LaunchRequest& request, const Config& config);
// The same as a pure function of the environment, without the secret. Where the job's id is that of a PMI server,
// job_id is left empty: only the server knows it.
Launch find_launch_in(const LaunchRequest& request, const Environment& environment);

// Opens the launch's store: rank 0 serves it where the rendezvous needs a server, and the returned object owns the
// server. Throws Exception(kBootstrap) or kTimeout; the message names the address and, where a port is taken, the
// variables that change it.
std::shared_ptr<Store> open_store(const Launch& launch, const Config& config, Store::Deadline deadline);

}  // namespace rondo
