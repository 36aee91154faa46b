#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rondo/store.h"

namespace rondo {

// The bytes of a FileStore's file, without I/O. Integers are little-endian.
//   head:    magic[8], version u32, nonce u64, job id text (u32 length)
//   records: body bytes u32, checksum u64, body = kind u8, key text, value text

// The first byte is no letter, so that no text file begins so.
inline constexpr std::string_view kStoreFileMagic = "\x89RNDO-F\n";
inline constexpr uint32_t kStoreFileVersion = 1;

inline constexpr size_t kFileHeadBytes = 8 + 4 + 8 + 4;  // up to the job id's characters
// What a process that joins reads before the rest.
struct FileHead {
  uint32_t version = 0;
  uint32_t job_id_bytes = 0;  // follow the head; as the file says, not checked
};
// The whole head, job id included. nonce: tells apart two runs that use one file.
std::string encode_file_head(uint64_t nonce, std::string_view job_id);
// From kFileHeadBytes bytes; nullopt: the file is another program's, or fewer were given.
std::optional<FileHead> decode_file_head(std::string_view bytes);

enum class RecordKind : uint8_t { kPut = 'p', kRemove = 'r' };
// One change of the content: put() of a value, or remove().
struct StoreRecord {
  RecordKind kind = RecordKind::kPut;
  std::string_view key, value;  // of a decoded one: in the body
};
inline constexpr size_t kRecordHeadBytes = 4 + 8;
inline constexpr size_t kMaxRecordBodyBytes = 1 + 4 + Store::kMaxKeyBytes + 4 + Store::kMaxValueBytes;
struct RecordHead {
  uint32_t body_bytes = 0;  // as the file says, not checked
  uint64_t checksum = 0;
};
std::string encode_record(const StoreRecord& record);
// A body behind its head.
std::string with_record_head(std::string_view body);
uint64_t record_checksum(std::string_view body);
// Zeros if fewer than kRecordHeadBytes are there, which is the head of no body that is whole.
RecordHead decode_record_head(std::string_view bytes);
// nullopt: a body that no store writes.
std::optional<StoreRecord> decode_record(std::string_view body);

}  // namespace rondo
