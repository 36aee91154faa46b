#include "transport/auth/authenticator.h"

#include <fmt/format.h>

namespace rondo {
namespace {

// docs/wire.md has the salt and the infos.
constexpr std::string_view kSalt = "rondo secret 1";

}  // namespace

Authenticator::Authenticator(const Secret& secret)
    : secret_name_(secret.exists() ? secret.name : "none (RONDO_INSECURE=1)"),
      proof_key_(hkdf_sha256(secret.bytes, kSalt, "proofs")),
      root_key_(hkdf_sha256(secret.bytes, kSalt, "connections")) {}

// A label has a key of its own, so a proof of one message never fits another.
Hmac Authenticator::prover(std::string_view label) const { return Hmac(Hmac(proof_key_)({label})); }

Mac Authenticator::prove(std::string_view label, std::initializer_list<std::string_view> parts) const {
  return prover(label)(parts);
}

bool Authenticator::holds(const Mac& proof, std::string_view label,
                          std::initializer_list<std::string_view> parts) const {
  return equal_in_constant_time(proof, prove(label, parts));
}

// Hello and answer hold a random nonce each, so no two connections have the same key.
Key Authenticator::connection_key(std::string_view hello, std::string_view answer) const {
  const Mac transcript = Hmac(root_key_)({hello, answer});
  return hkdf_sha256(as_text(root_key_), as_text(transcript), "tls 1.3 psk");
}

std::string Authenticator::advice() const {
  return fmt::format(
      "this process's secret is {}. All ranks need the same one: give them RONDO_SECRET_FILE, a file of mode 600 with "
      "the same content on every host and in every container",
      secret_name_);
}

}  // namespace rondo
