#include "ring/engine/p2p/wire.h"

#include <bit>
#include <cstring>

#include "kernels/crc32c.h"

namespace rondo {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian; other hosts must swap here");

// The bytes on the wire, little-endian.
struct Layout {
  uint32_t magic;
  uint8_t kind;
  uint8_t dtype;
  uint8_t receive_dtype;
  uint8_t flags;  // 1: checked
  uint64_t communicator;
  uint64_t bytes;
  uint64_t sequence;
  uint64_t offset;
  uint32_t tag;
  uint32_t slots;
  uint32_t checksum;  // of the payload; not checked: 0
  uint32_t check;     // of this, with a check of 0; likewise
  uint64_t reserved;  // 0
};
static_assert(sizeof(Layout) == kP2pEnvelopeBytes);

constexpr uint8_t kChecked = 1;

uint32_t check_of(Layout layout) {
  layout.check = 0;
  return crc32c(&layout, sizeof layout);
}

bool known(uint8_t kind) {
  return kind >= static_cast<uint8_t>(P2pKind::kEager) && kind <= static_cast<uint8_t>(P2pKind::kRefuse);
}

bool names_dtype(P2pKind kind) {
  return kind == P2pKind::kEager || kind == P2pKind::kRequest || kind == P2pKind::kRefuse;
}

}  // namespace

void p2p_encode(const P2pEnvelope& envelope, std::byte* out) {
  Layout layout = {};
  layout.magic = kP2pMagic;
  layout.kind = static_cast<uint8_t>(envelope.kind);
  layout.dtype = static_cast<uint8_t>(envelope.dtype);
  layout.receive_dtype = static_cast<uint8_t>(envelope.receive_dtype);
  layout.communicator = envelope.communicator;
  layout.bytes = envelope.bytes;
  layout.sequence = envelope.sequence;
  layout.offset = envelope.offset;
  layout.tag = envelope.tag;
  layout.slots = envelope.slots;
  if (envelope.checked) {
    layout.flags = kChecked;
    layout.checksum = envelope.checksum;
    layout.check = check_of(layout);
  }
  std::memcpy(out, &layout, sizeof layout);
}

bool p2p_intact(const std::byte* in) {
  Layout layout;
  std::memcpy(&layout, in, sizeof layout);
  return layout.flags == kChecked && layout.check == check_of(layout);
}

const char* p2p_decode(const std::byte* in, uint64_t communicator, P2pEnvelope* envelope, bool checked) {
  Layout layout;
  std::memcpy(&layout, in, sizeof layout);
  if (layout.magic != kP2pMagic) return "no envelope where one must be";
  if (!known(layout.kind)) return "an unknown kind of frame";
  if (layout.communicator != communicator) return "a frame of another communicator";
  const bool plain = layout.flags == 0 && layout.checksum == 0 && layout.check == 0;
  if (!(checked ? layout.flags == kChecked : plain) || layout.reserved != 0) return "reserved fields are not zero";
  if (layout.bytes > kP2pMaxBytes || layout.offset > kP2pMaxBytes) return "a length that no memory has";
  if (layout.tag > kP2pMaxTag) return "a tag above 2^31-1";
  const auto kind = static_cast<P2pKind>(layout.kind);
  const auto dtype = static_cast<DType>(layout.dtype);
  const auto receive_dtype = static_cast<DType>(layout.receive_dtype);
  if (dtype_bytes(dtype) == 0 || dtype_bytes(receive_dtype) == 0) return "an unknown dtype";
  if (names_dtype(kind) && layout.bytes % dtype_bytes(dtype) != 0) return "a length that is no multiple of its dtype";
  *envelope = {kind,           dtype,           receive_dtype, layout.tag,   layout.communicator,
               layout.bytes,   layout.sequence, layout.offset, layout.slots, checked,
               layout.checksum};
  return nullptr;
}

}  // namespace rondo
