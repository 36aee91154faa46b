#include "transport/store/store_map.h"

#include <fmt/format.h>

#include "ring/base/figures.h"
#include "rondo/error.h"
#include "rondo/store.h"

namespace rondo {
namespace {

// What an entry costs besides its bytes: the tree's node and two strings' headers.
constexpr size_t kEntryBytes = 128;

size_t entry_bytes(std::string_view key, std::string_view value) { return kEntryBytes + key.size() + value.size(); }

}  // namespace

void check_store_entry(std::string_view key, std::string_view value) {
  if (key.empty() || key.size() > Store::kMaxKeyBytes) {
    throw Exception(ErrorCode::kInvalid, fmt::format("a store key of {} bytes: 1 .. {} are allowed", key.size(),
                                                     size_t{Store::kMaxKeyBytes}));
  }
  if (value.size() > Store::kMaxValueBytes) {
    throw Exception(ErrorCode::kInvalid, fmt::format("a store value of {} bytes under \"{}\": at most {} are allowed",
                                                     value.size(), key, size_t{Store::kMaxValueBytes}));
  }
}

const std::string* StoreMap::find(std::string_view key) const {
  auto entry = entries_.find(key);
  return entry == entries_.end() ? nullptr : &entry->second;
}

// Replacing a value by a shorter one is always allowed, also beyond the limit.
void StoreMap::put(std::string_view key, std::string_view value) {
  const auto old = entries_.find(key);
  const size_t before = old == entries_.end() ? 0 : entry_bytes(key, old->second), after = entry_bytes(key, value);
  if (after > before && bytes_ - before + after > limit_) {
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("the store is full: \"{}\" would take it beyond {} bytes", key, limit_));
  }
  if (old != entries_.end()) {
    old->second.assign(value);
  } else {
    entries_.emplace(key, value);
  }
  bytes_ += after - before;
}

int64_t StoreMap::add(std::string_view key, int64_t amount) {
  const std::string* value = find(key);
  std::optional<int64_t> number = value == nullptr ? 0 : parse_number<int64_t>(*value);
  int64_t result = 0;
  if (!number || __builtin_add_overflow(*number, amount, &result)) {
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("cannot add {} to the store's \"{}\": its value is no number, or the sum is too large",
                                amount, key));
  }
  put(key, fmt::format("{}", result));
  return result;
}

std::string StoreMap::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  const std::string* value = find(key);
  std::string_view current = value == nullptr ? std::string_view() : std::string_view(*value);
  if (current != expected) return std::string(current);
  put(key, desired);
  return std::string(desired);
}

bool StoreMap::remove(std::string_view key) {
  auto entry = entries_.find(key);
  if (entry == entries_.end()) return false;
  bytes_ -= entry_bytes(key, entry->second);
  entries_.erase(entry);
  return true;
}

// Carries out one request. What it throws has changed nothing; StoreServer answers it as kRefused.
StoreReply StoreMap::apply(const StoreRequest& request) {
  switch (request.operation) {
    case StoreOperation::kPut:
      put(request.key, request.first);
      return {};
    case StoreOperation::kAdd:
      return {StoreStatus::kOk, fmt::format("{}", add(request.key, request.amount))};
    case StoreOperation::kCompareSet:
      return {StoreStatus::kOk, compare_set(request.key, request.first, request.second)};
    case StoreOperation::kRemove:
      return {remove(request.key) ? StoreStatus::kOk : StoreStatus::kAbsent, ""};
    case StoreOperation::kGet:
    case StoreOperation::kTryGet:
    case StoreOperation::kWill:
      break;
  }
  const std::string* value = find(request.key);
  return value == nullptr ? StoreReply{StoreStatus::kAbsent, ""} : StoreReply{StoreStatus::kOk, *value};
}

}  // namespace rondo
