#include "csrc/store.h"

#include <chrono>
#include <cstring>
#include <exception>
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
    self_of(self).store_->wait({name}, std::chrono::milliseconds(timeout_ms));
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

rondo_result_t StoreAdapter::compare_set(void* self, const char* key, const void* expected, size_t expected_bytes,
                                         const void* desired, size_t desired_bytes, int64_t timeout_ms,
                                         rondo_reply_t reply) {
  return answer(timeout_ms, reply, [&] {
    c10d::Store& store = *self_of(self).store_;
    const std::string name = self_of(self).named(key);
    const std::vector<uint8_t> wanted = bytes_of(expected, expected_bytes);
    std::vector<uint8_t> value = store.compareSet(name, wanted, bytes_of(desired, desired_bytes));
    // For an absent key torch's stores answer with what was expected.
    if (!wanted.empty() && value == wanted && !store.check({name})) value.clear();
    reply_with(reply, value);
  });
}

rondo_result_t StoreAdapter::remove(void* self, const char* key, int64_t timeout_ms, int* removed,
                                    rondo_reply_t reply) {
  return answer(timeout_ms, reply,
                [&] { *removed = self_of(self).store_->deleteKey(self_of(self).named(key)) ? 1 : 0; });
}

}  // namespace rondo_torch
