#include "csrc/store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace rondo_torch {

namespace {

StoreAdapter& self_of(void* context) { return *static_cast<StoreAdapter*>(context); }

std::vector<uint8_t> bytes_of(const void* data, size_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(data);
  return std::vector<uint8_t>(begin, begin + bytes);
}

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

}  // namespace

StoreAdapter::StoreAdapter(c10::intrusive_ptr<c10d::Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)) {
  functions_.context = this;
  functions_.put = put;
  functions_.get = get;
  functions_.try_get = try_get;
  functions_.add = add;
  functions_.compare_set = compare_set;
  functions_.remove = remove;
}

// torch's stores throw: after the time is over that is RONDO_TIMEOUT, before it the store is gone.
template <typename Action>
rondo_result_t StoreAdapter::answer(int64_t timeout_ms, rondo_reply_t reply, Action action) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    action();
    return RONDO_OK;
  } catch (const std::exception& error) {
    if (std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(timeout_ms)) return RONDO_TIMEOUT;
    rondo_reply_set(reply, error.what(), std::strlen(error.what()));
    return RONDO_BOOTSTRAP;
  }
}

rondo_result_t StoreAdapter::put(void* self, const char* key, const void* value, size_t bytes, int64_t timeout_ms,
                                 rondo_reply_t reply) {
  return answer(timeout_ms, reply,
                [&] { self_of(self).store_->set(self_of(self).named(key), bytes_of(value, bytes)); });
}

rondo_result_t StoreAdapter::get(void* self, const char* key, int64_t timeout_ms, rondo_reply_t reply) {
  return answer(timeout_ms, reply, [&] {
    const std::string name = self_of(self).named(key);
    await(*self_of(self).store_, name, std::chrono::milliseconds(timeout_ms));
    reply_with(reply, self_of(self).store_->get(name));
  });
}

rondo_result_t StoreAdapter::try_get(void* self, const char* key, int64_t timeout_ms, rondo_reply_t reply) {
  return answer(timeout_ms, reply, [&] {
    const std::string name = self_of(self).named(key);
    if (self_of(self).store_->check({name})) reply_with(reply, self_of(self).store_->get(name));
  });
}

rondo_result_t StoreAdapter::add(void* self, const char* key, int64_t amount, int64_t timeout_ms, int64_t* sum,
                                 rondo_reply_t reply) {
  return answer(timeout_ms, reply, [&] { *sum = self_of(self).store_->add(self_of(self).named(key), amount); });
}

// A start claims absent keys only. That goes by add(), since stores that are written in Python need no compareSet: the
// first that counts sets the value, the others wait for it.
rondo_result_t StoreAdapter::compare_set(void* self, const char* key, const void* expected, size_t expected_bytes,
                                         const void* desired, size_t desired_bytes, int64_t timeout_ms,
                                         rondo_reply_t reply) {
  return answer(timeout_ms, reply, [&] {
    c10d::Store& store = *self_of(self).store_;
    const std::string name = self_of(self).named(key);
    const std::vector<uint8_t> wanted = bytes_of(expected, expected_bytes);
    const std::vector<uint8_t> value = bytes_of(desired, desired_bytes);
    if (!wanted.empty()) return reply_with(reply, store.compareSet(name, wanted, value));
    const bool first = store.add(name + "/claims", 1) == 1;
    if (first) store.set(name, value);
    await(store, name, std::chrono::milliseconds(timeout_ms));
    reply_with(reply, store.get(name));
  });
}

rondo_result_t StoreAdapter::remove(void* self, const char* key, int64_t timeout_ms, int* removed,
                                    rondo_reply_t reply) {
  return answer(timeout_ms, reply,
                [&] { *removed = self_of(self).store_->deleteKey(self_of(self).named(key)) ? 1 : 0; });
}

}  // namespace rondo_torch
