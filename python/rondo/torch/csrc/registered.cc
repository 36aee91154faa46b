#include "csrc/registered.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <unordered_map>
#include <utility>

#include "csrc/backend.h"
#include "csrc/locked.h"

namespace rondo_torch {

namespace {

// The arenas of this thread's scopes, innermost last. Shared with the scopes: one that could not end, because another
// thread or one outside the others was told to end it, leaves its arena here.
thread_local std::vector<std::shared_ptr<Arena>> arenas;

// Which memory is in use by address: torch frees memory by a plain function, also without a tensor.
class Pieces {
 public:
  // Never destroyed: tensors may live as long as the process.
  static Pieces& get() {
    static auto* pieces = new Pieces;
    return *pieces;
  }

  // For the children of every fork from now on: all of their tensors end by take().
  void hold_around_forks() {
    pthread_atfork([] { get().held_.hold(); }, [] { get().held_.let_go(); }, [] { get().held_.let_go(); });
  }

  void add(std::shared_ptr<void> piece) {
    held_.with([&piece](Held& held) { std::swap(held[piece.get()], piece); });
  }

  // Null: not of an arena.
  std::shared_ptr<void> take(void* data) {
    return held_.with([data](Held& held) {
      const auto found = held.find(data);
      if (found == held.end()) return std::shared_ptr<void>();
      std::shared_ptr<void> piece = std::move(found->second);
      held.erase(found);
      return piece;
    });
  }

 private:
  using Held = std::unordered_map<void*, std::shared_ptr<void>>;

  Locked<Held> held_;
};

// What torch had before; set once, before the first piece.
at::Allocator* other_allocator = nullptr;

// Serves memory of either allocator: torch's raw_deallocate() calls the deleter of the allocator that is set now,
// whichever gave the memory.
void free_piece(void* data) {
  if (!Pieces::get().take(data)) other_allocator->raw_deleter()(data);
}

// torch's CPU allocator from the first scope on: this thread's arena, or the allocator that torch had before.
class ScopedAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (arenas.empty() || !arenas.back()->usable() || bytes == 0) return other_allocator->allocate(bytes);
    std::shared_ptr<void> piece = arenas.back()->allocate(bytes);
    if (!piece) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "rondo.torch.registered: the arena of ", arenas.back()->bytes(),
                       " bytes has no gap of ", bytes, " bytes: pass a larger bytes=, or make fewer tensors inside it");
    }
    void* data = piece.get();
    Pieces::get().add(std::move(piece));
    return {data, data, &free_piece, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_piece; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

void install_allocator() {
  // Never destroyed, never taken out: tensors of both kinds refer to it.
  static const bool installed = [] {
    other_allocator = c10::GetCPUAllocator();
    TORCH_CHECK(other_allocator->raw_deleter() != nullptr,
                "rondo.torch.registered: another CPU allocator is set, whose memory cannot be freed by its address");
    Pieces::get().hold_around_forks();
    c10::SetCPUAllocator(new ScopedAllocator);
    return true;
  }();
  (void)installed;
}

}  // namespace

at::Tensor registered_empty(const std::vector<int64_t>& shape, at::ScalarType type, const std::string& group) {
  const c10::intrusive_ptr<RondoBackend> backend = RondoBackend::named(group);
  const size_t bytes = at::detail::computeStorageNbytesContiguous(shape, c10::elementSize(type));
  if (bytes == 0) return at::empty(shape, type);
  std::shared_ptr<void> block = backend->memory()->allocate(bytes);
  void* data = block.get();
  return at::from_blob(
      data, shape, [block = std::move(block)](void*) {}, at::TensorOptions(type));
}

RegisteredScope::RegisteredScope(const std::string& group, int64_t bytes) {
  TORCH_CHECK_VALUE(bytes > 0, "rondo.torch.registered: bytes is ", bytes, "; it is the size of the arena");
  arena_ = RondoBackend::named(group)->arena(static_cast<size_t>(bytes));
  install_allocator();
  arenas.push_back(arena_);
}

void RegisteredScope::end() {
  if (!arena_) return;
  TORCH_CHECK(!arenas.empty() && arenas.back() == arena_,
              "rondo.torch.registered: it ends on the thread that began it, after those inside it");
  arenas.pop_back();
  arena_.reset();
}

}  // namespace rondo_torch
