#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rondo {

// The fields of a record in the order of their bytes, named once for both directions:
//   static void fields(Fields& bytes, Query& query) { bytes(query.communicator, query.sequence); }
// encoded() writes by it, decoded() reads. It stands in the namespace of the record, by which it is found. Integers are
// little-endian. A text or list that exceeds its bound is cut when written and refused when read. After the first thing
// that does not fit, reading gives zeros and empty texts, and ok() stays false: so a whole record is read first, and
// judged once.
class Fields {
 public:
  Fields() = default;  // writes
  explicit Fields(std::string_view bytes) : reads_(true), size_(bytes.size()), rest_(bytes) {}

  bool reads() const { return reads_; }
  bool ok() const { return ok_; }
  // Nothing is left over, either.
  bool done() const { return ok_ && rest_.empty(); }
  // When written, always.
  void require(bool holds) { ok_ = ok_ && holds; }
  std::string take() { return std::move(written_); }

  // Each as its type says: integers and enums by their own size, a bool as a byte of 0 or 1, a double as its bits, an
  // array of bytes as it is, any other type by its fields().
  template <typename... Values>
  Fields& operator()(Values&... values) {
    (one(values), ...);
    return *this;
  }
  // An enum from `first` to `last`, by the size of a Number.
  template <typename Number, typename Enum>
  Fields& within(Enum& value, Enum first, Enum last) {
    auto number = static_cast<Number>(value);
    one(number);
    require(number >= static_cast<Number>(first) && number <= static_cast<Number>(last));
    value = ok_ ? static_cast<Enum>(number) : first;
    return *this;
  }
  // Bools as the bits of one byte, from the lowest on.
  template <typename... Bools>
  Fields& bits(Bools&... values) {
    uint8_t byte = 0;
    int bit = 0;
    ((byte = static_cast<uint8_t>(byte | values << bit++)), ...);
    one(byte);
    require(byte >> sizeof...(values) == 0);
    bit = 0;
    ((values = (byte >> bit++ & 1) != 0), ...);
    return *this;
  }
  // A text behind its length, which has the size of a Length.
  template <typename Length = uint16_t>
  Fields& text(std::string& value, size_t most) {
    auto length = static_cast<Length>(std::min(value.size(), most));
    one(length);
    require(length <= most);
    if (!reads_) written_.append(value, 0, length);
    if (reads_) value = next(length);
    return *this;
  }
  // Elements behind their number. each(element) names their fields.
  template <typename Count = uint16_t, typename Element, typename Each>
  Fields& list(std::vector<Element>& elements, size_t most, const Each& each) {
    auto count = static_cast<Count>(std::min(elements.size(), most));
    one(count);
    require(count <= most && (!reads_ || count <= rest_.size()));  // an element has a byte at least
    elements.resize(ok_ || !reads_ ? count : 0);
    for (Element& element : elements) each(element);
    return *this;
  }
  // The same bytes always.
  Fields& constant(std::string_view bytes) {
    if (!reads_) written_.append(bytes);
    if (reads_) require(next(bytes.size()) == bytes);
    return *this;
  }
  // Zeros, up to this offset in the record.
  Fields& zeros_up_to(size_t offset) {
    if (!reads_) written_.resize(offset);
    const std::string_view zeros = reads_ ? next(offset - std::min(offset, size_ - rest_.size())) : "";
    require(std::all_of(zeros.begin(), zeros.end(), [](char byte) { return byte == '\0'; }));
    return *this;
  }

 private:
  template <typename Value>
  void one(Value& value) {
    if constexpr (std::same_as<Value, bool>) {
      bits(value);
    } else if constexpr (std::same_as<Value, double>) {
      auto number = std::bit_cast<uint64_t>(value);
      one(number);
      value = std::bit_cast<double>(number);
    } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      value = static_cast<Value>(integer(static_cast<uint64_t>(value), sizeof(Value)));
    } else {
      fields(*this, value);
    }
  }
  template <size_t N>
  void one(std::array<uint8_t, N>& bytes) {
    for (uint8_t& byte : bytes) one(byte);
  }

  // Byte by byte, so that the order does not depend on the machine's.
  uint64_t integer(uint64_t value, size_t size) {
    for (size_t i = 0; i < size && !reads_; ++i) written_.push_back(static_cast<char>(value >> (8 * i)));
    if (!reads_) return value;
    const std::string_view bytes = next(size);
    value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    return value;
  }
  std::string_view next(size_t size) {
    require(size <= rest_.size());
    const std::string_view taken = rest_.substr(0, ok_ ? size : 0);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  const bool reads_ = false;
  const size_t size_ = 0;  // of what is read
  std::string_view rest_;  // of it
  bool ok_ = true;
  std::string written_;
};

template <typename Record>
std::string encoded(Record record) {
  Fields bytes;
  bytes(record);
  return bytes.take();
}

// nullopt: too short or too long, or with a value that encoded() never writes.
template <typename Record>
std::optional<Record> decoded(std::string_view whole) {
  Fields bytes(whole);
  Record record{};
  bytes(record);
  return bytes.done() ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace rondo
