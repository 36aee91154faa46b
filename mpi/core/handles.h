#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace rondo_mpi {

// A handle as a number, whatever the face's type of it.
template <typename Handle>
uintptr_t number_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<uintptr_t>(handle);
  } else {
    return static_cast<std::make_unsigned_t<Handle>>(handle);
  }
}
template <typename Handle>
Handle handle_of(uintptr_t number) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(number);
  } else {
    return static_cast<Handle>(number);
  }
}

// The number of the first handle that a program makes of a kind, whose null handle is `null`. MPICH's ABI has the kind
// in bits 26 to 29, and in the two above whether the handle is predefined.
inline uintptr_t first_number(uintptr_t null) {
#ifdef RONDO_MPI_FACE_MPICH
  return (null | 0x80000000u) + 0x100;
#else
  return null << 20;
#endif
}

// The objects behind the handles of a kind. T has a member `handle`. Handles are small integers that index a table: one
// that is not in it is found to be wrong, also one that was freed. Any thread; find() takes no lock.
template <typename T>
class Table {
 public:
  using Handle = decltype(T::handle);
  Table(Handle null, int error) : null_(null), first_(first_number(number_of(null))), error_(error) {}

  Handle null() const { return null_; }
  int error() const { return error_; }
  // nullptr: no object has this handle.
  T* find(Handle handle) const {
    const std::shared_ptr<T>* slot = slot_of(number_of(handle));
    return slot == nullptr ? nullptr : slot->get();
  }
  std::shared_ptr<T> share(Handle handle) const {
    const std::shared_ptr<T>* slot = slot_of(number_of(handle));
    return slot == nullptr ? nullptr : *slot;
  }
  // A predefined object, whose handle the ABI names. Two names may share a handle.
  void name(Handle handle, std::shared_ptr<T> object) {
    object->handle = handle;
    const uintptr_t number = number_of(handle);
    named_[place(number)] = {number, std::move(object)};
  }
  Handle add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    size_t index = size_;
    if (free_.empty()) {
      if (index % kChunk == 0) chunks_[index / kChunk] = std::make_unique<Chunk>();
      size_.store(index + 1, std::memory_order_release);
    } else {
      index = free_.back();
      free_.pop_back();
    }
    object->handle = handle_of<Handle>(first_ + index);
    (*chunks_[index / kChunk])[index % kChunk] = std::move(object);
    return handle_of<Handle>(first_ + index);
  }
  std::shared_ptr<T> remove(Handle handle) {
    std::lock_guard lock(mutex_);
    const uintptr_t index = number_of(handle) - first_;
    if (index >= size_) return nullptr;
    free_.push_back(index);
    return std::exchange((*chunks_[index / kChunk])[index % kChunk], nullptr);
  }
  bool predefined(Handle handle) const {
    const uintptr_t number = number_of(handle);
    return named_[place(number)].second != nullptr && named_[place(number)].first == number;
  }

 private:
  static constexpr size_t kChunk = 1024, kChunks = 4096;
  using Chunk = std::array<std::shared_ptr<T>, kChunk>;

  // Handles of the ABIs differ in their low bytes, but for MPICH's pair types, whose upper byte differs.
  static size_t place(uintptr_t number) { return (number ^ (number >> 25)) & 0xff; }
  const std::shared_ptr<T>* slot_of(uintptr_t number) const {
    const auto& [named, object] = named_[place(number)];
    if (named == number && object != nullptr) return &object;
    const uintptr_t index = number - first_;
    if (index >= size_.load(std::memory_order_acquire)) return nullptr;
    return &(*chunks_[index / kChunk])[index % kChunk];
  }

  const Handle null_;
  const uintptr_t first_;
  const int error_;
  std::array<std::pair<uintptr_t, std::shared_ptr<T>>, 256> named_{};
  std::mutex mutex_;
  std::array<std::unique_ptr<Chunk>, kChunks> chunks_{};
  std::vector<size_t> free_;
  std::atomic<size_t> size_{0};
};

}  // namespace rondo_mpi
