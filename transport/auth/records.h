#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "transport/auth/crypto.h"

namespace rondo {

// Sealed records of one direction of a connection (docs/wire.md#encryption): length u32, ciphertext, tag of 16 bytes.
// The nonce is the number of the record, so that none can be left out, repeated or moved. One thread at a time.

enum class Cipher : uint8_t { kNone = 0, kAes256Gcm = 1, kChaCha20Poly1305 = 2 };

inline constexpr uint8_t kAllCiphers = 3;  // as bits: see own_ciphers()
// Bits 1 << (cipher - 1) of the ciphers that this process offers: AES only where the processor has instructions for it.
uint8_t own_ciphers();
// The best of both, equal on both sides: AES if both have it. kNone if either offers nothing.
Cipher choose_cipher(uint8_t one, uint8_t other);

// For one end of a connection.
struct ConnectionKeys {
  Cipher cipher = Cipher::kNone;  // kNone: nothing is sealed
  Key send{}, receive{};
};

inline constexpr size_t kMostRecordBytes = 64 * 1024;  // of plaintext
inline constexpr size_t kRecordHeaderBytes = 4;
inline constexpr size_t kRecordTagBytes = 16;
inline constexpr size_t kRecordOverhead = kRecordHeaderBytes + kRecordTagBytes;
// Both sides replace a direction's key, by HKDF, once it has sealed this many bytes of plaintext. Either cipher allows
// 2^36 and more.
inline constexpr uint64_t kRekeyBytes = uint64_t{1} << 32;

class RecordCipher;

class RecordSealer {
 public:
  RecordSealer(Cipher cipher, const Key& key, uint64_t rekey_bytes = kRekeyBytes);
  ~RecordSealer();
  // One record of the parts' bytes, 1 .. kMostRecordBytes together, at `out`, which has room for kRecordOverhead more.
  // Returns the record's bytes.
  size_t seal(const iovec* parts, int count, std::byte* out);
  // Appends as many records as it takes.
  void seal(std::string_view plain, std::string& out);

 private:
  std::unique_ptr<RecordCipher> cipher_;
};

class RecordOpener {
 public:
  RecordOpener(Cipher cipher, const Key& key, uint64_t rekey_bytes = kRekeyBytes);
  ~RecordOpener();
  // The record at the front of `bytes`: its size with header and tag, 0 if that is not known yet, -1: no record is so
  // long or so short.
  static long record_bytes(std::string_view bytes);
  // `record`: exactly one. The plaintext, of record.size() - kRecordOverhead bytes, goes to `plain`. False: it is not
  // what the peer has sealed; nothing of what is at `plain` then may be used.
  bool open(std::string_view record, std::byte* plain);
  // Takes the whole records off the front of `sealed` and appends what they hold. False: as above.
  bool open(std::string& sealed, std::string& plain);

 private:
  std::unique_ptr<RecordCipher> cipher_;
};

// The bytes of a connection that is read and written as text: as they are, and sealed once it has keys.
class TextSeal {
 public:
  // From here on, with a new connection's keys; Cipher::kNone: as they are.
  void use(const ConnectionKeys& keys);
  // Appends to `out` what travels for `plain`.
  void seal(std::string plain, std::string& out);
  // Appends to `plain` what is complete with `arrived`. False: the peer has not sealed this, and the connection is
  // over.
  bool open(std::string_view arrived, std::string& plain);

 private:
  std::optional<RecordSealer> sealer_;  // both or neither
  std::optional<RecordOpener> opener_;
  std::string sealed_;  // at most one incomplete record between calls
};

}  // namespace rondo
