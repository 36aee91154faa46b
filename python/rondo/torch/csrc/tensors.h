#pragma once

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>
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

// ValueError, with the reason, unless the tensor is strided and where this thread's call is: on the CPU, or on the
// device of its InStream.
void check_tensor(const at::Tensor& tensor, const char* call);
// The only tensor of a list that torch passes for one tensor.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* call);
void check_same_type(const at::Tensor& tensor, const at::Tensor& other, const char* call);

enum class Access : uint8_t { kRead, kWrite, kUpdate };

// The tensors of one side of a call as one block of memory: one after the other, each in the order of its indices. What
// ranks send each other is in this order always, since none knows how the others' tensors lie. Tensors that lie so are
// used where they are; others, lazy conjugates and negatives among them, through a copy, whose results write_back()
// brings home. Neither touches autograd's history of the tensors.
class Block {
 public:
  // Makes the copy of what is read. ValueError, which names the call: elements that would be written share memory.
  Block(at::TensorList tensors, Access access, const char* call);

  void* data() const { return data_; }
  // Elements of all tensors together, as torch counts them.
  uint64_t items() const;
  // Elements of each tensor, as the library counts them.
  std::vector<uint64_t> counts(Elements elements) const;
  // All tensors have as many elements.
  bool even() const;
  void write_back() const;

 private:
  enum class Direction : uint8_t { kIn, kOut };

  void copy(Direction direction) const;

  c10::SmallVector<at::Tensor, 1> tensors_;
  at::Tensor packed_;  // the copy, in bytes; undefined: there is none
  bool written_;
  void* data_ = nullptr;
};

// Whether the tensor's memory has its elements in the order of their indices, with the values that they have.
bool lies_in_order(const at::Tensor& tensor);

}  // namespace rondo_torch
