#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace rondo {

// Builds a message of little-endian integers, and of texts behind their length.
class ByteWriter {
 public:
  ByteWriter& u8(uint8_t value) { return little(value, 1); }
  ByteWriter& u16(uint16_t value) { return little(value, 2); }
  ByteWriter& u32(uint32_t value) { return little(value, 4); }
  ByteWriter& u64(uint64_t value) { return little(value, 8); }
  // A text behind its length in 32 bits.
  ByteWriter& text(std::string_view value) {
    u32(static_cast<uint32_t>(value.size()));
    return raw(value);
  }
  // A text behind its length in 16 bits; cut at `limit`.
  ByteWriter& short_text(std::string_view value, size_t limit) {
    value = value.substr(0, limit);
    u16(static_cast<uint16_t>(value.size()));
    return raw(value);
  }
  // Bytes without a length: the reader must know how many there are.
  ByteWriter& raw(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  ByteWriter& zeros_up_to(size_t size) {
    bytes_.resize(size, '\0');
    return *this;
  }
  std::string take() { return std::move(bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  // Byte by byte, so that the order does not depend on the machine's.
  ByteWriter& little(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

// Takes a message apart. Reading past the end gives zeros and empty texts, and ok() becomes false for good. So
// a reader may read a whole message first, and check ok() once.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  uint8_t u8() { return static_cast<uint8_t>(little(1)); }
  uint16_t u16() { return static_cast<uint16_t>(little(2)); }
  uint32_t u32() { return static_cast<uint32_t>(little(4)); }
  uint64_t u64() { return little(8); }
  // The text's bytes, valid as long as the reader's input. A length above `limit` counts as past the end: a
  // peer chooses it.
  std::string_view text(size_t limit) { return bounded(u32(), limit); }
  std::string_view short_text(size_t limit) { return bounded(u16(), limit); }
  std::string_view raw(size_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  // Zeros past the end.
  template <size_t N>
  std::array<uint8_t, N> array() {
    std::array<uint8_t, N> taken{};
    const std::string_view bytes = raw(N);
    std::copy(bytes.begin(), bytes.end(), taken.begin());
    return taken;
  }
  bool ok() const { return ok_; }
  // All of the message was read, and nothing is left over.
  bool done() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }

 private:
  std::string_view bounded(size_t size, size_t limit) {
    if (size > limit) ok_ = false;
    return raw(size);
  }
  uint64_t little(size_t size) {
    std::string_view bytes = raw(size);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    return value;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace rondo
