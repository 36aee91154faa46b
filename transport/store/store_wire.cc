#include "transport/store/store_wire.h"

#include <utility>

#include "ring/base/bytes.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

std::string with_head(std::string body) {
  RONDO_CHECK(body.size() <= kMaxHelloBodyBytes, "hello bodies are bounded by their fields");
  return ByteWriter().raw(kStoreMagic).u32(kStoreVersion).u32(static_cast<uint32_t>(body.size())).raw(body).take();
}

std::string with_frame(std::string body) {
  return ByteWriter().u32(static_cast<uint32_t>(body.size())).raw(body).take();
}

constexpr std::string_view kHelloLabel = "rondo store hello";
constexpr std::string_view kWelcomeLabel = "rondo store welcome";
constexpr std::string_view kConfirmLabel = "rondo store confirm";

std::string without_proof(StoreHello hello) {
  hello.proof = {};
  return encode_hello(hello);
}

std::string without_proof(StoreWelcome welcome) {
  welcome.proof = {};
  return encode_welcome(welcome);
}

}  // namespace

std::string encode_hello(const StoreHello& hello) {
  return with_head(
      ByteWriter().u8(hello.ciphers).raw(as_text(hello.nonce)).text(hello.job_id).raw(as_text(hello.proof)).take());
}

std::optional<StoreHello> decode_hello(std::string_view body) {
  ByteReader in(body);
  StoreHello hello;
  hello.ciphers = in.u8();
  hello.nonce = in.array<sizeof(Nonce)>();
  hello.job_id = in.text(kMaxJobIdBytes);
  hello.proof = in.array<sizeof(Mac)>();
  return in.done() ? std::optional(hello) : std::nullopt;
}

std::string encode_welcome(const StoreWelcome& welcome) {
  return with_head(ByteWriter()
                       .u8(static_cast<uint8_t>(welcome.verdict))
                       .u8(static_cast<uint8_t>(welcome.cipher))
                       .raw(as_text(welcome.nonce))
                       .text(welcome.text)
                       .raw(as_text(welcome.proof))
                       .take());
}

std::optional<StoreWelcome> decode_welcome(std::string_view body) {
  ByteReader in(body);
  StoreWelcome welcome;
  uint8_t verdict = in.u8();
  const uint8_t cipher = in.u8();
  welcome.nonce = in.array<sizeof(Nonce)>();
  welcome.text = in.text(kMaxHelloBodyBytes);
  welcome.proof = in.array<sizeof(Mac)>();
  if (!in.done() || verdict > static_cast<uint8_t>(StoreVerdict::kEncryption)) return std::nullopt;
  if (cipher > static_cast<uint8_t>(Cipher::kChaCha20Poly1305)) return std::nullopt;
  welcome.cipher = static_cast<Cipher>(cipher);
  welcome.verdict = static_cast<StoreVerdict>(verdict);
  return welcome;
}

void prove(StoreHello& hello, const Authenticator& auth) {
  hello.nonce = random_nonce();
  hello.proof = auth.prove(kHelloLabel, {without_proof(hello)});
}

bool holds(const StoreHello& hello, const Authenticator& auth) {
  return auth.holds(hello.proof, kHelloLabel, {without_proof(hello)});
}

void prove(StoreWelcome& welcome, const StoreHello& hello, const Authenticator& auth) {
  welcome.nonce = random_nonce();
  welcome.proof = auth.prove(kWelcomeLabel, {encode_hello(hello), without_proof(welcome)});
}

bool holds(const StoreWelcome& welcome, const StoreHello& hello, const Authenticator& auth) {
  return auth.holds(welcome.proof, kWelcomeLabel, {encode_hello(hello), without_proof(welcome)});
}

ConnectionKeys store_keys(const StoreHello& hello, const StoreWelcome& welcome, const Authenticator& auth,
                          StoreSide side) {
  if (welcome.cipher == Cipher::kNone) return {};
  const std::string said = encode_hello(hello), answered = encode_welcome(welcome);
  ConnectionKeys keys{welcome.cipher, auth.connection_key("from the store's client", said, answered),
                      auth.connection_key("from the store", said, answered)};
  if (side == StoreSide::kServer) std::swap(keys.send, keys.receive);
  return keys;
}

Mac store_confirmation(const StoreHello& hello, const StoreWelcome& welcome, const Authenticator& auth) {
  return auth.prove(kConfirmLabel, {encode_hello(hello), encode_welcome(welcome)});
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
