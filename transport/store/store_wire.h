#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rondo/store.h"
#include "transport/auth/authenticator.h"
#include "transport/auth/records.h"

namespace rondo {

// The stream store's protocol (docs/bootstrap.md). Integers are little-endian.
//   both ways first: magic[8], version u32, body bytes u32, body   (the head is the same in every version)
//     client's body: ciphers u8, nonce[32], job id text, proof[32]
//     server's body: verdict u8, cipher u8, nonce[32], text, proof[32]
//   the client, if it is welcome: proof[32]
//   then requests:   body bytes u32, body = operation u8, key text, first text, second text, amount u64
//   each answered:   body bytes u32, body = status u8, value text
inline constexpr std::string_view kStoreMagic = "\x89RNDO-S\n";  // begins like no text, HTTP or TLS
inline constexpr uint32_t kStoreVersion = 2;
inline constexpr size_t kStoreHeadBytes = 16;
inline constexpr size_t kMaxJobIdBytes = 256;
inline constexpr size_t kMaxHelloBodyBytes = 1024;  // a job id, or a refusal that quotes one

// The job that every process with a unique id belongs to: its key tells jobs apart.
inline constexpr std::string_view kUniqueJobId = "unique";

struct StoreHello {
  uint8_t ciphers = 0;  // own_ciphers() where what follows is to be sealed
  Nonce nonce{};
  std::string job_id;
  Mac proof{};
};
std::string encode_hello(const StoreHello& hello);
std::optional<StoreHello> decode_hello(std::string_view body);

enum class StoreVerdict : uint8_t { kWelcome = 0, kOtherVersion = 1, kOtherJob = 2, kAuthFailed = 3, kEncryption = 4 };
struct StoreWelcome {
  StoreVerdict verdict = StoreVerdict::kWelcome;
  Cipher cipher = Cipher::kNone;  // of what follows
  Nonce nonce{};
  std::string text;  // kOtherJob: the server's job id
  Mac proof{};
};
std::string encode_welcome(const StoreWelcome& welcome);
std::optional<StoreWelcome> decode_welcome(std::string_view body);

// Both sides prove that they know the secret, each over all that was said: hello and welcome are those of this
// connection, with their nonces. kOtherVersion and kAuthFailed are said without a proof.
inline constexpr size_t kStoreConfirmBytes = sizeof(Mac);
void prove(StoreHello& hello, const Authenticator& auth);
bool holds(const StoreHello& hello, const Authenticator& auth);
void prove(StoreWelcome& welcome, const StoreHello& hello, const Authenticator& auth);
bool holds(const StoreWelcome& welcome, const StoreHello& hello, const Authenticator& auth);
enum class StoreSide { kClient, kServer };
ConnectionKeys store_keys(const StoreHello& hello, const StoreWelcome& welcome, const Authenticator& auth,
                          StoreSide side);
Mac store_confirmation(const StoreHello& hello, const StoreWelcome& welcome, const Authenticator& auth);

// False as soon as the bytes cannot be the beginning of a head.
bool plausible_head(std::string_view bytes);
struct StoreHead {
  uint32_t version = 0;
  uint32_t body_bytes = 0;
};
// From kStoreHeadBytes bytes that are plausible.
StoreHead decode_head(std::string_view bytes);

enum class StoreOperation : uint8_t { kPut = 1, kGet = 2, kTryGet = 3, kAdd = 4, kCompareSet = 5, kRemove = 6 };
struct StoreRequest {
  StoreOperation operation = StoreOperation::kPut;
  std::string key;
  std::string first;   // put: the value; compare_set: what is expected
  std::string second;  // compare_set: what is desired
  int64_t amount = 0;  // add
};
inline constexpr size_t kFrameHeadBytes = 4;
inline constexpr size_t kMaxRequestBodyBytes = 1 + 3 * 4 + Store::kMaxKeyBytes + 2 * Store::kMaxValueBytes + 8;
std::string encode_request(const StoreRequest& request);
std::optional<StoreRequest> decode_request(std::string_view body);

enum class StoreStatus : uint8_t { kOk = 0, kAbsent = 1, kRefused = 2 };
struct StoreReply {
  StoreStatus status = StoreStatus::kOk;
  std::string value;  // kRefused: why
};
inline constexpr size_t kMaxReplyBodyBytes = 1 + 4 + Store::kMaxValueBytes;
std::string encode_reply(const StoreReply& reply);
std::optional<StoreReply> decode_reply(std::string_view body);

uint32_t decode_frame_head(std::string_view bytes);

}  // namespace rondo
