#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "transport/auth/crypto.h"
#include "transport/auth/secret.h"

namespace rondo {

// Proves to others that this process knows the job's secret, and finds out whether they do. A value, with the keys that
// follow from the secret and not the secret. Any thread.
//
// Without a secret the keys follow from an empty text, which everybody knows: the same bytes travel, and they prove
// nothing. So a process with a secret and one without refuse each other like two with different secrets.
class Authenticator {
 public:
  Authenticator() : Authenticator(Secret{}) {}
  explicit Authenticator(const Secret& secret);

  // label: what is proved, different for every message of every protocol, so that none can be taken for another.
  Mac prove(std::string_view label, std::initializer_list<std::string_view> parts) const;
  // In constant time.
  bool holds(const Mac& proof, std::string_view label, std::initializer_list<std::string_view> parts) const;
  // Makes the proofs of one label: for who has many of them to check.
  Hmac prover(std::string_view label) const;

  // The pre-shared key of one connection's TLS, from everything that was said to make it.
  Key connection_key(std::string_view hello, std::string_view answer) const;

  // For messages: where the secret came from.
  const std::string& secret_name() const { return secret_name_; }
  // For errors: what to compare where the other process has another secret.
  std::string advice() const;

 private:
  std::string secret_name_;
  // Derived from the secret by different labels, so that a key of one use says nothing of the other's.
  Key proof_key_{};
  Key root_key_{};  // of connection keys
};

}  // namespace rondo
