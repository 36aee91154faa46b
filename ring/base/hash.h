#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace rondo {

// Mixes 64 bits (the finalizer of SplitMix64, Steele et al. 2014). For fingerprints and ids that two ranks compare;
// it is no defence against an adversary.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A fingerprint is a hash with a note in its highest byte. Ranks compare the other 56 bits. The note travels
// with them, and may differ.
constexpr uint64_t agreed_bits(uint64_t fingerprint) { return fingerprint & (UINT64_MAX >> 8); }
constexpr uint8_t fingerprint_note(uint64_t fingerprint) { return static_cast<uint8_t>(fingerprint >> 56); }
constexpr uint64_t noted_fingerprint(uint64_t hash, uint8_t note) { return agreed_bits(hash) | uint64_t{note} << 56; }

// An order-sensitive running hash: hash.add(a).add(b).value().
class Hash64 {
 public:
  constexpr Hash64& add(uint64_t x) {
    state_ = mix64(state_ ^ x);
    return *this;
  }
  // The length is added last, so that ("ab", "c") and ("a", "bc") differ.
  constexpr Hash64& add(std::string_view text) {
    for (char c : text) add(static_cast<uint8_t>(c));
    return add(text.size());
  }
  template <typename T>
  constexpr Hash64& add_all(std::span<const T> values) {
    for (T v : values) add(static_cast<uint64_t>(v));
    return add(values.size());
  }
  constexpr uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x726f6e646f;  // "rondo"
};

}  // namespace rondo
