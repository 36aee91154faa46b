#include "transport/store/store_file.h"

#include "ring/base/bytes.h"
#include "ring/base/hash.h"

namespace rondo {

std::string encode_file_head(uint64_t nonce, std::string_view job_id) {
  return ByteWriter().raw(kStoreFileMagic).u32(kStoreFileVersion).u64(nonce).text(job_id).take();
}

std::optional<FileHead> decode_file_head(std::string_view bytes) {
  ByteReader in(bytes);
  if (in.raw(kStoreFileMagic.size()) != kStoreFileMagic) return std::nullopt;
  FileHead head;
  head.version = in.u32();
  in.u64();
  head.job_id_bytes = in.u32();
  return in.done() ? std::optional(head) : std::nullopt;
}

// Finds a record that a killed writer left half written. It protects against no attacker: the file is the user's own.
uint64_t record_checksum(std::string_view body) { return Hash64().add(body).value(); }

std::string with_record_head(std::string_view body) {
  return ByteWriter().u32(static_cast<uint32_t>(body.size())).u64(record_checksum(body)).raw(body).take();
}

std::string encode_record(const StoreRecord& record) {
  return with_record_head(
      ByteWriter().u8(static_cast<uint8_t>(record.kind)).text(record.key).text(record.value).take());
}

RecordHead decode_record_head(std::string_view bytes) {
  ByteReader in(bytes);
  RecordHead head;
  head.body_bytes = in.u32();
  head.checksum = in.u64();
  return in.ok() ? head : RecordHead{};
}

// The checksum of the body was right, so a record that is malformed here was written by a program that is no store.
std::optional<StoreRecord> decode_record(std::string_view body) {
  ByteReader in(body);
  StoreRecord record;
  record.kind = static_cast<RecordKind>(in.u8());
  record.key = in.text(Store::kMaxKeyBytes);
  record.value = in.text(Store::kMaxValueBytes);
  const bool known = record.kind == RecordKind::kPut || record.kind == RecordKind::kRemove;
  if (!in.done() || !known || record.key.empty()) return std::nullopt;
  return record;
}

}  // namespace rondo
