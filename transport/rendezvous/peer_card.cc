#include "transport/rendezvous/peer_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ring/base/cores.h"
#include "ring/base/fields.h"
#include "ring/base/hash.h"
#include "ring/base/json_text.h"
#include "rondo/error.h"
#include "transport/auth/crypto.h"
#include "transport/hello/wire.h"

namespace rondo {
namespace {

constexpr std::string_view kCardMagic = "RONDOCARD";
constexpr std::string_view kCardLabel = "rondo card";
// Bounds of a card's fields: a store may be anybody's, and every rank keeps the cards of all.
constexpr size_t kMaxNameBytes = 255;
constexpr size_t kMaxListenerBytes = 64;
constexpr size_t kMaxConfigBytes = 16'384;
constexpr size_t kMaxEndpoints = 64;

// The start fails on all ranks, since all read the same cards.
[[noreturn]] void reject(int rank, const std::string& what) {
  throw Exception(Error{ErrorCode::kBootstrap, fmt::format("rank {} cannot join: {}", rank, what), {rank}});
}

// The line "name=value" in lines like Config::describe()'s; empty: there is none.
std::string_view line_of(std::string_view config, std::string_view name) {
  while (!config.empty()) {
    const std::string_view line = config.substr(0, config.find('\n'));
    if (line.size() > name.size() && line.substr(0, name.size()) == name && line[name.size()] == '=') return line;
    config.remove_prefix(std::min(config.size(), line.size() + 1));
  }
  return {};
}

// The first of the settings that must be equal and are not.
std::string difference(const PeerCard& one, const PeerCard& other) {
  const std::string defaults = Config{}.describe();
  const auto setting = [&defaults](const PeerCard& card, std::string_view name) {
    const std::string_view changed = line_of(card.config, name);
    return changed.empty() ? line_of(defaults, name) : changed;
  };
  for (std::string_view name : Config::shared_names()) {
    const std::string_view theirs = setting(one, name), ours = setting(other, name);
    if (theirs != ours) return fmt::format("{}, but {} on rank {}", theirs, ours, other.rank);
  }
  return fmt::format("its shared settings differ from those of rank {}", other.rank);
}

// All compare with rank 0's card, so all ranks name the same one in their errors.
void check(const PeerCard& card, int rank, const PeerCard& first, int world) {
  if (card.rank != static_cast<uint32_t>(rank)) reject(rank, fmt::format("its card is that of rank {}", card.rank));
  if (card.job_id != first.job_id) {
    reject(rank,
           fmt::format("it belongs to job {}, rank 0 to job {}", json_text(card.job_id), json_text(first.job_id)));
  }
  if (card.world != static_cast<uint32_t>(world)) {
    reject(rank, fmt::format("it was started in a world of {}, rank 0 in a world of {}", card.world, first.world));
  }
  if (card.shared_hash != first.shared_hash) {
    reject(rank, fmt::format("settings that must be equal differ: {}", difference(card, first)));
  }
  if (card.endpoints.empty()) reject(rank, "it published no address");
}

}  // namespace

// Both descriptions have the settings line by line, in one order.
std::string changes_of(const Config& config) {
  const std::string settings = config.describe(), defaults = Config{}.describe();
  std::string changes;
  for (std::string_view rest = settings; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (line_of(defaults, line.substr(0, line.find('='))) != line) changes.append(line).push_back('\n');
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  return changes;
}

static void fields(Fields& bytes, CoreQuota& quota) { bytes(quota.group, quota.cores); }

// The version comes first, since the layout of another one is not known.
static void fields(Fields& bytes, PeerCard& card) {
  bytes.constant(kCardMagic)(card.wire_version);
  if (bytes.reads() && card.wire_version != kWireVersion) return;
  bytes(card.rank, card.world, card.pid)
      .text(card.job_id, kMaxHelloJobIdBytes)
      .text(card.host_identity, kMaxNameBytes)
      .text(card.host_name, kMaxNameBytes)(card.instance, card.shared_hash)
      .text(card.config, kMaxConfigBytes)
      .list(card.endpoints, kMaxEndpoints,
            [&bytes](Endpoint& endpoint) { bytes.text(endpoint.address, kMaxNameBytes)(endpoint.port); });
  bytes.text(card.cores, kCoreSetBytes)(card.quota, card.process_class).text(card.probe_listener, kMaxListenerBytes);
}

std::string encode(const PeerCard& card) { return encoded(card); }

PeerCard decode_card(std::string_view whole, int rank) {
  if (!whole.starts_with(kCardMagic)) reject(rank, "what it published is no card of Rondo");
  Fields bytes(whole);
  PeerCard card;
  bytes(card);
  if (bytes.ok() && card.wire_version != kWireVersion) {
    reject(rank, fmt::format("it speaks version {} of the wire format, this process version {}", card.wire_version,
                             kWireVersion));
  }
  if (!bytes.done()) reject(rank, "what it published is malformed");
  return card;
}

// The proof has a fixed length, so it is found from the end.
std::string seal_card(std::string card, const Authenticator& auth) {
  const Mac proof = auth.prove(kCardLabel, {card});
  return card.append(as_text(proof));
}

// The session is a hash of all cards with their random numbers, so it differs from start to start, and only ranks that
// have read all cards know it.
Roster::Roster(const std::vector<std::string>& sealed, const Authenticator& auth) {
  Hash64 session;
  Hmac prove = auth.prover(kCardLabel);
  for (size_t index = 0; index < sealed.size(); ++index) {
    const int rank = static_cast<int>(index);
    std::string_view bytes = sealed[index];
    if (bytes.size() < sizeof(Mac)) reject(rank, "what it published is no card of Rondo");
    const Mac proof = *decoded<Mac>(bytes.substr(bytes.size() - sizeof(Mac)));
    bytes.remove_suffix(sizeof(Mac));
    cards_.push_back(decode_card(bytes, rank));
    if (!equal_in_constant_time(proof, prove({bytes}))) {
      throw Exception(
          Error{ErrorCode::kAuthFailed,
                fmt::format("rank {} ({}) does not know this process's secret: {}", rank, name(rank), auth.advice()),
                {rank}});
    }
    session.add(as_text(proof));  // which stands for all of the card, its random number among it
  }
  session_ = session.value();
  for (int rank = 0; rank < world(); ++rank) check(card(rank), rank, cards_.front(), world());
}

std::string Roster::name(int rank) const {
  return fmt::format("host {}, pid {}", card(rank).host_name, card(rank).pid);
}

std::vector<std::string> Roster::names() const {
  std::vector<std::string> result;
  for (int rank = 0; rank < world(); ++rank) result.push_back(name(rank));
  return result;
}

// Hosts are numbered by their first rank. Cores are counted for each host over all of its ranks, within their quotas.
Topology Roster::topology() const {
  Topology topology;
  std::map<std::string, int> hosts;
  for (const PeerCard& card : cards_) {
    topology.host.push_back(hosts.emplace(card.host_identity, static_cast<int>(hosts.size())).first->second);
  }
  std::vector<std::vector<cpu_set_t>> allowed(hosts.size());
  std::vector<std::vector<CoreQuota>> quotas(hosts.size());
  for (size_t r = 0; r < cards_.size(); ++r) {
    const auto host = static_cast<size_t>(topology.host[r]);
    allowed[host].push_back(unpack_cores(cards_[r].cores));
    quotas[host].push_back(cards_[r].quota);
  }
  std::vector<int> between;
  for (size_t host = 0; host < allowed.size(); ++host) {
    between.push_back(cores_within(cores_between(allowed[host]), quotas[host]));
  }
  for (const int host : topology.host) topology.cores.push_back(between[static_cast<size_t>(host)]);
  return topology;
}

}  // namespace rondo
