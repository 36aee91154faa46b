#pragma once

#include <ATen/ATen.h>
#include <rondo/rondo.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace rondo_torch {

// How the library sees elements of a torch type: `per_item` elements of `dtype` each.
struct Elements {
  rondo_dtype_t dtype;
  uint64_t per_item;
};
// For moving: every type. One that the library lacks goes as its bytes, a complex one as two real ones.
Elements elements_moved(at::ScalarType type);

// An operation on a type, as the library takes it.
struct Reduction {
  Elements elements;
  rondo_op_t op;
  double scalar;  // PREMUL_SUM's factor, else 1
};
// ValueError for types and operations that cannot be reduced. Complex types: SUM, AVG and PREMUL_SUM.
Reduction reduction(const c10d::ReduceOp& op, at::ScalarType type);

// Throws unless the tensor is strided and on the CPU, or, with the reason, ValueError.
void check_tensor(const at::Tensor& tensor, const char* call);
// The only tensor of a list that torch passes for one tensor.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* call);
void check_same_type(const at::Tensor& tensor, const at::Tensor& other, const char* call);

// One tensor of a call, as memory that the library can use. Dense tensors are used as they lie, in the order of their
// memory; others through a copy in the order of their indices, which write_back() brings home.
class Flat {
 public:
  enum class Order { kMemory, kIndices };

  // kIndices: a dense tensor whose memory is in another order than its indices is copied, too.
  Flat(const at::Tensor& tensor, Order order);

  void* data() const { return memory_.data_ptr(); }
  uint64_t items() const { return static_cast<uint64_t>(memory_.numel()); }
  const at::Tensor& memory() const { return memory_; }
  bool copied() const { return !memory_.is_same(tensor_); }
  void write_back() const {
    if (copied()) tensor_.copy_(memory_);
  }

 private:
  at::Tensor tensor_;
  at::Tensor memory_;
};

// Several tensors as one block of memory, one after the other. They are used as they lie where they follow each other,
// else through a block of their own.
class Block {
 public:
  explicit Block(const std::vector<at::Tensor>& tensors);

  void* data() const { return memory_.defined() ? memory_.data_ptr() : nullptr; }
  const at::Tensor& memory() const { return memory_; }
  bool copied() const { return copied_; }
  // Elements of each tensor, as the library counts them.
  std::vector<uint64_t> counts(Elements elements) const;
  // All tensors have as many elements.
  bool even() const;

  void read() const;        // tensors -> block
  void write_back() const;  // block -> tensors

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor memory_;
  bool copied_ = false;
};

}  // namespace rondo_torch
