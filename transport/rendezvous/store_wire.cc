#include "transport/rendezvous/store_wire.h"

#include <algorithm>

#include "ring/base/check.h"
#include "transport/rendezvous/bytes.h"

namespace rondo {
namespace {

std::string with_head(std::string body) {
  RONDO_CHECK(body.size() <= kMaxHelloBodyBytes, "hello bodies are bounded by their fields");
  return ByteWriter().raw(kStoreMagic).u32(kStoreVersion).u32(static_cast<uint32_t>(body.size())).raw(body).take();
}

std::string with_frame(std::string body) {
  return ByteWriter().u32(static_cast<uint32_t>(body.size())).raw(body).take();
}

}  // namespace

std::string encode_hello(const StoreHello& hello) {
  std::string_view key(reinterpret_cast<const char*>(hello.key.data()), hello.key.size());
  return with_head(ByteWriter().raw(key).text(hello.job_id).take());
}

std::optional<StoreHello> decode_hello(std::string_view body) {
  ByteReader in(body);
  StoreHello hello;
  std::string_view key = in.raw(hello.key.size());
  std::copy(key.begin(), key.end(), hello.key.begin());
  hello.job_id = in.text(kMaxJobIdBytes);
  return in.done() ? std::optional(hello) : std::nullopt;
}

std::string encode_welcome(const StoreWelcome& welcome) {
  return with_head(ByteWriter().u8(static_cast<uint8_t>(welcome.verdict)).text(welcome.text).take());
}

std::optional<StoreWelcome> decode_welcome(std::string_view body) {
  ByteReader in(body);
  StoreWelcome welcome;
  uint8_t verdict = in.u8();
  welcome.text = in.text(kMaxHelloBodyBytes);
  if (!in.done() || verdict > static_cast<uint8_t>(StoreVerdict::kWrongKey)) return std::nullopt;
  welcome.verdict = static_cast<StoreVerdict>(verdict);
  return welcome;
}

bool plausible_head(std::string_view bytes) {
  return bytes.substr(0, kStoreMagic.size()) == kStoreMagic.substr(0, bytes.size());
}

StoreHead decode_head(std::string_view bytes) {
  ByteReader in(bytes);
  in.raw(kStoreMagic.size());
  StoreHead head;
  head.version = in.u32();
  head.body_bytes = in.u32();
  return head;
}

std::string encode_request(const StoreRequest& request) {
  return with_frame(ByteWriter()
                        .u8(static_cast<uint8_t>(request.operation))
                        .text(request.key)
                        .text(request.first)
                        .text(request.second)
                        .u64(static_cast<uint64_t>(request.amount))
                        .take());
}

std::optional<StoreRequest> decode_request(std::string_view body) {
  ByteReader in(body);
  StoreRequest request;
  uint8_t operation = in.u8();
  request.key = in.text(Store::kMaxKeyBytes);
  request.first = in.text(Store::kMaxValueBytes);
  request.second = in.text(Store::kMaxValueBytes);
  request.amount = static_cast<int64_t>(in.u64());
  if (!in.done() || request.key.empty()) return std::nullopt;
  if (operation < static_cast<uint8_t>(StoreOperation::kPut) ||
      operation > static_cast<uint8_t>(StoreOperation::kRemove)) {
    return std::nullopt;
  }
  request.operation = static_cast<StoreOperation>(operation);
  return request;
}

std::string encode_reply(const StoreReply& reply) {
  return with_frame(ByteWriter().u8(static_cast<uint8_t>(reply.status)).text(reply.value).take());
}

std::optional<StoreReply> decode_reply(std::string_view body) {
  ByteReader in(body);
  StoreReply reply;
  uint8_t status = in.u8();
  reply.value = in.text(Store::kMaxValueBytes);
  if (!in.done() || status > static_cast<uint8_t>(StoreStatus::kRefused)) return std::nullopt;
  reply.status = static_cast<StoreStatus>(status);
  return reply;
}

uint32_t decode_frame_head(std::string_view bytes) { return ByteReader(bytes).u32(); }

}  // namespace rondo
