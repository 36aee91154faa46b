// The file of a store: its head, and records up to the first that is torn; what is read is the same when it is written
// again.
//   input: the file as it is; or, where it begins with 'r', a record's body, to which the checksum is added
#include "transport/store/store_file.h"

#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

void read_records(std::string_view bytes) {
  while (bytes.size() >= kRecordHeadBytes) {
    const RecordHead head = decode_record_head(bytes);
    bytes.remove_prefix(kRecordHeadBytes);
    if (head.body_bytes > kMaxRecordBodyBytes || head.body_bytes > bytes.size()) return;
    const std::string_view body = bytes.substr(0, head.body_bytes);
    if (record_checksum(body) != head.checksum) return;
    const std::optional<StoreRecord> record = decode_record(body);
    if (!record) return;
    RONDO_CHECK(record->key.size() <= Store::kMaxKeyBytes && record->value.size() <= Store::kMaxValueBytes,
                "a record has its bounds");
    RONDO_CHECK(std::string_view(encode_record(*record)).substr(kRecordHeadBytes) == body, "a record has one encoding");
    bytes.remove_prefix(body.size());
  }
}

std::string body_of(const StoreRecord& record) { return encode_record(record).substr(kRecordHeadBytes); }

}  // namespace

std::vector<std::string> seeds() {
  const StoreRecord put{RecordKind::kPut, "key", "value"}, remove{RecordKind::kRemove, "key", ""};
  return {encode_file_head(7, "job") + encode_record(put) + encode_record(remove), "r" + body_of(put),
          "r" + body_of(remove)};
}

void try_input(std::string_view input) {
  if (!input.empty() && input[0] == 'r') {
    const std::string_view body = input.substr(1);
    return read_records(with_record_head(body));
  }
  const std::optional<FileHead> head = decode_file_head(input.substr(0, kFileHeadBytes));
  if (!head || head->job_id_bytes > input.size() - kFileHeadBytes) return;
  read_records(input.substr(kFileHeadBytes + head->job_id_bytes));
}

}  // namespace rondo::fuzz
