#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>

#include "ring/engine/p2p/wire.h"
#include "transport/byte_stream.h"

namespace rondo {

// Frames that are written together. Envelopes and short payloads are copied side by side; longer payloads are
// referred to, and must stay until the batch is written or cleared. So one write of at most 8 parts carries
// some hundred short messages, or a few long ones. One sender or receiver owns it.
class P2pBatch {
 public:
  // Allocates the memory that add() needs. checked: frames carry checksums.
  void prepare(bool checked);
  bool empty() const { return first_ == count_; }
  // So many more frames fit at least.
  int room() const;
  // Requires prepare() and room() > 0.
  void add(const P2pEnvelope& envelope, const std::byte* payload = nullptr, size_t bytes = 0);
  // Writes what is left, once: what ByteStream::write() returns.
  long write(ByteStream& stream);
  void clear();
  // It refers to a caller's memory, which must stay.
  bool refers() const { return refers_; }

 private:
  static constexpr int kParts = ByteStream::kMostParts;
  // Payloads up to here are copied. 512 bytes cost some 15 ns; an entry of the vector costs about as much in
  // the kernel.
  static constexpr size_t kCopyBytes = 512;
  static constexpr size_t kStageBytes = 16 * 1024;  // 200 messages of 8 bytes

  // Adds bytes that stay where they are until the batch is written.
  void append(const std::byte* data, size_t bytes);

  std::unique_ptr<std::byte[]> stage_;
  // The bytes of the stage that are taken; given back by clear() alone, as parts refer to them.
  size_t staged_ = 0;
  std::array<iovec, kParts> parts_;
  int first_ = 0;  // the parts before it are written
  int count_ = 0;
  bool refers_ = false;
  bool checked_ = false;
};

}  // namespace rondo
