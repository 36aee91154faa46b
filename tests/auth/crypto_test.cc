// Proves: what the project calls HMAC and HKDF gives the values of the standards.
#include "transport/auth/crypto.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "tests/support/secrets.h"

namespace rondo {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

TEST_CASE("HKDF-SHA256: the first and third test case of RFC 5869, their first 32 bytes") {
  const std::string secret(22, '\x0b');
  CHECK(as_text(hkdf_sha256(secret, from_hex("000102030405060708090a0b0c"), from_hex("f0f1f2f3f4f5f6f7f8f9"))) ==
        from_hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"));
  CHECK(as_text(hkdf_sha256(secret, "", "")) ==
        from_hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"));
}

TEST_CASE("HMAC: two lists of parts that join to the same bytes have different proofs") {
  const Key key{1, 2, 3};
  CHECK(Hmac(key)({"ab", "c"}) != Hmac(key)({"a", "bc"}));
  CHECK(Hmac(key)({"abc"}) != Hmac(key)({"abc", ""}));
  CHECK(Hmac(key)({"abc"}) == Hmac(key)({"abc"}));
  CHECK(Hmac(Key{1, 2, 4})({"abc"}) != Hmac(key)({"abc"}));
}

TEST_CASE("HMAC: the proofs of one object do not depend on what it has proved before") {
  const Key key{1, 2, 3};
  Hmac hmac(key);
  for (const char* text : {"abc", "", "abc", "abcd"}) {
    CAPTURE(text);
    CHECK(hmac({text}) == Hmac(key)({text}));
  }
}

TEST_CASE("HMAC-SHA256 of a part behind its length is what Python computes") {
  // python3 -c 'import hmac; print(hmac.new(b"Jefe"+bytes(28), (3).to_bytes(8,"little")+b"abc", "sha256").hexdigest())'
  Key key{'J', 'e', 'f', 'e'};
  CHECK(as_text(Hmac(key)({"abc"})) == from_hex("03636874c67a8f9fef37ba4a8291da27ce59fcb6c0476fb53c52bea471973013"));
}

TEST_CASE("nonces differ, and equality in constant time is equality") {
  std::set<Nonce> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_nonce());
  CHECK(seen.size() == 1000);
  Mac one{}, other{};
  CHECK(equal_in_constant_time(one, other));
  for (size_t i = 0; i < one.size(); ++i) {
    other = one;
    other[i] ^= 0x80;
    CHECK_FALSE(equal_in_constant_time(one, other));
  }
}

TEST_CASE("an authenticator's proofs and keys depend on the secret, the label and every part") {
  const Authenticator a = testing::knowing(std::string(16, 'a')), b = testing::knowing(std::string(16, 'b')), none;
  CHECK(a.holds(a.prove("l", {"x"}), "l", {"x"}));
  CHECK_FALSE(a.holds(b.prove("l", {"x"}), "l", {"x"}));
  CHECK_FALSE(a.holds(none.prove("l", {"x"}), "l", {"x"}));
  CHECK_FALSE(a.holds(a.prove("m", {"x"}), "l", {"x"}));
  CHECK_FALSE(a.holds(a.prove("l", {"y"}), "l", {"x"}));
  std::set<Key> keys{a.connection_key("h", "a"), a.connection_key("g", "a"), a.connection_key("h", "b"),
                     b.connection_key("h", "a")};
  CHECK(keys.size() == 4);
}

}  // namespace
}  // namespace rondo
