#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rondo/store.h"

namespace rondo {

// What clients of a store say behind the handshake (hello/handshake.h, Role::kStore). Integers are little-endian.
//   requests:        body bytes u32, body = number u32, operation u8, key text, first text, second text, amount u64
//   each answered:   body bytes u32, body = number u32, status u8, value text

// The bound of a job id as the user gives it; a hello carries bounded_job_id() of it.
inline constexpr size_t kMaxJobIdBytes = 256;

// The job that every process with a unique id belongs to: its key tells jobs apart.
inline constexpr std::string_view kUniqueJobId = "unique";

enum class StoreOperation : uint8_t {
  kPut = 1,
  kGet = 2,
  kTryGet = 3,
  kAdd = 4,
  kCompareSet = 5,
  kRemove = 6,
  kWill = 7,  // put() of the key, if it is not there yet, once this client's connection ends
};
// One call of a Store, or a will. number: of the connection's requests, for the client to tell late answers; the server
// only returns it.
struct StoreRequest {
  StoreOperation operation = StoreOperation::kPut;
  std::string key;
  std::string first;   // put: the value; compare_set: what is expected; will: the value, "" withdraws it
  std::string second;  // compare_set: what is desired
  int64_t amount = 0;  // add
  uint32_t number = 0;
};
// Frames begin with the number of bytes that follow (u32). A longer body than the bound is no frame of ours.
inline constexpr size_t kFrameHeadBytes = 4;
inline constexpr size_t kMaxRequestBodyBytes = 4 + 1 + 3 * 4 + Store::kMaxKeyBytes + 2 * Store::kMaxValueBytes + 8;
std::string encode_request(StoreRequest request);
std::optional<StoreRequest> decode_request(std::string_view body);

// kAbsent: there is no such key. kRefused: the request cannot be carried out, and has changed nothing.
enum class StoreStatus : uint8_t { kOk = 0, kAbsent = 1, kRefused = 2 };
struct StoreReply {
  StoreStatus status = StoreStatus::kOk;
  std::string value;    // kRefused: why
  uint32_t number = 0;  // of the request
};
inline constexpr size_t kMaxReplyBodyBytes = 4 + 1 + 4 + Store::kMaxValueBytes;
std::string encode_reply(StoreReply reply);
std::optional<StoreReply> decode_reply(std::string_view body);

// Requires kFrameHeadBytes bytes. The length is the peer's, not checked.
uint32_t decode_frame_head(std::string_view bytes);

}  // namespace rondo
