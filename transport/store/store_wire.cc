#include "transport/store/store_wire.h"

#include <utility>

#include "ring/base/fields.h"

namespace rondo {

static void fields(Fields& bytes, StoreRequest& request) {
  bytes(request.number)
      .within<uint8_t>(request.operation, StoreOperation::kPut, StoreOperation::kWill)
      .text<uint32_t>(request.key, Store::kMaxKeyBytes)
      .text<uint32_t>(request.first, Store::kMaxValueBytes)
      .text<uint32_t>(request.second, Store::kMaxValueBytes)(request.amount)
      .require(!request.key.empty());
}

static void fields(Fields& bytes, StoreReply& reply) {
  bytes(reply.number)
      .within<uint8_t>(reply.status, StoreStatus::kOk, StoreStatus::kRefused)
      .text<uint32_t>(reply.value, Store::kMaxValueBytes);
}

namespace {

// The length goes before the body.
std::string with_frame(const std::string& body) { return encoded(static_cast<uint32_t>(body.size())) + body; }

}  // namespace

// The caller has checked the lengths (check_store_entry()).
std::string encode_request(StoreRequest request) { return with_frame(encoded(std::move(request))); }
std::optional<StoreRequest> decode_request(std::string_view body) { return decoded<StoreRequest>(body); }
std::string encode_reply(StoreReply reply) { return with_frame(encoded(std::move(reply))); }
std::optional<StoreReply> decode_reply(std::string_view body) { return decoded<StoreReply>(body); }

uint32_t decode_frame_head(std::string_view bytes) {
  return decoded<uint32_t>(bytes.substr(0, kFrameHeadBytes)).value_or(0);
}

}  // namespace rondo
