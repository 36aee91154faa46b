#include "ring/engine/p2p/wire.h"

#include <cstring>

#include "kernels/crc32c.h"

namespace rondo {
namespace {

// The checksum covers the whole envelope, the payload's checksum too, but not itself.
uint32_t check_of(P2pEnvelope envelope) {
  envelope.check = 0;
  return crc32c(&envelope, sizeof envelope);
}

bool known(P2pKind kind) { return kind >= P2pKind::kEager && kind <= P2pKind::kRefuse; }

bool known(DType dtype) { return static_cast<int>(dtype) < kDTypes; }

// The frames that describe a message, and so have its dtype.
bool names_dtype(P2pKind kind) {
  return kind == P2pKind::kEager || kind == P2pKind::kRequest || kind == P2pKind::kRefuse;
}

}  // namespace

void p2p_encode(const P2pEnvelope& envelope, std::byte* out) {
  P2pEnvelope sealed = envelope;
  if (sealed.checked != 0) sealed.check = check_of(sealed);
  std::memcpy(out, &sealed, sizeof sealed);
}

bool p2p_intact(const std::byte* in) {
  P2pEnvelope envelope;
  std::memcpy(&envelope, in, sizeof envelope);
  return envelope.checked == 1 && envelope.check == check_of(envelope);
}

const char* p2p_decode(const std::byte* in, uint64_t communicator, P2pEnvelope* envelope, bool checked) {
  P2pEnvelope& read = *envelope;
  std::memcpy(&read, in, sizeof read);
  if (read.magic != kP2pMagic) return "no envelope where one must be";
  if (!known(read.kind)) return "an unknown kind of frame";
  if (read.communicator != communicator) return "a frame of another communicator";
  const bool plain = read.checksum == 0 && read.check == 0;
  if (read.checked != (checked ? 1 : 0) || !(checked || plain) || read.reserved != 0)
    return "reserved fields are not zero";
  if (read.bytes > kP2pMaxBytes || read.offset > kP2pMaxBytes) return "a length that no memory has";
  if (read.tag > kP2pMaxTag) return "a tag above 2^31-1";
  if (!known(read.dtype) || !known(read.receive_dtype)) return "an unknown dtype";
  // Sizes of dtypes are powers of two.
  if (names_dtype(read.kind) && (read.bytes & (dtype_bytes(read.dtype) - 1)) != 0)
    return "a length that is no multiple of its dtype";
  read.check = 0;
  return nullptr;
}

}  // namespace rondo
