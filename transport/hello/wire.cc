#include "transport/hello/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/base/fields.h"
#include "ring/base/hash.h"

namespace rondo {
// Each zeros_up_to() names the offset at which the next field begins (docs/wire.md). Reserved bytes are zero: a later
// version may give them a meaning. Another version's hello is read up to the version.
static void fields(Fields& bytes, Hello& hello) {
  bytes.constant(kWireMagic)(hello.version);
  if (bytes.reads() && hello.version != kWireVersion) return;
  bytes.within<uint8_t>(hello.role, Role::kControl, Role::kStore)(hello.sealed, hello.connection, hello.connections)
      .zeros_up_to(20)(hello.rank, hello.communicator, hello.epoch, hello.world, hello.destination, hello.shared_hash,
                       hello.session)
      .text<uint8_t>(hello.job_id, kMaxHelloJobIdBytes)
      .zeros_up_to(128)(hello.nonce, hello.mac)
      .zeros_up_to(kHelloBytes);
}

// The verdict and its words keep their places in every version, so that each side can say which one it speaks.
static void fields(Fields& bytes, Answer& answer) {
  uint8_t sealed = answer.sealed, reserved = 0;
  bytes.constant(kWireMagic)(answer.version, answer.code, answer.rank, answer.nonce, answer.mac, sealed, reserved)
      .text(answer.text, kMaxAnswerTextBytes);
  answer.sealed = sealed != 0;
  if (answer.code > AnswerCode::kAuthFailed) answer.code = AnswerCode::kForbidden;
}

std::string encode(const Hello& hello) { return encoded(hello); }

std::optional<Hello> parse_hello(std::string_view whole) {
  Fields bytes(whole);
  Hello hello;
  bytes(hello);
  const bool valid = hello.version == kWireVersion ? bytes.done() : bytes.ok();
  return valid && whole.size() == kHelloBytes ? std::optional(std::move(hello)) : std::nullopt;
}

std::string encode(const Answer& answer) {
  std::string bytes = encoded(answer);
  bytes.resize(kAnswerBytes);
  return bytes;
}

std::optional<Answer> parse_answer(std::string_view whole) {
  Fields bytes(whole);
  Answer answer;
  bytes(answer);
  return bytes.ok() && whole.size() == kAnswerBytes ? std::optional(std::move(answer)) : std::nullopt;
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
