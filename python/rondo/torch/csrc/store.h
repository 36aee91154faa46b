#pragma once

#include <rondo/rondo.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace rondo_torch {

// torch's store as rondo_join takes it: no second port, and every kind of store serves. The keys begin with `prefix`.
class StoreAdapter {
 public:
  StoreAdapter(c10::intrusive_ptr<c10d::Store> store, std::string prefix);

  // Valid as long as this object.
  const rondo_store_t* functions() const { return &functions_; }

 private:
  template <typename Action>
  static rondo_result_t answer(int64_t timeout_ms, rondo_reply_t reply, Action action);

  static rondo_result_t put(void* self, const char* key, const void* value, size_t bytes, int64_t timeout_ms,
                            rondo_reply_t reply);
  static rondo_result_t get(void* self, const char* key, int64_t timeout_ms, rondo_reply_t reply);
  static rondo_result_t try_get(void* self, const char* key, int64_t timeout_ms, rondo_reply_t reply);
  static rondo_result_t add(void* self, const char* key, int64_t amount, int64_t timeout_ms, int64_t* sum,
                            rondo_reply_t reply);
  static rondo_result_t compare_set(void* self, const char* key, const void* expected, size_t expected_bytes,
                                    const void* desired, size_t desired_bytes, int64_t timeout_ms, rondo_reply_t reply);
  static rondo_result_t remove(void* self, const char* key, int64_t timeout_ms, int* removed, rondo_reply_t reply);

  std::string named(const char* key) const { return prefix_ + key; }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  rondo_store_t functions_ = RONDO_STORE_INIT;
};

}  // namespace rondo_torch
