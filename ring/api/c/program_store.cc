#include "ring/api/c/program_store.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ring/api/c/arguments.h"
#include "ring/api/c/result.h"
#include "rondo/callback_store.h"

struct rondo_reply {
  std::optional<std::string> bytes;
};

namespace rondo::c {
namespace {

using Deadline = Store::Deadline;

int64_t left_ms(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
}

// Throws what a function of the program's returned.
void check(rondo_result_t result, const char* name, std::string_view key, const rondo_reply& reply) {
  if (result == RONDO_OK) return;
  std::string text = std::string("the program's store failed in ") + name + "(\"" + std::string(key) +
                     "\"): " + rondo_result_name(result);
  if (reply.bytes && !reply.bytes->empty()) text += ", " + *reply.bytes;
  throw Exception(result == RONDO_TIMEOUT ? ErrorCode::kTimeout : ErrorCode::kBootstrap, text);
}

// The keys are those of CallbackStore, which end in a zero byte.
CallbackStore::Functions functions_of(const rondo_store_t& store) {
  CallbackStore::Functions functions;
  functions.put = [store](std::string_view key, std::string_view value, Deadline deadline) {
    rondo_reply reply;
    check(store.put(store.context, key.data(), value.data(), value.size(), left_ms(deadline), &reply), "put", key,
          reply);
  };
  functions.get = [store](std::string_view key, Deadline deadline) {
    rondo_reply reply;
    check(store.get(store.context, key.data(), left_ms(deadline), &reply), "get", key, reply);
    return reply.bytes.value_or("");
  };
  functions.try_get = [store](std::string_view key, Deadline deadline) {
    rondo_reply reply;
    check(store.try_get(store.context, key.data(), left_ms(deadline), &reply), "try_get", key, reply);
    return reply.bytes;
  };
  functions.add = [store](std::string_view key, int64_t amount, Deadline deadline) {
    rondo_reply reply;
    int64_t sum = 0;
    check(store.add(store.context, key.data(), amount, left_ms(deadline), &sum, &reply), "add", key, reply);
    return sum;
  };
  functions.compare_set = [store](std::string_view key, std::string_view expected, std::string_view desired,
                                  Deadline deadline) {
    rondo_reply reply;
    check(store.compare_set(store.context, key.data(), expected.data(), expected.size(), desired.data(), desired.size(),
                            left_ms(deadline), &reply),
          "compare_set", key, reply);
    return reply.bytes.value_or("");
  };
  functions.remove = [store](std::string_view key, Deadline deadline) {
    rondo_reply reply;
    int removed = 0;
    check(store.remove(store.context, key.data(), left_ms(deadline), &removed, &reply), "remove", key, reply);
    return removed != 0;
  };
  return functions;
}

}  // namespace

std::shared_ptr<Store> program_store(const rondo_store_t* from) {
  const rondo_store_t store = read_struct(from, rondo_store_t RONDO_STORE_INIT, "store");
  given(store.put, "store->put");
  given(store.get, "store->get");
  given(store.try_get, "store->try_get");
  given(store.add, "store->add");
  given(store.compare_set, "store->compare_set");
  given(store.remove, "store->remove");
  return std::make_shared<CallbackStore>(functions_of(store));
}

}  // namespace rondo::c

extern "C" {

rondo_result_t rondo_reply_set(rondo_reply_t reply, const void* data, size_t bytes) {
  using namespace rondo::c;
  return guarded([&] {
    const auto* text = static_cast<const char*>(data);
    if (bytes > 0) given(text, "data");
    given(reply, "reply").bytes.emplace(text, bytes);
  });
}

}  // extern "C"
