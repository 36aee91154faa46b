#include "transport/rendezvous/peer_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ring/base/bytes.h"
#include "ring/base/cores.h"
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

// Fields longer than their bounds are cut, and endpoints beyond kMaxEndpoints left out.
std::string encode(const PeerCard& card) {
  ByteWriter writer;
  writer.raw(kCardMagic).u16(card.wire_version).u32(card.rank).u32(card.world).u32(card.pid);
  writer.short_text(card.job_id, kMaxHelloJobIdBytes)
      .short_text(card.host_identity, kMaxNameBytes)
      .short_text(card.host_name, kMaxNameBytes);
  writer.u64(card.instance).u64(card.shared_hash).short_text(card.config, kMaxConfigBytes);
  const size_t endpoints = std::min(card.endpoints.size(), kMaxEndpoints);
  writer.u16(static_cast<uint16_t>(endpoints));
  for (size_t i = 0; i < endpoints; ++i) {
    writer.short_text(card.endpoints[i].address, kMaxNameBytes).u16(card.endpoints[i].port);
  }
  writer.short_text(card.cores, kCoreSetBytes).u64(card.quota.group).u32(card.quota.cores);
  writer.u64(card.process_class).short_text(card.probe_listener, kMaxListenerBytes);
  return writer.take();
}

// The version comes first, since the layout of another one is not known.
PeerCard decode_card(std::string_view bytes, int rank) {
  ByteReader reader(bytes);
  PeerCard card;
  if (reader.raw(kCardMagic.size()) != kCardMagic) reject(rank, "what it published is no card of Rondo");
  card.wire_version = reader.u16();
  if (card.wire_version != kWireVersion) {
    reject(rank, fmt::format("it speaks version {} of the wire format, this process version {}", card.wire_version,
                             kWireVersion));
  }
  card.rank = reader.u32();
  card.world = reader.u32();
  card.pid = reader.u32();
  card.job_id = reader.short_text(kMaxHelloJobIdBytes);
  card.host_identity = reader.short_text(kMaxNameBytes);
  card.host_name = reader.short_text(kMaxNameBytes);
  card.instance = reader.u64();
  card.shared_hash = reader.u64();
  card.config = reader.short_text(kMaxConfigBytes);
  const size_t endpoints = reader.u16();
  for (size_t i = 0; i < endpoints && i < kMaxEndpoints; ++i) {
    std::string address(reader.short_text(kMaxNameBytes));
    card.endpoints.push_back({std::move(address), reader.u16()});
  }
  card.cores = reader.short_text(kCoreSetBytes);
  card.quota.group = reader.u64();
  card.quota.cores = reader.u32();
  card.process_class = reader.u64();
  card.probe_listener = reader.short_text(kMaxListenerBytes);
  if (!reader.done()) reject(rank, "what it published is malformed");
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
    const Mac proof = ByteReader(bytes.substr(bytes.size() - sizeof(Mac))).array<sizeof(Mac)>();
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
