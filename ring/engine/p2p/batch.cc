#include "ring/engine/p2p/batch.h"

#include <algorithm>
#include <cstring>

#include "kernels/crc32c.h"
#include "ring/base/check.h"

namespace rondo {

void P2pBatch::prepare(bool checked) {
  stage_ = std::make_unique<std::byte[]>(kStageBytes);
  checked_ = checked;
}

// A frame takes one part or two: its envelope, with a short payload beside it, and a long payload.
int P2pBatch::room() const {
  const auto staged = static_cast<int>((kStageBytes - staged_) / (kP2pEnvelopeBytes + kCopyBytes));
  return std::min(staged, (kParts - count_) / 2);
}

// A checked frame has the checksum of its payload in its envelope, which the receiver compares when the payload
// is complete.
void P2pBatch::add(const P2pEnvelope& envelope, const std::byte* payload, size_t bytes) {
  RONDO_CHECK(stage_ && room() > 0, "room for the frame");
  std::byte* out = stage_.get() + staged_;
  if (checked_) {
    P2pEnvelope sealed = envelope;
    sealed.checked = true;
    sealed.checksum = bytes > 0 ? crc32c(payload, bytes) : 0;
    p2p_encode(sealed, out);
  } else {
    p2p_encode(envelope, out);
  }
  size_t copied = 0;
  if (bytes > 0 && bytes <= kCopyBytes) {
    std::memcpy(out + kP2pEnvelopeBytes, payload, bytes);
    copied = bytes;
  }
  staged_ += kP2pEnvelopeBytes + copied;
  append(out, kP2pEnvelopeBytes + copied);
  if (bytes == copied) return;
  append(payload, bytes);
  refers_ = true;
}

// Frames whose copies lie side by side become one part: a write takes 8 parts at most.
void P2pBatch::append(const std::byte* data, size_t bytes) {
  if (count_ > first_) {
    iovec& last = parts_[count_ - 1];
    if (static_cast<const std::byte*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += bytes;
      return;
    }
  }
  parts_[count_++] = {const_cast<std::byte*>(data), bytes};
}

// After a short write the batch goes on in the middle of a part.
long P2pBatch::write(ByteStream& stream) {
  const long moved = stream.write(&parts_[first_], count_ - first_);
  if (moved <= 0) return moved;
  auto left = static_cast<size_t>(moved);
  while (first_ < count_ && left >= parts_[first_].iov_len) left -= parts_[first_++].iov_len;
  if (first_ == count_) {
    clear();
  } else {
    parts_[first_].iov_base = static_cast<std::byte*>(parts_[first_].iov_base) + left;
    parts_[first_].iov_len -= left;
  }
  return moved;
}

void P2pBatch::clear() {
  first_ = count_ = 0;
  staged_ = 0;
  refers_ = false;
}

}  // namespace rondo
