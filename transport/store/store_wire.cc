#include "transport/store/store_wire.h"

#include "ring/base/bytes.h"

namespace rondo {
namespace {

// The length goes before the body.
std::string with_frame(std::string body) {
  return ByteWriter().u32(static_cast<uint32_t>(body.size())).raw(body).take();
}

}  // namespace

// The caller has checked the lengths (check_store_entry()).
std::string encode_request(const StoreRequest& request) {
  return with_frame(ByteWriter()
                        .u32(request.number)
                        .u8(static_cast<uint8_t>(request.operation))
                        .text(request.key)
                        .text(request.first)
                        .text(request.second)
                        .u64(static_cast<uint64_t>(request.amount))
                        .take());
}

// All or nothing: trailing bytes, unknown operations and lengths beyond the store's limits are refused.
std::optional<StoreRequest> decode_request(std::string_view body) {
  ByteReader in(body);
  StoreRequest request;
  request.number = in.u32();
  uint8_t operation = in.u8();
  request.key = in.text(Store::kMaxKeyBytes);
  request.first = in.text(Store::kMaxValueBytes);
  request.second = in.text(Store::kMaxValueBytes);
  request.amount = static_cast<int64_t>(in.u64());
  if (!in.done() || request.key.empty()) return std::nullopt;
  if (operation < static_cast<uint8_t>(StoreOperation::kPut) ||
      operation > static_cast<uint8_t>(StoreOperation::kWill)) {
    return std::nullopt;
  }
  request.operation = static_cast<StoreOperation>(operation);
  return request;
}

std::string encode_reply(const StoreReply& reply) {
  return with_frame(ByteWriter().u32(reply.number).u8(static_cast<uint8_t>(reply.status)).text(reply.value).take());
}

// All or nothing, as for requests.
std::optional<StoreReply> decode_reply(std::string_view body) {
  ByteReader in(body);
  StoreReply reply;
  reply.number = in.u32();
  uint8_t status = in.u8();
  reply.value = in.text(Store::kMaxValueBytes);
  if (!in.done() || status > static_cast<uint8_t>(StoreStatus::kRefused)) return std::nullopt;
  reply.status = static_cast<StoreStatus>(status);
  return reply;
}

uint32_t decode_frame_head(std::string_view bytes) { return ByteReader(bytes).u32(); }

}  // namespace rondo
