#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/control_groups.h"
#include "ring/base/types.h"
#include "rondo/config.h"
#include "transport/auth/authenticator.h"
#include "transport/tcp/endpoint.h"

namespace rondo {

// What a rank tells the others about itself at the rendezvous. A decoded one is bounded in all its fields; what it says
// is checked by Roster.
struct PeerCard {
  uint16_t wire_version = 0;
  uint32_t rank = 0;
  uint32_t world = 0;
  uint32_t pid = 0;
  std::string job_id;  // bounded_job_id()
  std::string host_identity;
  std::string host_name;
  uint64_t instance = 0;  // random: tells two starts of the same rank apart
  uint64_t shared_hash = 0;
  std::string config;  // changes_of() its settings, to name the field that differs
  std::vector<Endpoint> endpoints;
  std::string cores;           // that the rank may use (pack_cores())
  CoreQuota quota;             // of processor time
  uint64_t process_class = 0;  // process_class()
  std::string probe_listener;  // ProbeListener::name(), where ranks of this host find this one; "": none
};

// The lines of Config::describe() that are not a default's. All ranks read the card of each: it is kept short.
std::string changes_of(const Config& config);

std::string encode(const PeerCard& card);
// Throws Exception(kBootstrap) naming the rank if the bytes are none of ours or of another version.
PeerCard decode_card(std::string_view bytes, int rank);
// What encode() gave, and behind it the proof that its maker knows the secret: this is published, since a store may be
// anybody's.
std::string seal_card(std::string card, const Authenticator& auth);

// The cards of all ranks, and what follows from them alone, so that it is equal everywhere. A value; its cards have
// been proved, and compared with rank 0's.
class Roster {
 public:
  // Throws Exception(kBootstrap) naming the first rank that does not fit rank 0's card: its version, job id, world, or
  // a setting that must be shared, with both values; kAuthFailed naming a rank with another secret.
  explicit Roster(const std::vector<std::string>& sealed, const Authenticator& auth = Authenticator());

  const PeerCard& card(int rank) const { return cards_[static_cast<size_t>(rank)]; }
  int world() const { return static_cast<int>(cards_.size()); }
  uint64_t session() const { return session_; }
  std::string name(int rank) const;  // "host b, pid 17"
  std::vector<std::string> names() const;
  Topology topology() const;  // without islands

 private:
  std::vector<PeerCard> cards_;
  uint64_t session_ = 0;
};

}  // namespace rondo
