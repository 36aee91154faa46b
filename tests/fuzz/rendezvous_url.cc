// Rendezvous strings: refused as kInvalid, or taken; a taken address reads the same when it is written again.
#include "transport/rendezvous/rendezvous_url.h"

#include "rondo/error.h"
#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

void check_round_trip(const RendezvousUrl& url) {
  using Kind = RendezvousUrl::Kind;
  if (url.kind != Kind::kTcp && url.kind != Kind::kUnique) return;
  const std::string text =
      url.kind == Kind::kTcp ? tcp_url(url.host, url.port) : unique_url(url.host, url.port, url.key);
  const RendezvousUrl again = parse_rendezvous(text);
  RONDO_CHECK(again.kind == url.kind && again.host == url.host && again.port == url.port && again.key == url.key,
              "an address survives being written");
}

}  // namespace

std::vector<std::string> seeds() {
  return {"",
          "tcp://host:1234",
          "tcp://[fe80::1]:65535",
          "unix:///run/job.sock",
          "file:///shared/job",
          "pmi:",
          "pmix:",
          "store:",
          unique_url("10.0.0.1", 4000, {1, 2, 3}),
          unique_url("::1", 4000, {255, 254})};
}

void try_input(std::string_view input) {
  try {
    const RendezvousUrl url = parse_rendezvous(input);
    RONDO_CHECK(url.host.size() <= 255, "a host name has a bound");
    check_round_trip(url);
  } catch (const Exception& refusal) {
    RONDO_CHECK(refusal.code() == ErrorCode::kInvalid, "a string that is wrong is INVALID");
  }
}

}  // namespace rondo::fuzz
