#include "csrc/registered.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <utility>

#include "csrc/backend.h"

namespace rondo_torch {

namespace {

// The arenas of this thread's scopes, innermost last.
thread_local std::vector<Arena*> arenas;

// torch's CPU allocator from the first scope on: this thread's arena, or the allocator that torch had before.
class ScopedAllocator final : public at::Allocator {
 public:
  explicit ScopedAllocator(at::Allocator* other) : other_(other) {}

  at::DataPtr allocate(size_t bytes) override {
    if (arenas.empty() || bytes == 0) return other_->allocate(bytes);
    std::shared_ptr<void> piece = arenas.back()->allocate(bytes);
    if (!piece) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "rondo.torch.registered: the arena of ", arenas.back()->bytes(),
                       " bytes has no gap of ", bytes, " bytes: pass a larger bytes=, or make fewer tensors inside it");
    }
    void* data = piece.get();
    return {data, new std::shared_ptr<void>(std::move(piece)),
            [](void* held) { delete static_cast<std::shared_ptr<void>*>(held); }, at::Device(at::kCPU)};
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

 private:
  at::Allocator* const other_;
};

void install_allocator() {
  // Never destroyed, never taken out: tensors of both kinds refer to it.
  static const bool installed = [] {
    c10::SetCPUAllocator(new ScopedAllocator(c10::GetCPUAllocator()));
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

RegisteredScope::RegisteredScope(const std::string& group, size_t bytes) {
  TORCH_CHECK_VALUE(bytes > 0, "rondo.torch.registered: bytes is 0; it is the size of the arena");
  arena_ = RondoBackend::named(group)->arena(bytes);
  install_allocator();
  arenas.push_back(arena_.get());
}

void RegisteredScope::end() {
  if (!arena_) return;
  TORCH_CHECK(!arenas.empty() && arenas.back() == arena_.get(),
              "rondo.torch.registered: it ends on the thread that began it, after those inside it");
  arenas.pop_back();
  arena_.reset();
}

}  // namespace rondo_torch
