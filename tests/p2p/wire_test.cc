#include "ring/engine/p2p/wire.h"

#include <doctest/doctest.h>

#include <array>
#include <cstring>

namespace rondo::testing {
namespace {

using Frame = std::array<std::byte, kP2pEnvelopeBytes>;

Frame encoded(const P2pEnvelope& envelope) {
  Frame frame;
  frame.fill(std::byte{0xee});
  p2p_encode(envelope, frame.data());
  return frame;
}

const P2pEnvelope kExample{.kind = P2pKind::kRefuse,
                           .dtype = DType::kFloat32,
                           .receive_dtype = DType::kInt64,
                           .communicator = 0x1122334455667788,
                           .bytes = 40,
                           .sequence = 0x0807060504030201,
                           .offset = 99,
                           .tag = 0x01020304,
                           .slots = 0xa1a2a3a4};

TEST_CASE("an envelope is these 64 bytes: docs/wire-p2p.md") {
  const uint8_t expected[kP2pEnvelopeBytes] = {
      0x31, 0x70, 0x32, 0x70, 7,    10,   6,    0,     // magic, kind, dtype, receive_dtype, flags
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  // communicator
      40,   0,    0,    0,    0,    0,    0,    0,     // bytes
      0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,  // sequence
      99,   0,    0,    0,    0,    0,    0,    0,     // offset
      0x04, 0x03, 0x02, 0x01, 0xa4, 0xa3, 0xa2, 0xa1,  // tag, slots
      0,    0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0,  // reserved
  };
  CHECK_EQ(std::memcmp(encoded(kExample).data(), expected, sizeof expected), 0);
}

TEST_CASE("what was encoded is decoded, for every kind and dtype") {
  for (int kind = 1; kind <= 7; ++kind) {
    for (int dtype = 0; dtype < kDTypes; ++dtype) {
      P2pEnvelope envelope = kExample;
      envelope.kind = static_cast<P2pKind>(kind);
      envelope.dtype = static_cast<DType>(dtype);
      P2pEnvelope back;
      REQUIRE_EQ(p2p_decode(encoded(envelope).data(), envelope.communicator, &back), nullptr);
      CHECK(back == envelope);
    }
  }
}

TEST_CASE("each field out of its range is refused, at its limit it is not") {
  const uint64_t communicator = kExample.communicator;
  P2pEnvelope back;
  auto refused = [&](P2pEnvelope envelope) {
    return p2p_decode(encoded(envelope).data(), communicator, &back) != nullptr;
  };
  P2pEnvelope envelope = kExample;
  CHECK_FALSE(refused(envelope));
  envelope.bytes = kP2pMaxBytes;
  envelope.offset = kP2pMaxBytes;
  envelope.tag = kP2pMaxTag;
  CHECK_FALSE(refused(envelope));

  auto with = [&](auto change) {
    P2pEnvelope changed = kExample;
    change(changed);
    return refused(changed);
  };
  CHECK(with([](P2pEnvelope& e) { e.kind = static_cast<P2pKind>(0); }));
  CHECK(with([](P2pEnvelope& e) { e.kind = static_cast<P2pKind>(8); }));
  CHECK(with([](P2pEnvelope& e) { e.dtype = static_cast<DType>(kDTypes); }));
  CHECK(with([](P2pEnvelope& e) { e.receive_dtype = static_cast<DType>(255); }));
  CHECK(with([](P2pEnvelope& e) { e.communicator ^= 1; }));
  CHECK(with([](P2pEnvelope& e) { e.bytes = kP2pMaxBytes + 1; }));
  CHECK(with([](P2pEnvelope& e) { e.offset = ~uint64_t{0}; }));
  CHECK(with([](P2pEnvelope& e) { e.tag = 0x80000000; }));
  CHECK(with([](P2pEnvelope& e) { e.bytes = 41; }));  // of float32
}

TEST_CASE("a flipped bit in the magic, the flags or the reserved bytes is refused") {
  for (size_t bit = 0; bit < kP2pEnvelopeBytes * 8; ++bit) {
    const size_t byte = bit / 8;
    if (!(byte < 4 || byte == 7 || byte >= 48)) continue;
    Frame frame = encoded(kExample);
    frame[byte] ^= std::byte{1} << (bit % 8);
    P2pEnvelope back;
    CHECK_NE(p2p_decode(frame.data(), kExample.communicator, &back), nullptr);
  }
}

TEST_CASE("fault 20: a bit that is flipped anywhere in a checked envelope is seen; a sound one is decoded") {
  P2pEnvelope checked = kExample;
  checked.checked = true;
  checked.checksum = 0xdeadbeef;
  P2pEnvelope back;
  CHECK(p2p_intact(encoded(checked).data()));
  REQUIRE_EQ(p2p_decode(encoded(checked).data(), kExample.communicator, &back, true), nullptr);
  CHECK(back == checked);
  for (size_t bit = 0; bit < kP2pEnvelopeBytes * 8; ++bit) {
    Frame frame = encoded(checked);
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK_FALSE(p2p_intact(frame.data()));
  }
  // One that is not checked where it must be, and the other way round.
  CHECK_FALSE(p2p_intact(encoded(kExample).data()));
  CHECK_NE(p2p_decode(encoded(checked).data(), kExample.communicator, &back), nullptr);
}

}  // namespace
}  // namespace rondo::testing
