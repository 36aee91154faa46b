#pragma once

#include <ATen/ATen.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/memory.h"

namespace rondo_torch {

// A tensor of zeros in a block of registered memory of its own. group: its name, "": the default group. ValueError for
// a group that is none of this backend, DistBackendError for memory that the system refuses.
at::Tensor registered_empty(const std::vector<int64_t>& shape, at::ScalarType type, const std::string& group);

// While one lives, torch's CPU tensors that its thread makes lie in the group's arena of at least `bytes` bytes. They
// may live on. Where the arena is full, making a tensor raises torch.OutOfMemoryError. They nest.
class RegisteredScope : public torch::CustomClassHolder {
 public:
  RegisteredScope(const std::string& group, int64_t bytes);
  RegisteredScope(const RegisteredScope&) = delete;
  RegisteredScope& operator=(const RegisteredScope&) = delete;
  // Ends it; a second call does nothing. RuntimeError on another thread, or before those inside it have ended.
  void end();

 private:
  std::shared_ptr<Arena> arena_;  // null: ended
};

}  // namespace rondo_torch
