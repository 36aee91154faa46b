#include "rondo/callback_store.h"

#include <fmt/format.h>

#include "rondo/error.h"
#include "transport/store/store_map.h"

namespace rondo {
namespace {

template <typename Call>
auto guarded(std::string_view name, std::string_view key, Call&& call) {
  try {
    return call();
  } catch (const Exception&) {
    throw;
  } catch (const std::exception& e) {
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("the program's store failed in {}(\"{}\"): {}", name, key, e.what()));
  }
}

}  // namespace

CallbackStore::CallbackStore(Functions functions, std::string prefix)
    : functions_(std::move(functions)), prefix_(std::move(prefix)) {
  const Functions& f = functions_;
  if (!f.put || !f.get || !f.try_get || !f.add || !f.compare_set || !f.remove) {
    throw Exception(ErrorCode::kInvalid, "a callback store needs all six functions");
  }
}

std::string CallbackStore::full(std::string_view key, std::string_view value) const {
  check_store_entry(key, value);
  return prefix_ + std::string(key);
}

void CallbackStore::put(std::string_view key, std::string_view value, Deadline deadline) {
  guarded("put", key, [&] { functions_.put(full(key, value), value, deadline); });
}

std::string CallbackStore::get(std::string_view key, Deadline deadline) {
  return guarded("get", key, [&] { return functions_.get(full(key, ""), deadline); });
}

std::optional<std::string> CallbackStore::try_get(std::string_view key, Deadline deadline) {
  return guarded("try_get", key, [&] { return functions_.try_get(full(key, ""), deadline); });
}

int64_t CallbackStore::add(std::string_view key, int64_t amount, Deadline deadline) {
  return guarded("add", key, [&] { return functions_.add(full(key, ""), amount, deadline); });
}

std::string CallbackStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                       Deadline deadline) {
  check_store_entry(key, expected);
  return guarded("compare_set", key,
                 [&] { return functions_.compare_set(full(key, desired), expected, desired, deadline); });
}

bool CallbackStore::remove(std::string_view key, Deadline deadline) {
  return guarded("remove", key, [&] { return functions_.remove(full(key, ""), deadline); });
}

}  // namespace rondo
