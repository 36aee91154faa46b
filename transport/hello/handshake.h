#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rondo/error.h"
#include "transport/auth/authenticator.h"
#include "transport/hello/wire.h"

namespace rondo {

// How two ranks prove to each other that they know the job's secret, as two state machines without socket or clock:
// hello from the dialer, answer from the acceptor, confirm from the dialer. Each proof covers every byte said so far,
// and with it both nonces, so that nothing that was said on another connection, or by the other side, fits.
// docs/wire.md has the bytes.

inline constexpr size_t kConfirmBytes = sizeof(Mac);

// The dialer's side: hello(), then judge() of the answer, and after a welcome confirm().
class DialerHandshake {
 public:
  // auth must live as long as this object. The hello's nonce and proof are made here, anew for each connection.
  DialerHandshake(Hello hello, const Authenticator& auth);

  const std::string& hello() const { return hello_; }

  struct Verdict {
    bool welcome = false;
    bool busy = false;  // worth another try
    Error error;        // kProtocol, kAuthFailed or kNetwork (refused); its text begins with what the peer did
  };
  // answer: kAnswerBytes bytes, or fewer where their beginning is none of Rondo's.
  Verdict judge(std::string_view answer);
  // After a welcome.
  std::string confirm() const;
  // The key of the TLS that follows; none: what follows is not sealed.
  std::optional<Key> tls_key() const;

 private:
  const Authenticator* auth_;
  uint32_t destination_;
  bool sealed_;
  std::string hello_, answer_;
};

// The acceptor's side: hear() the hello, answer(), and after a welcome confirmed(). auth must live as long as this
// object.
class AcceptorHandshake {
 public:
  // seals: connections are to be sealed where the dialer asks for it. A client of the store says itself whether its
  // connection is: a store may be served before the job's settings are known.
  explicit AcceptorHandshake(const Authenticator& auth, bool seals = false) : auth_(&auth), seals_(seals) {}

  // From kHelloBytes bytes. nullopt: malformed. Otherwise refusal() says what a stranger may hear: the version or
  // kAuthFailed; only without a refusal the hello is that of a process which knows the secret.
  std::optional<Hello> hear(std::string_view hello);
  const std::optional<Answer>& refusal() const { return refusal_; }

  // The answer's bytes, with nonce and proof. A refusal() goes before `verdict`, and has neither.
  std::string answer(Answer verdict);
  // Behind a welcome: the dialer answers this nonce, so it is no replay.
  bool confirmed(std::string_view confirm) const;
  // The same, after a confirmation.
  std::optional<Key> tls_key() const;

 private:
  const Authenticator* auth_;
  bool seals_;
  bool sealed_ = false;
  // hello_ and answer_ are the bytes as they travelled: proofs and keys are made of them.
  std::optional<Answer> refusal_;
  std::string hello_, answer_;
};

}  // namespace rondo
