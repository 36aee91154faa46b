#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

struct evp_mac_ctx_st;

namespace rondo {

// The project's way to OpenSSL (libcrypto 3), with tls_session.h. Any thread. Throws Exception(kSystem) where the
// library or the kernel refuses.

// Before any other use of the library.
void prepare_crypto();

using Key = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;
using Nonce = std::array<uint8_t, 32>;

// HMAC-SHA256 (RFC 2104) by one key. OpenSSL looks its algorithm up for each new object, which takes longer than the
// MAC of a short text: who checks many texts keeps one. One thread at a time.
class Hmac {
 public:
  explicit Hmac(const Key& key);
  ~Hmac();
  Hmac(const Hmac&) = delete;
  Hmac& operator=(const Hmac&) = delete;
  // Each part is preceded by its length, so that no two lists of parts look alike.
  Mac operator()(std::initializer_list<std::string_view> parts);

 private:
  const Key key_;
  evp_mac_ctx_st* context_;
};

// HKDF-SHA256 (RFC 5869), 32 bytes.
Key hkdf_sha256(std::string_view secret, std::string_view salt, std::string_view info);

// The time does not depend on where they differ. Of equal length.
bool equal_in_constant_time(std::span<const uint8_t> one, std::span<const uint8_t> other);

void fill_random(std::span<uint8_t> bytes);
Nonce random_nonce();
uint64_t random_number();

inline std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace rondo
