#include "transport/hello/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "ring/base/bytes.h"
#include "ring/base/hash.h"

namespace rondo {
namespace {

// A field of `size` bytes: u8 length, the text, zeros.
std::string read_padded(ByteReader& reader, size_t size, bool& valid) {
  const size_t length = reader.u8();
  const std::string_view field = reader.raw(size - 1);
  if (length > field.size()) {
    valid = false;
    return {};
  }
  return std::string(field.substr(0, length));
}

// Reserved bytes are zero: a later version may give them a meaning.
bool all_zero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '\0'; });
}

}  // namespace

// Each zeros_up_to() names the offset at which the next field begins (docs/wire.md).
std::string encode(const Hello& hello) {
  ByteWriter writer;
  writer.raw(kWireMagic).u16(hello.version).u8(static_cast<uint8_t>(hello.role)).u8(hello.sealed ? 1 : 0);
  writer.u16(hello.lane).u16(hello.connection).u16(hello.connections).u16(0).u32(hello.rank);
  writer.u64(hello.communicator).u64(hello.epoch).u32(hello.world).u32(hello.destination);
  writer.u64(hello.shared_hash).u64(hello.session);
  const std::string_view job = std::string_view(hello.job_id).substr(0, kMaxHelloJobIdBytes);
  writer.u8(static_cast<uint8_t>(job.size())).raw(job).zeros_up_to(128);
  writer.raw(as_text(hello.nonce)).raw(as_text(hello.mac)).zeros_up_to(kHelloBytes);
  return writer.take();
}

// Another version's hello is returned as soon as the version is read. The fields of this one are read in their order,
// and judged together at the end.
std::optional<Hello> parse_hello(std::string_view bytes) {
  ByteReader reader(bytes);
  if (bytes.size() != kHelloBytes || reader.raw(kWireMagic.size()) != kWireMagic) return std::nullopt;
  Hello hello;
  hello.version = reader.u16();
  if (hello.version != kWireVersion) return hello;
  const uint8_t role = reader.u8();
  bool valid = role >= static_cast<uint8_t>(Role::kControl) && role <= static_cast<uint8_t>(Role::kStore);
  hello.role = static_cast<Role>(role);
  const uint8_t sealed = reader.u8();
  valid &= sealed <= 1;
  hello.sealed = sealed != 0;
  hello.lane = reader.u16();
  hello.connection = reader.u16();
  hello.connections = reader.u16();
  valid &= reader.u16() == 0;
  hello.rank = reader.u32();
  hello.communicator = reader.u64();
  hello.epoch = reader.u64();
  hello.world = reader.u32();
  hello.destination = reader.u32();
  hello.shared_hash = reader.u64();
  hello.session = reader.u64();
  hello.job_id = read_padded(reader, 64, valid);
  hello.nonce = reader.array<sizeof(Nonce)>();
  hello.mac = reader.array<sizeof(Mac)>();
  valid &= all_zero(reader.raw(kHelloBytes - 192));
  if (!valid || !reader.done()) return std::nullopt;
  return hello;
}

std::string encode(const Answer& answer) {
  ByteWriter writer;
  writer.raw(kWireMagic).u16(answer.version).u16(static_cast<uint16_t>(answer.code)).u32(answer.rank);
  writer.raw(as_text(answer.nonce)).raw(as_text(answer.mac));
  writer.u8(answer.sealed ? 1 : 0).u8(0).short_text(answer.text, kMaxAnswerTextBytes).zeros_up_to(kAnswerBytes);
  return writer.take();
}

std::optional<Answer> parse_answer(std::string_view bytes) {
  ByteReader reader(bytes);
  if (bytes.size() != kAnswerBytes || reader.raw(kWireMagic.size()) != kWireMagic) return std::nullopt;
  Answer answer;
  answer.version = reader.u16();
  const uint16_t verdict = reader.u16();
  // The verdict and its words keep their places in every version, so that each side can say which one it speaks.
  answer.code = verdict > static_cast<uint16_t>(AnswerCode::kAuthFailed) ? AnswerCode::kForbidden
                                                                         : static_cast<AnswerCode>(verdict);
  answer.rank = reader.u32();
  answer.nonce = reader.array<sizeof(Nonce)>();
  answer.mac = reader.array<sizeof(Mac)>();
  answer.sealed = reader.u8() != 0;
  reader.u8();
  answer.text = reader.short_text(kMaxAnswerTextBytes);
  if (!reader.ok()) return std::nullopt;
  return answer;
}

bool could_be_hello(std::string_view prefix) {
  const size_t size = std::min(prefix.size(), kWireMagic.size());
  return prefix.substr(0, size) == kWireMagic.substr(0, size);
}

// 46 bytes, #, and 16 digits: 63 in all.
std::string bounded_job_id(std::string_view job_id) {
  if (job_id.size() <= kMaxHelloJobIdBytes) return std::string(job_id);
  return fmt::format("{}#{:016x}", job_id.substr(0, kMaxHelloJobIdBytes - 17), Hash64().add(job_id).value());
}

}  // namespace rondo
