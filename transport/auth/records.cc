#include "transport/auth/records.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ring/base/check.h"
#include "rondo/error.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace rondo {
namespace {

constexpr size_t kNonceBytes = 12;

constexpr uint8_t bit_of(Cipher cipher) { return static_cast<uint8_t>(1u << (static_cast<int>(cipher) - 1)); }

[[noreturn]] void refused() { throw Exception(ErrorCode::kSystem, "OpenSSL refused to seal or open a record"); }

void write_length(size_t bytes, unsigned char* out) {
  for (size_t i = 0; i < kRecordHeaderBytes; ++i) out[i] = static_cast<unsigned char>(bytes >> (8 * i));
}

size_t read_length(const unsigned char* bytes) {
  size_t length = 0;
  for (size_t i = 0; i < kRecordHeaderBytes; ++i) length |= size_t{bytes[i]} << (8 * i);
  return length;
}

// Whether the processor has what AES-GCM takes; ChaCha20 is the faster one otherwise.
bool has_aes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#else
  constexpr unsigned long kBoth = HWCAP_AES | HWCAP_PMULL;
  return (::getauxval(AT_HWCAP) & kBoth) == kBoth;
#endif
}

}  // namespace

uint8_t own_ciphers() {
  return static_cast<uint8_t>(bit_of(Cipher::kChaCha20Poly1305) | (has_aes() ? bit_of(Cipher::kAes256Gcm) : 0));
}

Cipher choose_cipher(uint8_t one, uint8_t other) {
  for (const Cipher cipher : {Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305}) {
    if ((one & other & bit_of(cipher)) != 0) return cipher;
  }
  return Cipher::kNone;
}

// A cipher with its key and the number of the next record.
class RecordCipher {
 public:
  enum class Direction { kSeal, kOpen };
  RecordCipher(Cipher cipher, const Key& key, uint64_t rekey_bytes, Direction direction)
      : cipher_(cipher == Cipher::kAes256Gcm ? ::EVP_aes_256_gcm() : ::EVP_chacha20_poly1305()),
        context_((prepare_crypto(), ::EVP_CIPHER_CTX_new())),
        key_(key),
        rekey_bytes_(rekey_bytes),
        seals_(direction == Direction::kSeal) {
    RONDO_CHECK(cipher != Cipher::kNone, "records are sealed by a cipher");
    if (context_ == nullptr) refused();
    use_key();
  }
  ~RecordCipher() { ::EVP_CIPHER_CTX_free(context_); }
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  // Begins the next record, of `bytes` plain bytes; the header is authenticated with it.
  void begin(size_t bytes, const unsigned char* header) {
    if (done_bytes_ >= rekey_bytes_) {
      key_ = hkdf_sha256(as_text(key_), "rondo records", "next key");
      use_key();
      done_bytes_ = 0;
    }
    done_bytes_ += bytes;
    std::array<unsigned char, kNonceBytes> nonce{};
    for (size_t i = 0; i < 8; ++i) nonce[4 + i] = static_cast<unsigned char>(number_ >> (8 * i));
    ++number_;
    int length = 0;
    if (::EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce.data(), -1) != 1 ||
        ::EVP_CipherUpdate(context_, nullptr, &length, header, kRecordHeaderBytes) != 1) {
      refused();
    }
  }
  void update(const void* in, size_t bytes, unsigned char* out) {
    int length = 0;
    if (::EVP_CipherUpdate(context_, out, &length, static_cast<const unsigned char*>(in), static_cast<int>(bytes)) !=
            1 ||
        static_cast<size_t>(length) != bytes) {
      refused();
    }
  }
  void finish(unsigned char* tag) {
    unsigned char nothing[16];
    int length = 0;
    if (::EVP_CipherFinal_ex(context_, nothing, &length) != 1 ||
        ::EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kRecordTagBytes, tag) != 1) {
      refused();
    }
  }
  bool verify(const unsigned char* tag) {
    unsigned char nothing[16];
    int length = 0;
    if (::EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kRecordTagBytes, const_cast<unsigned char*>(tag)) != 1) {
      refused();
    }
    return ::EVP_CipherFinal_ex(context_, nothing, &length) == 1;
  }

 private:
  void use_key() {
    if (::EVP_CipherInit_ex(context_, cipher_, nullptr, key_.data(), nullptr, seals_ ? 1 : 0) != 1) refused();
  }

  const EVP_CIPHER* cipher_;
  EVP_CIPHER_CTX* context_;
  Key key_;
  uint64_t rekey_bytes_, done_bytes_ = 0;
  uint64_t number_ = 0;  // of all keys together
  bool seals_;
};

RecordSealer::RecordSealer(Cipher cipher, const Key& key, uint64_t rekey_bytes)
    : cipher_(std::make_unique<RecordCipher>(cipher, key, rekey_bytes, RecordCipher::Direction::kSeal)) {}
RecordSealer::~RecordSealer() = default;

size_t RecordSealer::seal(const iovec* parts, int count, std::byte* target) {
  auto* out = reinterpret_cast<unsigned char*>(target);
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  RONDO_CHECK(bytes > 0 && bytes <= kMostRecordBytes, "a record holds 1 to kMostRecordBytes bytes");
  write_length(bytes + kRecordTagBytes, out);
  cipher_->begin(bytes, out);
  out += kRecordHeaderBytes;
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len == 0) continue;
    cipher_->update(parts[i].iov_base, parts[i].iov_len, out);
    out += parts[i].iov_len;
  }
  cipher_->finish(out);
  return bytes + kRecordOverhead;
}

void RecordSealer::seal(std::string_view plain, std::string& out) {
  while (!plain.empty()) {
    const size_t bytes = std::min(plain.size(), kMostRecordBytes);
    const size_t at = out.size();
    out.resize(at + bytes + kRecordOverhead);
    const iovec part{const_cast<char*>(plain.data()), bytes};
    seal(&part, 1, reinterpret_cast<std::byte*>(out.data() + at));
    plain.remove_prefix(bytes);
  }
}

RecordOpener::RecordOpener(Cipher cipher, const Key& key, uint64_t rekey_bytes)
    : cipher_(std::make_unique<RecordCipher>(cipher, key, rekey_bytes, RecordCipher::Direction::kOpen)) {}
RecordOpener::~RecordOpener() = default;

long RecordOpener::record_bytes(std::string_view bytes) {
  if (bytes.size() < kRecordHeaderBytes) return 0;
  const size_t length = read_length(reinterpret_cast<const unsigned char*>(bytes.data()));
  if (length <= kRecordTagBytes || length > kMostRecordBytes + kRecordTagBytes) return -1;
  return static_cast<long>(kRecordHeaderBytes + length);
}

bool RecordOpener::open(std::string_view record, std::byte* plain) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(record.data());
  const size_t size = record.size() - kRecordOverhead;
  cipher_->begin(size, bytes);
  cipher_->update(bytes + kRecordHeaderBytes, size, reinterpret_cast<unsigned char*>(plain));
  return cipher_->verify(bytes + kRecordHeaderBytes + size);
}

bool RecordOpener::open(std::string& sealed, std::string& plain) {
  size_t used = 0;
  bool sound = true;
  while (sound) {
    const std::string_view rest = std::string_view(sealed).substr(used);
    const long bytes = record_bytes(rest);
    if (bytes == 0 || (bytes > 0 && rest.size() < static_cast<size_t>(bytes))) break;
    if (bytes < 0) return false;
    const size_t at = plain.size();
    plain.resize(at + static_cast<size_t>(bytes) - kRecordOverhead);
    sound = open(rest.substr(0, static_cast<size_t>(bytes)), reinterpret_cast<std::byte*>(plain.data() + at));
    if (!sound) plain.resize(at);
    used += static_cast<size_t>(bytes);
  }
  sealed.erase(0, used);
  return sound;
}

void TextSeal::use(const ConnectionKeys& keys) {
  sealer_.reset();
  opener_.reset();
  sealed_.clear();
  if (keys.cipher == Cipher::kNone) return;
  sealer_.emplace(keys.cipher, keys.send);
  opener_.emplace(keys.cipher, keys.receive);
}

void TextSeal::seal(std::string plain, std::string& out) {
  if (sealer_) {
    sealer_->seal(plain, out);
  } else if (out.empty()) {
    out = std::move(plain);
  } else {
    out.append(plain);
  }
}

bool TextSeal::open(std::string_view arrived, std::string& plain) {
  if (!opener_) {
    plain.append(arrived);
    return true;
  }
  sealed_.append(arrived);
  return opener_->open(sealed_, plain);
}

}  // namespace rondo
