#include "csrc/store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

namespace rondo_torch {

namespace {

std::vector<uint8_t> bytes_of(const void* data, size_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(data);
  return std::vector<uint8_t>(begin, begin + bytes);
}

// The library copies the value.
void reply_with(rondo_reply_t reply, const std::vector<uint8_t>& value) {
  rondo_reply_set(reply, value.data(), value.size());
}

// By check(), not by wait(): the library waits in turns of a second, and torch's TCP store prints a warning for every
// turn that ends without the key. Pauses grow with the time that has passed, so that many ranks do not keep the store
// busy.
void await(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  const auto begin = std::chrono::steady_clock::now();
  while (!store.check({key})) {
    const auto passed = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
    if (passed >= timeout) throw std::runtime_error("the key " + key + " is not there");
    std::this_thread::sleep_for(std::min(std::clamp(passed / 8, milliseconds(1), milliseconds(50)), timeout - passed));
  }
}

// Runs action(store, full key). torch's stores throw: after the time is over that is RONDO_TIMEOUT, before it the store
// is gone.
template <typename Action>
rondo_result_t answer(void* named, const char* key, int64_t timeout_ms, rondo_reply_t reply, Action action) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    const auto& of = *static_cast<const NamedStore*>(named);
    action(*of.store, of.prefix + key);
    return RONDO_OK;
  } catch (const std::exception& error) {
    if (std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(timeout_ms)) return RONDO_TIMEOUT;
    rondo_reply_set(reply, error.what(), std::strlen(error.what()));
    return RONDO_BOOTSTRAP;
  }
}

}  // namespace

rondo_store_t functions_of(const NamedStore& named) {
  using Store = c10d::Store;
  using Name = std::string;
  rondo_store_t functions = RONDO_STORE_INIT;
  functions.context = const_cast<NamedStore*>(&named);
  functions.put = [](void* of, const char* key, const void* value, size_t bytes, int64_t ms, rondo_reply_t reply) {
    return answer(of, key, ms, reply, [&](Store& store, const Name& name) { store.set(name, bytes_of(value, bytes)); });
  };
  functions.get = [](void* of, const char* key, int64_t ms, rondo_reply_t reply) {
    return answer(of, key, ms, reply, [&](Store& store, const Name& name) {
      await(store, name, std::chrono::milliseconds(ms));
      reply_with(reply, store.get(name));
    });
  };
  functions.try_get = [](void* of, const char* key, int64_t ms, rondo_reply_t reply) {
    return answer(of, key, ms, reply, [&](Store& store, const Name& name) {
      if (store.check({name})) reply_with(reply, store.get(name));
    });
  };
  functions.add = [](void* of, const char* key, int64_t amount, int64_t ms, int64_t* sum, rondo_reply_t reply) {
    return answer(of, key, ms, reply, [&](Store& store, const Name& name) { *sum = store.add(name, amount); });
  };
  // A start claims absent keys only. That goes by add(), since stores that are written in Python need no compareSet:
  // the first that counts sets the value, the others wait for it.
  functions.compare_set = [](void* of, const char* key, const void* expected, size_t expected_bytes,
                             const void* desired, size_t desired_bytes, int64_t ms, rondo_reply_t reply) {
    return answer(of, key, ms, reply, [&](Store& store, const Name& name) {
      const std::vector<uint8_t> wanted = bytes_of(expected, expected_bytes);
      const std::vector<uint8_t> value = bytes_of(desired, desired_bytes);
      if (!wanted.empty()) return reply_with(reply, store.compareSet(name, wanted, value));
      const bool first = store.add(name + "/claims", 1) == 1;
      if (first) store.set(name, value);
      await(store, name, std::chrono::milliseconds(ms));
      reply_with(reply, store.get(name));
    });
  };
  functions.remove = [](void* of, const char* key, int64_t ms, int* removed, rondo_reply_t reply) {
    return answer(of, key, ms, reply,
                  [&](Store& store, const Name& name) { *removed = store.deleteKey(name) ? 1 : 0; });
  };
  return functions;
}

}  // namespace rondo_torch
