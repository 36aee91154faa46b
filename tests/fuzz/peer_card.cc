// The card that a rank publishes: refused as kBootstrap with the rank's number, or decoded; what is decoded is the same
// when it is encoded again, and can be used for a roster.
#include "transport/rendezvous/peer_card.h"

#include "rondo/error.h"
#include "tests/fuzz/target.h"
#include "transport/hello/wire.h"

namespace rondo::fuzz {
namespace {

PeerCard card_of(uint32_t rank) {
  PeerCard card;
  card.wire_version = kWireVersion;
  card.rank = rank;
  card.world = 2;
  card.pid = 100 + rank;
  card.job_id = "job";
  card.host_identity = "boot/1";
  card.host_name = "host";
  card.instance = 9;
  card.shared_hash = 11;
  card.config = "RONDO_CONNECTIONS=1\nRONDO_ALGORITHM=auto\n";
  card.endpoints = {{"127.0.0.1", 4000}, {"::1", 4001}};
  card.cores = "\x0f";
  card.probe_listener = "0123456789abcdef0123456789abcdef";
  return card;
}

template <typename Call>
void refused_as(ErrorCode code, Call call) {
  try {
    call();
  } catch (const Exception& refusal) {
    RONDO_CHECK(refusal.code() == code && refusal.error().ranks.size() == 1, "a refusal names the rank");
  }
}

}  // namespace

std::vector<std::string> seeds() {
  PeerCard remote = card_of(1), bare = card_of(1), other = card_of(1);
  remote.host_identity = "boot/2";
  bare.endpoints.resize(1);
  bare.cores = bare.probe_listener = bare.config = "";
  other.shared_hash = 12;
  other.config = "RONDO_CONNECTIONS=2\n";
  return {encode(card_of(1)), encode(remote), encode(bare), encode(other)};
}

void try_input(std::string_view input) {
  refused_as(ErrorCode::kBootstrap, [&] {
    const std::string again = encode(decode_card(input, 1));
    RONDO_CHECK(encode(decode_card(again, 1)) == again, "a card survives being encoded");
  });
  const Authenticator auth;
  const std::string first = seal_card(encode(card_of(0)), auth);
  refused_as(ErrorCode::kBootstrap, [&] {
    const Roster roster({first, seal_card(std::string(input), auth)}, auth);
    RONDO_CHECK(roster.names().size() == 2 && roster.topology().world() == 2, "a roster has a place for every rank");
  });
}

}  // namespace rondo::fuzz
