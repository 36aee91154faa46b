// Proves: a record gives back what was sealed, to its place in its direction and nowhere else, over changes of the key.
#include "transport/auth/records.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace rondo {
namespace {

const Key kKey{7, 7, 7};

std::string sealed(RecordSealer& sealer, const std::string& plain) {
  std::string out;
  sealer.seal(plain, out);
  return out;
}

TEST_CASE("records of every size come back, by both ciphers, also where the key changes every few bytes") {
  for (const Cipher cipher : {Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305}) {
    for (const uint64_t rekey : {uint64_t{1}, uint64_t{100}, kRekeyBytes}) {
      CAPTURE(static_cast<int>(cipher));
      CAPTURE(rekey);
      RecordSealer sealer(cipher, kKey, rekey);
      RecordOpener opener(cipher, kKey, rekey);
      for (const size_t size : {1, 2, 15, 16, 17, 63, 1000, 65'535, 65'536, 65'537, 200'000}) {
        std::string plain(size, '\0');
        for (size_t i = 0; i < size; ++i) plain[i] = static_cast<char>(i * 31 + size);
        std::string bytes = sealed(sealer, plain);
        CHECK(bytes.size() == size + kRecordOverhead * ((size + kMostRecordBytes - 1) / kMostRecordBytes));
        CHECK(bytes.find(plain.substr(0, 32)) == (size < 32 ? bytes.find(plain) : std::string::npos));
        std::string back;
        REQUIRE(opener.open(bytes, back));
        CHECK(bytes.empty());
        CHECK(back == plain);
      }
    }
  }
}

TEST_CASE("the key of one record opens none behind a change of the key") {
  for (const Cipher cipher : {Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305}) {
    RecordSealer changes(cipher, kKey, 100);
    RecordOpener stays(cipher, kKey);
    std::string bytes, back;
    changes.seal(std::string(99, 'a'), bytes);
    changes.seal("b", bytes);
    CHECK(stays.open(bytes, back));  // both by the first key: it changes behind 100 bytes
    CHECK(back == std::string(99, 'a') + "b");
    bytes = sealed(changes, "c");
    CHECK_FALSE(stays.open(bytes, back));
  }
}

TEST_CASE("a bit changed anywhere, a record left out, repeated, swapped, or sealed with another key is refused") {
  for (const Cipher cipher : {Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305}) {
    const auto opens = [cipher](std::string bytes) {
      RecordOpener opener(cipher, kKey);
      std::string back;
      return opener.open(bytes, back) && bytes.empty();
    };
    RecordSealer sealer(cipher, kKey);
    const std::string first = sealed(sealer, "first record"), second = sealed(sealer, "second record");
    CHECK(opens(first + second));
    for (size_t bit = 0; bit < 8 * first.size(); ++bit) {
      CAPTURE(bit);
      std::string changed = first;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      CHECK_FALSE(opens(changed));
    }
    CHECK_FALSE(opens(second));
    CHECK_FALSE(opens(first + first));
    CHECK_FALSE(opens(second + first));
    RecordSealer other(cipher, Key{7, 7, 8});
    CHECK_FALSE(opens(sealed(other, "first record")));
  }
}

TEST_CASE("lengths: what no record has is refused before anything is read, and a part of one waits") {
  const auto header = [](uint32_t length) {
    std::string bytes(4, '\0');
    for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
    return bytes;
  };
  for (const uint32_t length :
       {0u, 15u, 16u, static_cast<uint32_t>(kMostRecordBytes + kRecordTagBytes + 1), 1u << 31, 0xffffffffu}) {
    CHECK(RecordOpener::record_bytes(header(length)) == -1);
  }
  CHECK(RecordOpener::record_bytes(header(17)) == 21);
  CHECK(RecordOpener::record_bytes("abc") == 0);
  RecordOpener opener(Cipher::kAes256Gcm, kKey);
  std::string part = header(17) + "12345", back;
  CHECK(opener.open(part, back));
  CHECK(part.size() == 9);
  CHECK(back.empty());
}

TEST_CASE("the best cipher of both sides is taken") {
  const uint8_t aes = 1, chacha = 2;
  CHECK(choose_cipher(aes | chacha, aes | chacha) == Cipher::kAes256Gcm);
  CHECK(choose_cipher(aes | chacha, chacha) == Cipher::kChaCha20Poly1305);
  CHECK(choose_cipher(aes, chacha) == Cipher::kNone);
  CHECK(choose_cipher(0, aes | chacha) == Cipher::kNone);
  CHECK((own_ciphers() & chacha) != 0);
}

}  // namespace
}  // namespace rondo
