#include "bench/rondo_group.h"

#include "bench/pattern.h"

namespace rondo::bench {

namespace {

template <typename Library>
concept Registers = requires(Library& library, void* memory) {
  memory = library.allocate(size_t{1});
  library.deallocate(memory);
};

template <typename Library>
std::byte* registered(Library& library, uint64_t bytes) {
  if constexpr (Registers<Library>) return static_cast<std::byte*>(library.allocate(bytes));
  throw Exception(ErrorCode::kUnsupported, "--buffers registered: this library allocates no registered memory");
}

template <typename Library>
void give_back(Library& library, std::byte* memory) {
  if constexpr (Registers<Library>) library.deallocate(memory);
}

}  // namespace

RondoGroup::RondoGroup(Communicator& communicator, Algorithm algorithm, BufferKind buffers, bool fused)
    : communicator_(communicator), buffers_(buffers), fused_(fused) {
  options_.algorithm = algorithm;
  options_.scalar = kPremulScalar;
}

void RondoGroup::run(const Call& c) {
  Communicator& comm = communicator_;
  switch (c.benchmark) {
    case Benchmark::kAllReduce:
      return comm.all_reduce(c.input, c.output, c.count, c.dtype, c.op, options_);
    case Benchmark::kReduceScatter:
      return comm.reduce_scatter(c.input, c.output, c.count, c.dtype, c.op, options_);
    case Benchmark::kAllGather:
      return comm.all_gather(c.input, c.output, c.count, c.dtype, options_);
    case Benchmark::kBroadcast:
      return comm.broadcast(c.output, c.count, c.dtype, c.root, options_);
    case Benchmark::kReduce:
      return comm.reduce(c.input, c.output, c.count, c.dtype, c.op, c.root, options_);
    case Benchmark::kGather:
      return comm.gather(c.input, c.output, c.count, c.dtype, c.root, options_);
    case Benchmark::kScatter:
      return comm.scatter(c.input, c.output, c.count, c.dtype, c.root, options_);
    case Benchmark::kAllToAll:
      return comm.all_to_all(c.input, c.output, c.count, c.dtype, options_);
    case Benchmark::kBarrier:
      return comm.barrier(options_);
    case Benchmark::kSendRecv: {
      const int next = (rank() + 1) % size(), before = (rank() + size() - 1) % size();
      comm.sendrecv(c.input, c.count, next, c.output, c.count, before, c.dtype, 0, options_);
      return;
    }
  }
}

void RondoGroup::run_parts(const Call& call, std::span<const uint64_t> counts) {
  if (!fused_) return Group::run_parts(call, counts);
  tensors_.clear();
  uint64_t offset = 0;
  for (uint64_t count : counts) {
    tensors_.push_back({call.input + offset, call.output + offset, count, call.dtype});
    offset += count * dtype_bytes(call.dtype);
  }
  communicator_.all_reduce_many(tensors_, call.op, options_);
}

std::byte* RondoGroup::allocate(uint64_t bytes) {
  return buffers_ == BufferKind::kPlain ? Group::allocate(bytes) : registered(communicator_, bytes);
}

void RondoGroup::deallocate(std::byte* memory) {
  if (memory == nullptr) return;
  if (buffers_ == BufferKind::kPlain) return Group::deallocate(memory);
  give_back(communicator_, memory);
}

std::string RondoGroup::algorithm(const Call& call) const {
  const std::optional<Collective> collective = benchmark_collective(call.benchmark);
  if (!collective) return "p2p";
  if (options_.algorithm != Algorithm::kAuto) return algorithm_name(options_.algorithm);
  const bool registered = buffers_ == BufferKind::kRegistered;
  return algorithm_name(communicator_.algorithm_for(*collective, call.count, call.dtype, call.op, registered));
}

void RondoGroup::barrier() { communicator_.barrier(); }

double RondoGroup::max(double value) {
  double result = 0;
  communicator_.all_reduce(&value, &result, 1, DType::kFloat64, Op::kMax);
  return result;
}

uint64_t RondoGroup::sum(uint64_t value) {
  uint64_t result = 0;
  communicator_.all_reduce(&value, &result, 1, DType::kUint64, Op::kSum);
  return result;
}

}  // namespace rondo::bench
