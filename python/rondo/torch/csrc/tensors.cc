#include "csrc/tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "csrc/in_stream.h"

namespace rondo_torch {

namespace {

constexpr rondo_dtype_t kNone = -1;

// The frequent ones first.
constexpr std::pair<at::ScalarType, rondo_dtype_t> kTypes[] = {{at::kFloat, RONDO_FLOAT32},
                                                               {at::kBFloat16, RONDO_BFLOAT16},
                                                               {at::kHalf, RONDO_FLOAT16},
                                                               {at::kDouble, RONDO_FLOAT64},
                                                               {at::kLong, RONDO_INT64},
                                                               {at::kInt, RONDO_INT32},
                                                               {at::kShort, RONDO_INT16},
                                                               {at::kChar, RONDO_INT8},
                                                               {at::kByte, RONDO_UINT8},
                                                               {at::kUInt16, RONDO_UINT16},
                                                               {at::kUInt32, RONDO_UINT32},
                                                               {at::kUInt64, RONDO_UINT64},
                                                               {at::kBool, RONDO_BOOL},
                                                               {at::kFloat8_e4m3fn, RONDO_FLOAT8_E4M3},
                                                               {at::kFloat8_e5m2, RONDO_FLOAT8_E5M2}};
using TorchOp = c10d::ReduceOp;
constexpr std::pair<TorchOp::RedOpType, rondo_op_t> kOps[] = {
    {TorchOp::SUM, RONDO_SUM}, {TorchOp::AVG, RONDO_AVG},   {TorchOp::PRODUCT, RONDO_PRODUCT},
    {TorchOp::MIN, RONDO_MIN}, {TorchOp::MAX, RONDO_MAX},   {TorchOp::BAND, RONDO_BAND},
    {TorchOp::BOR, RONDO_BOR}, {TorchOp::BXOR, RONDO_BXOR}, {TorchOp::PREMUL_SUM, RONDO_PREMULSUM}};

// The library's type of the same values, or kNone.
rondo_dtype_t same_dtype(at::ScalarType type) {
  for (const auto& [torchs, ours] : kTypes) {
    if (torchs == type) return ours;
  }
  return kNone;
}

rondo_op_t op_code(TorchOp::RedOpType op) {
  for (const auto& [torchs, ours] : kOps) {
    if (torchs == op) return ours;
  }
  TORCH_CHECK_VALUE(false, "rondo: reduce operation ", static_cast<int>(op), " is none of torch's");
}

double premul_factor(const c10d::ReduceOp& op) {
  const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr, "rondo: PREMUL_SUM without a factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

// Whether the tensors lie one after the other in memory; on a GPU in one allocation, since no copy goes over several.
bool adjacent(at::TensorList tensors) {
  const char* next = nullptr;
  const at::Tensor* first = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!lies_in_order(tensor)) return false;
    if (tensor.numel() == 0) continue;
    if (first == nullptr) first = &tensor;
    if (!tensor.is_cpu() && !tensor.is_alias_of(*first)) return false;
    const auto* begin = static_cast<const char*>(tensor.data_ptr());
    if (next != nullptr && begin != next) return false;
    next = begin + tensor.nbytes();
  }
  return true;
}

// The values are not those in memory.
bool is_lazy(const at::Tensor& tensor) { return tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor(); }

// Several elements lie at one place, as in what expand() makes.
bool overlaps_itself(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride, size
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) dimensions.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t reach = 0;  // of the dimensions so far
  const bool nested = std::all_of(dimensions.begin(), dimensions.end(), [&](const auto& dimension) {
    const bool beyond = dimension.first > reach;
    reach += dimension.first * (dimension.second - 1);
    return beyond;
  });
  if (nested) return false;
  at::Tensor places = at::zeros({}, at::kLong);
  for (const auto& [stride, size] : dimensions) places = places.unsqueeze(-1) + at::arange(size) * stride;
  return std::get<0>(at::_unique(places)).numel() < tensor.numel();
}

void check_written(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK_VALUE(!tensor._is_zerotensor() && !overlaps_itself(tensor), "rondo ", call,
                    ": the result cannot be written to a tensor of the sizes ", tensor.sizes(), " and strides ",
                    tensor.strides(), ", of which several elements lie at one place: pass a .clone() of it");
}

at::ScalarType integer_of_bytes(size_t bytes) {
  return bytes == 1   ? at::kByte
         : bytes == 2 ? at::kShort
         : bytes == 4 ? at::kInt
         : bytes == 8 ? at::kLong
                      : at::kComplexDouble;
}

// What is copied from or to for the tensor: its bits, which every type has, without history. Only lazy values go by
// their type.
at::Tensor copyable(const at::Tensor& tensor) {
  if (is_lazy(tensor)) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().dtype(integer_of_bytes(tensor.element_size())));
}

// One tensor's part of a copy.
at::Tensor part_at(void* data, const at::Tensor& copied) {
  return at::from_blob(data, copied.sizes(), copied.options());
}

}  // namespace

Elements elements_moved(at::ScalarType type) {
  TORCH_CHECK_VALUE(type != at::kQUInt4x2 && type != at::kQUInt2x4, "rondo: ", type,
                    " has several elements in a byte, which cannot be moved: pass its int_repr()");
  const rondo_dtype_t dtype = same_dtype(type);
  if (dtype != kNone) return {dtype, 1};
  if (c10::isComplexType(type)) return {same_dtype(c10::toRealValueType(type)), 2};
  return {RONDO_UINT8, c10::elementSize(type)};
}

Reduction reduction(const c10d::ReduceOp& op, at::ScalarType type) {
  const rondo_op_t code = op_code(op.op_);
  const Elements elements = elements_moved(type);
  const bool linear = code == RONDO_SUM || code == RONDO_AVG || code == RONDO_PREMULSUM;
  TORCH_CHECK_VALUE(same_dtype(type) != kNone || c10::isComplexType(type), "rondo: ", type, " cannot be reduced");
  TORCH_CHECK_VALUE(linear || !c10::isComplexType(type), "rondo: ", type, " can be reduced by SUM and AVG only");
  return {elements, code, code == RONDO_PREMULSUM ? premul_factor(op) : 1.0};
}

void check_tensor(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK_VALUE(tensor.defined(), "rondo ", call, ": a tensor is undefined");
  const at::Device device = InStream::here() ? InStream::here()->device() : at::Device(at::kCPU);
  TORCH_CHECK_VALUE(tensor.device() == device, "rondo ", call, ": a tensor is on ", tensor.device(),
                    ", and the call is on ", device, "; rondo serves CPUs and CUDA devices, one a call");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "rondo ", call, ": a tensor has the layout ", tensor.layout(),
                    "; only all_reduce takes sparse tensors");
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* call) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "rondo ", call, ": one tensor is needed, not ", tensors.size());
  return tensors[0];
}

void check_same_type(const at::Tensor& tensor, const at::Tensor& other, const char* call) {
  TORCH_CHECK_VALUE(tensor.scalar_type() == other.scalar_type(), "rondo ", call, ": the tensors have the types ",
                    tensor.scalar_type(), " and ", other.scalar_type(), "; they must be equal");
}

bool lies_in_order(const at::Tensor& tensor) { return tensor.is_contiguous() && !is_lazy(tensor); }

Block::Block(at::TensorList tensors, Access access, const char* call)
    : tensors_(tensors.begin(), tensors.end()), written_(access != Access::kRead) {
  if (tensors.empty()) return;
  InStream::keep(tensors);
  if (adjacent(tensors)) {
    const auto filled = std::find_if(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return t.numel() > 0; });
    data_ = (filled == tensors.end() ? tensors[0] : *filled).data_ptr();
    return;
  }
  if (written_) {
    for (const at::Tensor& tensor : tensors) check_written(tensor, call);
  }
  packed_ =
      at::empty({static_cast<int64_t>(items() * tensors[0].element_size())}, tensors[0].options().dtype(at::kByte));
  data_ = packed_.data_ptr();
  if (access != Access::kWrite) copy(Direction::kIn);
}

void Block::write_back() const {
  if (packed_.defined() && written_) copy(Direction::kOut);
}

// Below autograd: a leaf that requires a gradient may be written to, as memory is that the library writes.
void Block::copy(Direction direction) const {
  const at::AutoDispatchBelowADInplaceOrView guard;
  char* data = static_cast<char*>(data_);
  for (const at::Tensor& tensor : tensors_) {
    if (tensor.numel() == 0) continue;
    const at::Tensor own = copyable(tensor);
    const at::Tensor part = part_at(data, own);
    direction == Direction::kIn ? part.copy_(own) : own.copy_(part);
    data += tensor.nbytes();
  }
}

uint64_t Block::items() const {
  uint64_t sum = 0;
  for (const at::Tensor& tensor : tensors_) sum += static_cast<uint64_t>(tensor.numel());
  return sum;
}

std::vector<uint64_t> Block::counts(Elements elements) const {
  std::vector<uint64_t> counts;
  counts.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) counts.push_back(static_cast<uint64_t>(tensor.numel()) * elements.per_item);
  return counts;
}

bool Block::even() const {
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [this](const at::Tensor& tensor) { return tensor.numel() == tensors_[0].numel(); });
}

}  // namespace rondo_torch
