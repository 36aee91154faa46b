#include "transport/auth/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <memory>
#include <string>

#include "ring/base/check.h"
#include "rondo/error.h"

namespace rondo {
namespace {

[[noreturn]] void refused(const char* what) {
  throw Exception(ErrorCode::kSystem, std::string("OpenSSL refused ") + what);
}

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

// A deleter of OpenSSL's objects, by the function that frees them.
template <auto Free>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

}  // namespace

// No settings of the machine: its configuration could name modules that do not fit a library linked in. No function at
// exit: the library may be unloaded before.
void prepare_crypto() {
  if (::OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) != 1) refused("to start");
}

Hmac::Hmac(const Key& key) : key_(key) {
  prepare_crypto();
  const std::unique_ptr<EVP_MAC, FreeBy<::EVP_MAC_free>> mac(::EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  if (!mac) refused("HMAC");
  std::unique_ptr<EVP_MAC_CTX, FreeBy<::EVP_MAC_CTX_free>> context(::EVP_MAC_CTX_new(mac.get()));
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {::OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                   ::OSSL_PARAM_construct_end()};
  if (!context || ::EVP_MAC_CTX_set_params(context.get(), parameters) != 1) refused("HMAC-SHA256");
  context_ = context.release();
}

Hmac::~Hmac() { ::EVP_MAC_CTX_free(context_); }

Mac Hmac::operator()(std::initializer_list<std::string_view> parts) {
  // With the key each time: OpenSSL before 3.0.3 (Ubuntu 22.04) begins no new MAC without one, and says that it has.
  bool good = ::EVP_MAC_init(context_, key_.data(), key_.size(), nullptr) == 1;
  for (const std::string_view part : parts) {
    std::array<unsigned char, 8> size;
    for (size_t i = 0; i < size.size(); ++i) size[i] = static_cast<unsigned char>(uint64_t{part.size()} >> (8 * i));
    good = good && ::EVP_MAC_update(context_, size.data(), size.size()) == 1 &&
           ::EVP_MAC_update(context_, bytes_of(part), part.size()) == 1;
  }
  Mac mac{};
  size_t length = 0;
  if (!good || ::EVP_MAC_final(context_, mac.data(), &length, mac.size()) != 1 || length != mac.size()) {
    refused("HMAC-SHA256");
  }
  return mac;
}

// Rare (for an Authenticator, and once for each sealed connection), so the algorithm is looked up each time.
Key hkdf_sha256(std::string_view secret, std::string_view salt, std::string_view info) {
  prepare_crypto();
  const std::unique_ptr<EVP_KDF, FreeBy<::EVP_KDF_free>> kdf(::EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  if (!kdf) refused("HKDF");
  const std::unique_ptr<EVP_KDF_CTX, FreeBy<::EVP_KDF_CTX_free>> context(::EVP_KDF_CTX_new(kdf.get()));
  char digest[] = "SHA256";
  const auto octets = [](const char* name, std::string_view value) {
    return ::OSSL_PARAM_construct_octet_string(name, const_cast<char*>(value.data()), value.size());
  };
  const OSSL_PARAM parameters[] = {::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                                   octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_SALT, salt),
                                   octets(OSSL_KDF_PARAM_INFO, info), ::OSSL_PARAM_construct_end()};
  Key key{};
  if (!context || ::EVP_KDF_derive(context.get(), key.data(), key.size(), parameters) != 1) refused("HKDF-SHA256");
  return key;
}

bool equal_in_constant_time(std::span<const uint8_t> one, std::span<const uint8_t> other) {
  RONDO_CHECK(one.size() == other.size(), "only what is of one length is compared");
  return ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

// getrandom() without flags waits until the kernel's generator is seeded, and may give less than was asked for.
void fill_random(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Exception(ErrorCode::kSystem, "the system gave no random bytes");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

Nonce random_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

uint64_t random_number() {
  std::array<uint8_t, sizeof(uint64_t)> bytes;
  fill_random(bytes);
  return std::bit_cast<uint64_t>(bytes);
}

}  // namespace rondo
