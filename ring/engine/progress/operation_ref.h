#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace rondo {

// Owns one reference to an operation, which counts its references and deletes itself with the last (Operation).
template <typename T>
class OperationRef {
 public:
  OperationRef() = default;
  OperationRef(std::nullptr_t) {}
  // One reference more.
  explicit OperationRef(T& operation) : operation_(&operation) { operation.retain(); }
  OperationRef(const OperationRef& other) : operation_(other.operation_) {
    if (operation_ != nullptr) operation_->retain();
  }
  OperationRef(OperationRef&& other) noexcept : operation_(other.leave()) {}
  template <typename U>
  requires std::is_convertible_v<U*, T*> OperationRef(OperationRef<U> other) : operation_(other.leave()) {}
  OperationRef& operator=(OperationRef other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }
  ~OperationRef() {
    if (operation_ != nullptr) operation_->release();
  }

  // Takes over a reference that was left.
  static OperationRef take(T* operation) {
    OperationRef taken;
    taken.operation_ = operation;
    return taken;
  }
  // The reference is the caller's from now on.
  [[nodiscard]] T* leave() { return std::exchange(operation_, nullptr); }

  T* get() const { return operation_; }
  T& operator*() const { return *operation_; }
  T* operator->() const { return operation_; }
  explicit operator bool() const { return operation_ != nullptr; }

 private:
  T* operation_ = nullptr;
};

// Gives away references to one operation. It counts them many at a time, since a count is an atomic exchange, which
// takes the time of 20 instructions. One thread at a time.
template <typename T>
class ReferenceStock {
 public:
  explicit ReferenceStock(OperationRef<T> operation) : operation_(std::move(operation)) {}
  ReferenceStock(const ReferenceStock&) = delete;
  ReferenceStock& operator=(const ReferenceStock&) = delete;
  ~ReferenceStock() {
    if (left_ > 0) operation_->release(left_);
  }

  OperationRef<T> take() {
    if (left_ == 0) operation_->retain(left_ = kAtOnce);
    --left_;
    return OperationRef<T>::take(operation_.get());
  }

 private:
  // So many that their exchange costs a message nothing, and so few that a program which keeps its Works does not come
  // near what 32 bits count.
  static constexpr uint32_t kAtOnce = 1 << 16;

  OperationRef<T> operation_;
  uint32_t left_ = 0;  // counted, and not given away
};

}  // namespace rondo
