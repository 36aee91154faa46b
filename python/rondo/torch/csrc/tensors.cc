#include "csrc/tensors.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace rondo_torch {

namespace {

constexpr rondo_dtype_t kNone = -1;

// The library's type of the same values, or kNone.
rondo_dtype_t same_dtype(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return RONDO_INT8;
    case at::kByte:
      return RONDO_UINT8;
    case at::kShort:
      return RONDO_INT16;
    case at::kUInt16:
      return RONDO_UINT16;
    case at::kInt:
      return RONDO_INT32;
    case at::kUInt32:
      return RONDO_UINT32;
    case at::kLong:
      return RONDO_INT64;
    case at::kUInt64:
      return RONDO_UINT64;
    case at::kHalf:
      return RONDO_FLOAT16;
    case at::kBFloat16:
      return RONDO_BFLOAT16;
    case at::kFloat:
      return RONDO_FLOAT32;
    case at::kDouble:
      return RONDO_FLOAT64;
    case at::kBool:
      return RONDO_BOOL;
    case at::kFloat8_e4m3fn:
      return RONDO_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
      return RONDO_FLOAT8_E5M2;
    default:
      return kNone;
  }
}

rondo_op_t op_code(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return RONDO_SUM;
    case c10d::ReduceOp::AVG:
      return RONDO_AVG;
    case c10d::ReduceOp::PRODUCT:
      return RONDO_PRODUCT;
    case c10d::ReduceOp::MIN:
      return RONDO_MIN;
    case c10d::ReduceOp::MAX:
      return RONDO_MAX;
    case c10d::ReduceOp::BAND:
      return RONDO_BAND;
    case c10d::ReduceOp::BOR:
      return RONDO_BOR;
    case c10d::ReduceOp::BXOR:
      return RONDO_BXOR;
    case c10d::ReduceOp::PREMUL_SUM:
      return RONDO_PREMULSUM;
    default:
      break;
  }
  TORCH_CHECK_VALUE(false, "rondo: reduce operation ", static_cast<int>(op), " is none of torch's");
}

double premul_factor(const c10d::ReduceOp& op) {
  const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr, "rondo: PREMUL_SUM without a factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

// Whether the tensors lie one after the other in memory.
bool adjacent(const std::vector<at::Tensor>& tensors) {
  const char* next = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_contiguous()) return false;
    if (tensor.numel() == 0) continue;
    const auto* begin = static_cast<const char*>(tensor.data_ptr());
    if (next != nullptr && begin != next) return false;
    next = begin + tensor.nbytes();
  }
  return true;
}

}  // namespace

Elements elements_moved(at::ScalarType type) {
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
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "rondo ", call, ": a tensor is on ", tensor.device(),
                    "; rondo works on CPU tensors only: move it by .cpu(), or use a backend for that device, as in "
                    "init_process_group(\"cpu:rondo,cuda:nccl\")");
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

Flat::Flat(const at::Tensor& tensor, Order order) : tensor_(tensor) {
  const bool usable = order == Order::kMemory ? tensor.is_non_overlapping_and_dense() : tensor.is_contiguous();
  memory_ = usable ? tensor : at::empty_like(tensor, at::MemoryFormat::Contiguous).copy_(tensor);
}

Block::Block(const std::vector<at::Tensor>& tensors) : tensors_(tensors) {
  if (tensors.empty()) return;
  copied_ = !adjacent(tensors);
  if (copied_) {
    int64_t items = 0;
    for (const at::Tensor& tensor : tensors) items += tensor.numel();
    memory_ = at::empty({items}, tensors[0].options());
    return;
  }
  const auto filled = std::find_if(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return t.numel() > 0; });
  memory_ = filled == tensors.end() ? tensors[0] : *filled;
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

void Block::read() const {
  if (!copied_) return;
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors_) {
    memory_.narrow(0, begin, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    begin += tensor.numel();
  }
}

void Block::write_back() const {
  if (!copied_) return;
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors_) {
    tensor.copy_(memory_.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

}  // namespace rondo_torch
