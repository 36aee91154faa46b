#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"

namespace rondo {

// Ranks of one host try at start, in pairs (tried_by()), what they could share: a unix connection with descriptors,
// memory written by one and read by the other, and the kernel's copy from one process to another.

// Equal in processes of a host that the kernel treats alike in this, as far as one can ask it: of one user, one
// security label, and the same namespaces. 0: this process cannot tell.
uint64_t process_class();

// Where the other ranks of the host reach this one. Made before its name is published.
class ProbeListener {
 public:
  // A listener that cannot be had (the kernel forbids it) has no name, and says why.
  explicit ProbeListener(int world);
  const std::string& name() const { return name_; }
  const std::string& why() const { return why_; }
  int socket() const { return socket_.get(); }
  Descriptor take_socket() { return std::move(socket_); }  // of what comes after the probe

 private:
  Descriptor socket_;
  std::string name_, why_;
};

// Another rank of the host, as its card says.
struct Neighbor {  // another rank of the host
  int rank = -1;
  pid_t pid = 0;
  std::string name;      // "rank 3 (host b, pid 17)"
  std::string listener;  // ProbeListener::name(); "": it has none
};

struct ProbeOrder {
  int rank = 0;
  int world = 1;
  uint64_t session = 0;  // hash of everything that the ranks published: only a rank of this start knows it
  std::vector<Neighbor> peers;
  std::chrono::steady_clock::time_point deadline;  // for all of it
  std::chrono::milliseconds patience;              // without a pair that finished, the rest is given up
  std::function<bool(int rank)> gone;              // that rank has died or left: it is not waited for
};

// What came of one pair, as this rank sees it. The two ranks may differ: find_islands() takes the weaker.
struct ProbeResult {
  int rank = -1;
  bool pulls = false;
  std::string why_not;  // "": they share
};

// By ascending rank. Never throws for what a peer does.
std::vector<ProbeResult> probe_peers(const ProbeListener& listener, const ProbeOrder& order);

}  // namespace rondo
