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

// Throws MPI_ERR_OTHER: a table has `most` handles, and has no room for another.
[[noreturn, gnu::cold]] void refuse_one_more_handle(size_t most);  // errors.cc

// The number of the first handle that a program makes of a kind, whose null handle is `null` and whose error class is
// `error`. MPICH's ABI has the kind in bits 26 to 29, and in the two above whether the handle is predefined. Open MPI's
// predefined handles are addresses.
inline uintptr_t first_number([[maybe_unused]] uintptr_t null, [[maybe_unused]] int error) {
#ifdef RONDO_MPI_FACE_MPICH
  return (null | 0x80000000u) + 0x100;
#elif defined(RONDO_MPI_FACE_OPENMPI)
  return static_cast<uintptr_t>(error) << 52;  // no address
#else
  return null << 20;
#endif
}

// The objects behind the handles of a kind. T has a member `handle`. Handles are small integers that index a table: one
// that is not in it is found to be wrong, also one that was freed. Any thread; find() takes no lock. The table owns an
// object until remove(); a share() keeps it longer. name() runs where no other thread uses the table: in the
// constructor of World, and in open_world(). A thread must not free a handle while another one begins a call with it,
// which MPI forbids, so a slot needs no lock of its own.
template <typename T>
class Table {
 public:
  using Handle = decltype(T::handle);
  Table(Handle null, int error) : null_(null), first_(first_number(number_of(null), error)), error_(error) {}

  Handle null() const { return null_; }
  int error() const { return error_; }
  // nullptr: no object has this handle. The pointer is good until the handle is freed.
  T* find(Handle handle) const {
    const std::shared_ptr<T>* slot = slot_of(number_of(handle));
    return slot == nullptr ? nullptr : slot->get();
  }
  // The same for a call that waits: another thread may free the handle meanwhile. A predefined object stays, so its
  // share counts nothing.
  std::shared_ptr<T> share(Handle handle) const {
    const std::shared_ptr<T>* slot = slot_of(number_of(handle));
    if (slot == nullptr) return nullptr;
    return number_of(handle) - first_ < kChunk * kChunks ? *slot
                                                         : std::shared_ptr<T>(std::shared_ptr<T>(), slot->get());
  }
  // A predefined object, whose handle the ABI names. Two names may share a handle. An object that the handle had before
  // is dropped: a second open_world() names new communicators.
  void name(Handle handle, std::shared_ptr<T> object) {
    object->handle = handle;
    const uintptr_t number = number_of(handle);
    named_[place(number)] = {number, std::move(object)};
  }
  // A handle as an int, and back: where handles are addresses, predefined ones go by their places. This is Fortran's
  // INTEGER, and what MPI_Comm_toint() and its kin return.
  int integer(Handle handle) const {
    const uintptr_t number = number_of(handle);
    if (!kAddresses) return static_cast<int>(number);
    if (handle == null_) return -1;
    return static_cast<int>(predefined(handle) ? place(number) : number - first_ + kNamed);
  }
  Handle handle(int integer) const {
    const auto number = static_cast<unsigned>(integer);
    if (!kAddresses) return handle_of<Handle>(number);
    if (integer < 0) return null_;
    return handle_of<Handle>(number < kNamed ? named_[number].first : first_ + number - kNamed);
  }
  // MPI_ERR_OTHER: there are as many as may be.
  Handle add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    size_t index = size_;
    if (free_.empty()) {
      if (index == kChunk * kChunks) refuse_one_more_handle(index);
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
  // Returns nullptr for a predefined handle, which stays. Requires that the handle has an object: a second remove()
  // would put its index into free_ twice.
  std::shared_ptr<T> remove(Handle handle) {
    if (number_of(handle) - first_ >= size_.load(std::memory_order_acquire)) return nullptr;
    std::shared_ptr<T> object = take_out(handle);
    give_back(handle);
    return object;
  }
  // remove() and add() in parts, without the lock, for a thread that makes and ends many objects: the handle stays the
  // caller's, of no object, until put() or give_back(). Requires one that add() has given.
  std::shared_ptr<T> take_out(Handle handle) { return std::exchange(made(handle), nullptr); }
  void put(Handle handle, std::shared_ptr<T> object) {
    object->handle = handle;
    made(handle) = std::move(object);
  }
  void give_back(Handle handle) {
    std::lock_guard lock(mutex_);
    free_.push_back(number_of(handle) - first_);
  }
  // But for the predefined ones. Handles that threads keep for their next requests (request.cc) count, too.
  size_t count() {
    std::lock_guard lock(mutex_);
    return size_ - free_.size();
  }
  bool predefined(Handle handle) const { return named_[place(number_of(handle))].second != nullptr; }

 private:
#ifdef RONDO_MPI_FACE_OPENMPI
  static constexpr bool kAddresses = true;
#else
  static constexpr bool kAddresses = false;
#endif
  // Chunks never move, so find() takes no lock. It reads size_ (acquire), and the chunk that add() stored before
  // (release) is there. Nobody has an object's handle before add() returns. A chunk is 16 KiB, and a table has up to 4
  // Mi handles. kNamed is 2^8: place() takes the upper 8 bits of a hash.
  static constexpr size_t kChunk = 1024, kChunks = 4096, kNamed = 256;
  using Chunk = std::array<std::shared_ptr<T>, kChunk>;

  // Where the object of this number is among the predefined ones, or would be. Fibonacci hashing: the multiplier is
  // 2^64 divided by the golden ratio. Then linear probing, which is short since they take less than half of the places.
  size_t place(uintptr_t number) const {
    size_t at = number * 0x9e3779b97f4a7c15u >> 56;
    while (named_[at].second != nullptr && named_[at].first != number) at = (at + 1) % kNamed;
    return at;
  }
  std::shared_ptr<T>& made(Handle handle) const {
    const uintptr_t index = number_of(handle) - first_;
    return (*chunks_[index / kChunk])[index % kChunk];
  }
  const std::shared_ptr<T>* slot_of(uintptr_t number) const {
    const uintptr_t index = number - first_;
    if (index < size_.load(std::memory_order_acquire)) return &(*chunks_[index / kChunk])[index % kChunk];
    const auto& named = named_[place(number)].second;
    return named == nullptr ? nullptr : &named;
  }

  const Handle null_;
  const uintptr_t first_;
  const int error_;
  std::array<std::pair<uintptr_t, std::shared_ptr<T>>, kNamed> named_{};
  std::mutex mutex_;
  std::array<std::unique_ptr<Chunk>, kChunks> chunks_{};
  std::vector<size_t> free_;     // indices that were given back, under mutex_; the last one is given out first
  std::atomic<size_t> size_{0};  // indices ever given out, and never fewer
};

}  // namespace rondo_mpi
