#include "transport/tcp/slice_receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ring/base/check.h"

namespace rondo {
namespace {

// Bytes of each stream of each link. Large enough that small slices need one read with their header and that a few of
// them come together.
constexpr size_t kReadAheadBytes = 16 * 1024;
// A payload of this size lands in its place, and behind it only the next header is read ahead: what follows is as
// large.
constexpr uint32_t kLargePayload = 4 * 1024;

}  // namespace

SliceReceiver::SliceReceiver(const LinkShape& shape, size_t streams, std::string peer_name)
    : slice_bytes_(shape.slice_bytes),
      checked_(shape.checked),
      landings_(shape.depth),
      slots_(shape.depth, shape.slice_bytes),
      readers_(streams),
      peer_name_(std::move(peer_name)) {
  for (Reader& reader : readers_) reader.buffer.resize(kReadAheadBytes);
}

void SliceReceiver::post(const SliceTag& tag, std::byte* landing) {
  RONDO_CHECK(can_post(), "no landing is free");
  RONDO_CHECK(tag.bytes <= slice_bytes_, "a slice is larger than the link's");
  const bool slot = landing == nullptr;
  landings_[posted_ % landings_.size()] = {tag, slot ? slots_.at(posted_) : landing, slot, false, false};
  ++posted_;
}

// Another landing may be filled before the oldest one, where several streams bring slices.
const std::byte* SliceReceiver::arrived() const {
  if (filled_ == 0) return nullptr;
  const Landing& oldest = landings_[released_ % landings_.size()];
  return oldest.filled ? oldest.memory : nullptr;
}

void SliceReceiver::release() {
  RONDO_CHECK(arrived() != nullptr, "nothing has arrived");
  landings_[released_ % landings_.size()].filled = false;
  ++released_;
  --filled_;
}

// Alternates between what the buffer holds and one read, until a read comes back short.
StreamProgress SliceReceiver::pump(size_t stream, ByteStream& source) {
  Reader& reader = readers_[stream];
  bool moved = false;
  bool drained = false;
  while (unfilled() > 0) {
    if (!refusal_.ok()) return StreamProgress::kRefused;
    if (use_buffer(reader)) {
      moved = true;
      continue;
    }
    if (!refusal_.ok()) return StreamProgress::kRefused;
    // A header whose slice has no landing yet: wait for post().
    if (reader.landing == nullptr && reader.buffered() >= kSliceHeaderBytes) break;
    if (drained) break;
    const StreamProgress progress = read_more(reader, source, drained);
    if (progress == StreamProgress::kStreamOver) return progress;
    moved |= progress == StreamProgress::kMoved;
    if (progress == StreamProgress::kNothing) break;
  }
  return moved ? StreamProgress::kMoved : StreamProgress::kNothing;
}

// One read: the rest of the payload into its landing, and behind it into the buffer. A short read means that the stream
// has no more for now, which saves the read that would say so.
StreamProgress SliceReceiver::read_more(Reader& reader, ByteStream& source, bool& drained) {
  if (reader.begin > 0) {
    std::memmove(reader.buffer.data(), reader.buffer.data() + reader.begin, reader.buffered());
    reader.end -= reader.begin;
    reader.begin = 0;
  }
  Landing* const next = reader.landing == nullptr ? expected() : nullptr;
  if (next != nullptr) return read_slice(reader, *next, source, drained);
  const uint32_t left = reader.landing != nullptr ? reader.landing->tag.bytes - reader.landed : 0;
  size_t ahead = reader.buffer.size() - reader.end;
  if (left >= kLargePayload) ahead = std::min(ahead, kSliceHeaderBytes);
  const iovec parts[2] = {{left > 0 ? reader.landing->memory + reader.landed : nullptr, left},
                          {reader.buffer.data() + reader.end, ahead}};
  const long got = left > 0 ? source.read(parts, 2) : source.read(parts + 1, 1);
  if (got < 0) return StreamProgress::kStreamOver;
  if (got == 0) return StreamProgress::kNothing;
  const uint32_t payload = static_cast<uint32_t>(std::min<uint64_t>(left, static_cast<uint64_t>(got)));
  reader.end += static_cast<size_t>(got) - payload;
  if (payload > 0) advance_payload(reader, payload);
  drained = static_cast<uint64_t>(got) < left + ahead;
  return StreamProgress::kMoved;
}

// The slice that the next header must be of (on one stream slices come in order), where its payload is as long as is
// known, too large to be copied, and goes to a slot: in the caller's memory nothing lands before the tags are compared.
SliceReceiver::Landing* SliceReceiver::expected() {
  if (readers_.size() > 1 || claimed_ == posted_) return nullptr;
  Landing& next = landings_[claimed_ % landings_.size()];
  return next.slot && !next.tag.at_most && next.tag.bytes >= kLargePayload ? &next : nullptr;
}

// One read: a header into the buffer, its payload into the slot, the header behind it into the buffer. The payload
// counts once the header is found to be the landing's (begin_slice); if it is not, the link is over. All_reduce of 16
// and 32 KiB by 2 ranks over loopback, instead of a first read into the buffer: 10.3 and 13.4 us, 11.3 and 14.3 before.
StreamProgress SliceReceiver::read_slice(Reader& reader, Landing& next, ByteStream& source, bool& drained) {
  const size_t header = kSliceHeaderBytes - reader.end;
  const iovec parts[3] = {{reader.buffer.data() + reader.end, header},
                          {next.memory, next.tag.bytes},
                          {reader.buffer.data() + kSliceHeaderBytes, kSliceHeaderBytes}};
  const long got = source.read(parts, 3);
  if (got < 0) return StreamProgress::kStreamOver;
  if (got == 0) return StreamProgress::kNothing;
  const size_t bytes = static_cast<size_t>(got);
  reader.early = static_cast<uint32_t>(std::min<size_t>(bytes - std::min(bytes, header), next.tag.bytes));
  reader.end += bytes - reader.early;
  drained = bytes < header + next.tag.bytes + kSliceHeaderBytes;
  return StreamProgress::kMoved;
}

// Takes what it can from the buffer. True if it took something.
bool SliceReceiver::use_buffer(Reader& reader) {
  if (reader.landing == nullptr) return reader.buffered() >= kSliceHeaderBytes && begin_slice(reader);
  const uint32_t bytes =
      static_cast<uint32_t>(std::min<size_t>(reader.landing->tag.bytes - reader.landed, reader.buffered()));
  if (bytes == 0) return false;
  std::memcpy(reader.landing->memory + reader.landed, reader.buffer.data() + reader.begin, bytes);
  reader.begin += bytes;
  advance_payload(reader, bytes);
  return true;
}

// Finds the landing of the header at the front of the buffer and compares the tags, before a byte of the payload is
// used. What read_slice() has put there already counts now.
bool SliceReceiver::begin_slice(Reader& reader) {
  const SliceHeader header = read_slice_header(reader.buffer.data() + reader.begin);
  if (checked_ && !slice_header_intact(header)) {
    refuse(ErrorCode::kCorrupt, header, "its header arrived damaged");
    return false;
  }
  const bool plain = header.flags == 0 && header.check == 0 && header.checksum == 0;
  if (header.bytes > slice_bytes_ || !(checked_ || plain)) {
    refuse(ErrorCode::kProtocol, header, "no slice of this link looks like that");
    return false;
  }
  // The index is modulo 2^32; both ends are never half of that apart.
  const int32_t ahead = static_cast<int32_t>(header.index - static_cast<uint32_t>(released_));
  if (ahead < 0) {
    refuse(ErrorCode::kProtocol, header, "that slice has been received before");
    return false;
  }
  // On one stream slices come in order; with several, one stream may be ahead of the others.
  if (readers_.size() == 1 && header.index != static_cast<uint32_t>(claimed_)) {
    refuse(ErrorCode::kProtocol, header, fmt::format("slice {} was expected", static_cast<uint32_t>(claimed_)));
    return false;
  }
  if (static_cast<uint64_t>(ahead) >= posted_ - released_) return false;  // not posted yet
  Landing& landing = landings_[(released_ + static_cast<uint64_t>(ahead)) % landings_.size()];
  if (landing.claimed) {
    refuse(ErrorCode::kProtocol, header, "that slice has been received before");
    return false;
  }
  const SliceTag got{header.sequence, header.fingerprint, header.bytes};
  if (!landing.tag.takes(got)) {
    refused_ = {got, landing.tag};
    refuse(ErrorCode::kMismatch, header,
           fmt::format("operation {} (fingerprint {:016x}, {} bytes) was expected", landing.tag.sequence,
                       landing.tag.fingerprint, landing.tag.bytes));
    return false;
  }
  if (got.fingerprint != landing.tag.fingerprint) refused_ = {got, landing.tag};
  landing.tag.bytes = header.bytes;
  reader.begin += kSliceHeaderBytes;
  landing.claimed = true;
  ++claimed_;
  reader.landing = &landing;
  reader.landed = 0;
  reader.header = header;
  advance_payload(reader, std::exchange(reader.early, 0));
  return true;
}

// `bytes` more of the slice under way have landed. A complete slice is checked before the caller can see it.
void SliceReceiver::advance_payload(Reader& reader, uint32_t bytes) {
  reader.landed += bytes;
  if (reader.landed < reader.landing->tag.bytes) return;
  Landing& landing = *std::exchange(reader.landing, nullptr);
  if (checked_) {
    const uint32_t found = slice_checksum(reader.header, landing.memory);
    if (found != reader.header.checksum) {
      return refuse(
          ErrorCode::kCorrupt, reader.header,
          fmt::format("its bytes arrived damaged (checksum {:08x}, not {:08x})", found, reader.header.checksum));
    }
  }
  landing.filled = true;
  ++filled_;
}

// The link is over. The message shows the header as it came, since that tells a damaged one from another operation's.
void SliceReceiver::refuse(ErrorCode code, const SliceHeader& header, const std::string& why) {
  refusal_ = {
      code,
      fmt::format("{} sent slice {} of operation {} (fingerprint {:016x}, {} bytes, flags {:#x}): {}", peer_name_,
                  header.index, header.sequence, header.fingerprint, header.bytes, header.flags, why),
      {}};
}

}  // namespace rondo
