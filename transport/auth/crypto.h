#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace rondo {

// The project's way to OpenSSL (libcrypto 3), with records.h. Any thread. Throws Exception(kSystem) where the library
// or the kernel refuses.

// Before any other use of the library.
void prepare_crypto();

using Key = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;
using Nonce = std::array<uint8_t, 32>;

// HMAC-SHA256 (RFC 2104) of the parts; each is preceded by its length, so that no two lists of parts look alike.
Mac hmac_sha256(const Key& key, std::initializer_list<std::string_view> parts);

// HKDF-SHA256 (RFC 5869), 32 bytes.
Key hkdf_sha256(std::string_view secret, std::string_view salt, std::string_view info);

// The time does not depend on where they differ. Of equal length.
bool equal_in_constant_time(std::span<const uint8_t> one, std::span<const uint8_t> other);

void fill_random(std::span<uint8_t> bytes);
Nonce random_nonce();

inline std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace rondo
