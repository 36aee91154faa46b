#include "transport/hello/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ring/base/fields.h"

namespace rondo {
namespace {

// docs/wire.md has the labels. They differ, so that no proof of one message is one of another, or of the other side.
constexpr std::string_view kHelloLabel = "rondo link hello";
constexpr std::string_view kAnswerLabel = "rondo link answer";
constexpr std::string_view kConfirmLabel = "rondo link confirm";

// The bytes as they travel, with zeros for the proof.
std::string without_proof(std::string_view bytes, size_t offset) {
  std::string result(bytes);
  std::fill_n(result.begin() + static_cast<std::ptrdiff_t>(offset), sizeof(Mac), '\0');
  return result;
}

Error auth_error(std::string what, const Authenticator& auth) {
  return {ErrorCode::kAuthFailed, fmt::format("{}: {}", what, auth.advice()), {}};
}

}  // namespace

// The proof covers the hello with zeros in its own place.
DialerHandshake::DialerHandshake(Hello hello, const Authenticator& auth)
    : auth_(&auth), destination_(hello.destination), sealed_(hello.sealed) {
  hello.nonce = random_nonce();
  hello.mac = {};
  hello.mac = auth.prove(kHelloLabel, {encode(hello)});
  hello_ = encode(hello);
}

// The version and AUTH_FAILED are believed without a proof: a peer of another version or secret cannot make one.
// Everything else in the answer counts only behind its proof.
DialerHandshake::Verdict DialerHandshake::judge(std::string_view bytes) {
  const std::optional<Answer> answer = parse_answer(bytes);
  if (!answer) return {false, false, {ErrorCode::kProtocol, "something that does not speak Rondo answers", {}}};
  if (answer->version != kWireVersion) {
    return {
        false,
        false,
        {ErrorCode::kNetwork,
         fmt::format("it speaks version {} of the wire format, this process version {}", answer->version, kWireVersion),
         {}}};
  }
  if (answer->code == AnswerCode::kAuthFailed) {
    return {false, false, auth_error("it did not accept this process's secret", *auth_)};
  }
  if (!auth_->holds(answer->mac, kAnswerLabel, {hello_, without_proof(bytes, kAnswerMacOffset)})) {
    return {false, false, auth_error("it did not prove that it knows this process's secret", *auth_)};
  }
  if (answer->rank != destination_) {
    return {false,
            false,
            {ErrorCode::kNetwork, fmt::format("rank {} answers instead of rank {}", answer->rank, destination_), {}}};
  }
  if (answer->code == AnswerCode::kBusy) return {false, true, {ErrorCode::kNetwork, answer->text, {}}};
  if (answer->code != AnswerCode::kWelcome) {
    return {false, false, {ErrorCode::kNetwork, "it refused the connection: " + answer->text, {}}};
  }
  if (answer->sealed != sealed_) {
    return {false, false, {ErrorCode::kNetwork, "RONDO_ENCRYPT is not equal there and here", {}}};
  }
  answer_ = bytes;
  return {true, false, {}};
}

std::optional<Key> DialerHandshake::tls_key() const {
  return sealed_ ? std::optional(auth_->connection_key(hello_, answer_)) : std::nullopt;
}

std::string DialerHandshake::confirm() const {
  return std::string(as_text(auth_->prove(kConfirmLabel, {hello_, answer_})));
}

// The bytes are kept also where they are refused. `sealed_` is what the answer will say: the dialer compares it.
std::optional<Hello> AcceptorHandshake::hear(std::string_view bytes) {
  std::optional<Hello> hello = parse_hello(bytes);
  if (!hello) return std::nullopt;
  Answer refused;
  if (hello->version != kWireVersion) {
    refused.code = AnswerCode::kVersion;
    refused.text =
        fmt::format("version {} of the wire format is spoken here, you speak version {}", kWireVersion, hello->version);
    refusal_ = std::move(refused);
  } else if (!auth_->holds(hello->mac, kHelloLabel, {without_proof(bytes, kHelloMacOffset)})) {
    refused.code = AnswerCode::kAuthFailed;
    refused.text = "AUTH_FAILED";
    refusal_ = std::move(refused);
  }
  sealed_ = hello->sealed && (seals_ || hello->role == Role::kStore);
  hello_ = bytes;
  return hello;
}

std::optional<Key> AcceptorHandshake::tls_key() const {
  return sealed_ ? std::optional(auth_->connection_key(hello_, answer_)) : std::nullopt;
}

std::string AcceptorHandshake::answer(Answer verdict) {
  if (refusal_) return encode(*refusal_);
  verdict.sealed = sealed_;
  verdict.nonce = random_nonce();
  verdict.mac = {};
  verdict.mac = auth_->prove(kAnswerLabel, {hello_, encode(verdict)});
  return answer_ = encode(verdict);
}

// In constant time, as every proof.
bool AcceptorHandshake::confirmed(std::string_view confirm) const {
  const auto proof = decoded<Mac>(confirm);
  return proof && auth_->holds(*proof, kConfirmLabel, {hello_, answer_});
}

}  // namespace rondo
