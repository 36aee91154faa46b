#include "transport/store/request_store.h"

#include <utility>

#include "ring/base/check.h"
#include "ring/base/figures.h"
#include "rondo/error.h"
#include "transport/store/store_map.h"

namespace rondo {

// The one place where bounds are checked and a refusal becomes an exception.
StoreReply RequestStore::ask(StoreRequest request, Deadline deadline) {
  check_store_entry(request.key, request.first);
  check_store_entry(request.key, request.second);
  StoreReply reply = transact(std::move(request), deadline);
  if (reply.status == StoreStatus::kRefused) throw Exception(ErrorCode::kBootstrap, reply.value);
  return reply;
}

void RequestStore::put(std::string_view key, std::string_view value, Deadline deadline) {
  ask({StoreOperation::kPut, std::string(key), std::string(value), "", 0}, deadline);
}

std::string RequestStore::get(std::string_view key, Deadline deadline) {
  return ask({StoreOperation::kGet, std::string(key), "", "", 0}, deadline).value;
}

std::optional<std::string> RequestStore::try_get(std::string_view key, Deadline deadline) {
  StoreReply reply = ask({StoreOperation::kTryGet, std::string(key), "", "", 0}, deadline);
  return reply.status == StoreStatus::kAbsent ? std::nullopt : std::optional(std::move(reply.value));
}

int64_t RequestStore::add(std::string_view key, int64_t amount, Deadline deadline) {
  const StoreReply reply = ask({StoreOperation::kAdd, std::string(key), "", "", amount}, deadline);
  const std::optional<int64_t> sum = parse_number<int64_t>(reply.value);
  RONDO_CHECK(sum, "transact() answers kAdd with a number");
  return *sum;
}

std::string RequestStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                      Deadline deadline) {
  return ask({StoreOperation::kCompareSet, std::string(key), std::string(expected), std::string(desired), 0}, deadline)
      .value;
}

bool RequestStore::remove(std::string_view key, Deadline deadline) {
  return ask({StoreOperation::kRemove, std::string(key), "", "", 0}, deadline).status == StoreStatus::kOk;
}

}  // namespace rondo
