#include "transport/auth/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>

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

Mac hmac_sha256(const Key& key, std::initializer_list<std::string_view> parts) {
  prepare_crypto();
  std::string message;
  for (const std::string_view part : parts) {
    for (size_t i = 0; i < 8; ++i) message.push_back(static_cast<char>(uint64_t{part.size()} >> (8 * i)));
    message.append(part);
  }
  Mac mac{};
  unsigned int length = 0;
  if (::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(message), message.size(), mac.data(),
             &length) == nullptr ||
      length != mac.size()) {
    refused("HMAC-SHA256");
  }
  return mac;
}

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

}  // namespace rondo
