// What the stream store and its clients say: refused, or decoded within the bounds; a message has one encoding only.
#include "transport/store/store_wire.h"

#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

// Request and reply: a frame.
void try_frame(std::string_view input) {
  if (input.size() < kFrameHeadBytes) return;
  const std::string_view body = input.substr(kFrameHeadBytes);
  if (decode_frame_head(input) != body.size()) return;
  if (const auto request = decode_request(body)) {
    RONDO_CHECK(body.size() <= kMaxRequestBodyBytes && !request->key.empty(), "a request has its bounds");
    RONDO_CHECK(encode_request(*request) == input, "a request has one encoding");
  }
  if (const auto reply = decode_reply(body)) {
    RONDO_CHECK(body.size() <= kMaxReplyBodyBytes, "a reply has its bound");
    RONDO_CHECK(encode_reply(*reply) == input, "a reply has one encoding");
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {encode_request({StoreOperation::kPut, "key", "value", "", 0}),
          encode_request({StoreOperation::kCompareSet, "key", "value", "other", 0}),
          encode_request({StoreOperation::kAdd, "key", "", "", -5}), encode_reply({StoreStatus::kOk, "value"}),
          encode_reply({StoreStatus::kRefused, "the store is full"})};
}

void try_input(std::string_view input) { try_frame(input); }

}  // namespace rondo::fuzz
