#include "transport/tcp/slice_sender.h"

#include <algorithm>

#include "ring/base/check.h"

namespace rondo {
namespace {

// Slices written by one call, on a link of one stream; each is a header and a payload. With several streams a slice
// goes alone, so that a fast stream can take the next one.
constexpr uint64_t kBatch = 4;
static_assert(2 * kBatch <= ByteStream::kMostParts);

}  // namespace

SliceSender::SliceSender(const LinkShape& shape, size_t streams)
    : slice_bytes_(shape.slice_bytes),
      checked_(shape.checked),
      queue_(shape.depth),
      slots_(shape.depth, shape.slice_bytes),
      writers_(streams) {}

std::byte* SliceSender::reserve(uint32_t bytes) {
  RONDO_CHECK(can_send() && bytes <= slice_bytes_, "no room for the slice");
  return slots_.at(committed_);
}

uint64_t SliceSender::commit(const SliceTag& tag) { return send(tag, slots_.at(committed_)); }

// Puts the slice into the queue; pump() writes it. A checked slice is summed here, so the payload must be final.
uint64_t SliceSender::send(const SliceTag& tag, const std::byte* payload) {
  RONDO_CHECK(can_send() && tag.bytes <= slice_bytes_, "no room for the slice");
  SliceHeader header;
  header.bytes = tag.bytes;
  header.index = static_cast<uint32_t>(committed_);
  header.sequence = tag.sequence;
  header.fingerprint = tag.fingerprint;
  if (checked_) seal_slice(header, payload);
  at(committed_) = {header, payload, false};
  return ++committed_;
}

// A short write means that the socket is full: trying again would cost a system call for nothing.
StreamProgress SliceSender::pump(size_t stream, ByteStream& sink) {
  Writer& writer = writers_[stream];
  bool moved = false;
  while (true) {
    assign(writer);
    if (writer.first == writer.last) break;
    iovec parts[2 * kBatch];
    const int count = gather(writer, parts);
    const size_t wanted = bytes_of(parts, count);
    const long wrote = sink.write(parts, count);
    if (wrote < 0) return StreamProgress::kStreamOver;
    moved |= wrote > 0;
    advance(writer, static_cast<size_t>(wrote));
    if (static_cast<size_t>(wrote) < wanted) break;
  }
  return moved ? StreamProgress::kMoved : StreamProgress::kNothing;
}

// Gives the stream the next slices of the queue once it has written all that it had.
void SliceSender::assign(Writer& writer) {
  if (writer.first != writer.last) return;
  const uint64_t count = std::min(committed_ - assigned_, writers_.size() == 1 ? kBatch : 1);
  writer.first = assigned_;
  writer.last = assigned_ = assigned_ + count;
  writer.offset = 0;
}

// The rest of the writer's slices as headers and payloads, without what is written already.
int SliceSender::gather(const Writer& writer, iovec* parts) const {
  int count = 0;
  size_t skip = writer.offset;
  for (uint64_t i = writer.first; i != writer.last; ++i) {
    const Outgoing& slice = at(i);
    const std::byte* memory[2] = {reinterpret_cast<const std::byte*>(&slice.header), slice.payload};
    const size_t bytes[2] = {kSliceHeaderBytes, slice.header.bytes};
    for (int part = 0; part < 2; ++part) {
      const size_t skipped = std::min(skip, bytes[part]);
      skip -= skipped;
      if (skipped == bytes[part]) continue;
      parts[count++] = {const_cast<std::byte*>(memory[part]) + skipped, bytes[part] - skipped};
    }
  }
  return count;
}

// Streams finish out of order. sent_ counts the slices at the front that are all written, since their memory goes back
// to the caller in order.
void SliceSender::advance(Writer& writer, size_t bytes) {
  writer.offset += bytes;
  while (writer.first != writer.last) {
    Outgoing& slice = at(writer.first);
    const size_t size = kSliceHeaderBytes + slice.header.bytes;
    if (writer.offset < size) break;
    writer.offset -= size;
    ++writer.first;
    slice.written = true;
  }
  while (sent_ < assigned_ && at(sent_).written) ++sent_;
}

}  // namespace rondo
