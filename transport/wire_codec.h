#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo {

// Little-endian numbers and short strings, appended to a byte string.
class WireWriter {
 public:
  WireWriter& u8(uint8_t value) { return number(value, 1); }
  WireWriter& u16(uint16_t value) { return number(value, 2); }
  WireWriter& u32(uint32_t value) { return number(value, 4); }
  WireWriter& u64(uint64_t value) { return number(value, 8); }
  // u16 length, then the bytes; cut at `limit`.
  WireWriter& text(std::string_view value, size_t limit) {
    value = value.substr(0, limit);
    u16(static_cast<uint16_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  WireWriter& raw(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  WireWriter& zeros_up_to(size_t size) {
    bytes_.resize(size, '\0');
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  WireWriter& number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

// The reverse, over bytes that a stranger may have written: reading past the end or a text beyond its limit gives
// zeros, and ok() is false from then on.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  // Everything was read, and nothing more.
  bool finished() const { return ok_ && rest_.empty(); }

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  std::string text(size_t limit) {
    const size_t size = u16();
    if (size > limit) ok_ = false;
    return std::string(raw(size));
  }
  std::string_view raw(size_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view result = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return result;
  }

 private:
  uint64_t number(size_t bytes) {
    const std::string_view part = raw(bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < part.size(); ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(part[i])) << (8 * i);
    return value;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace rondo
