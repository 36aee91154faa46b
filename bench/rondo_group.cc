#include "bench/rondo_group.h"

#include "bench/loop/pattern.h"

namespace rondo::bench {
RondoGroup::RondoGroup(Communicator& communicator, const RondoCalls& calls)
    : communicator_(communicator), calls_(calls) {
  options_.algorithm = calls.algorithm;
  options_.scalar = kPremulScalar;
}

void RondoGroup::run(const Call& c) {
  if (!calls_.blocking) return run_async(c);
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
    case Benchmark::kPingPong:
      return run_ping_pong(c);
  }
}

void RondoGroup::run_async(const Call& c) {
  Communicator& comm = communicator_;
  switch (c.benchmark) {
    case Benchmark::kAllReduce:
      return comm.all_reduce_async(c.input, c.output, c.count, c.dtype, c.op, options_).wait();
    case Benchmark::kReduceScatter:
      return comm.reduce_scatter_async(c.input, c.output, c.count, c.dtype, c.op, options_).wait();
    case Benchmark::kAllGather:
      return comm.all_gather_async(c.input, c.output, c.count, c.dtype, options_).wait();
    case Benchmark::kBroadcast:
      return comm.broadcast_async(c.output, c.count, c.dtype, c.root, options_).wait();
    case Benchmark::kReduce:
      return comm.reduce_async(c.input, c.output, c.count, c.dtype, c.op, c.root, options_).wait();
    case Benchmark::kGather:
      return comm.gather_async(c.input, c.output, c.count, c.dtype, c.root, options_).wait();
    case Benchmark::kScatter:
      return comm.scatter_async(c.input, c.output, c.count, c.dtype, c.root, options_).wait();
    case Benchmark::kAllToAll:
      return comm.all_to_all_async(c.input, c.output, c.count, c.dtype, options_).wait();
    case Benchmark::kBarrier:
      return comm.barrier_async(options_).wait();
    case Benchmark::kSendRecv: {
      const int next = (rank() + 1) % size(), before = (rank() + size() - 1) % size();
      if (options_.stream) {  // in its order: what is sent goes first
        Work sent = comm.send_async(c.input, c.count, c.dtype, next, 0, options_);
        comm.recv_async(c.output, c.count, c.dtype, before, 0, options_).wait();
        return sent.wait();
      }
      Work received = comm.recv_async(c.output, c.count, c.dtype, before, 0, options_);
      comm.send_async(c.input, c.count, c.dtype, next, 0, options_).wait();
      return received.wait();
    }
    case Benchmark::kPingPong:
      return run_ping_pong(c);
  }
}

void RondoGroup::run_ping_pong(const Call& c) {
  Communicator& comm = communicator_;
  const int partner = partner_of(rank());
  const auto send = [&] {
    if (calls_.blocking) return comm.send(c.input, c.count, c.dtype, partner, 0, options_);
    comm.send_async(c.input, c.count, c.dtype, partner, 0, options_).wait();
  };
  const auto receive = [&] {
    if (!calls_.blocking) return comm.recv_async(c.output, c.count, c.dtype, partner, 0, options_).wait();
    comm.recv(c.output, c.count, c.dtype, partner, 0, options_);
  };
  if (sends_first(rank())) send();
  receive();
  if (!sends_first(rank())) send();
}

void RondoGroup::run_parts(const Call& call, std::span<const uint64_t> counts) {
  if (!calls_.fused) return Group::run_parts(call, counts);
  run_parts_at(call, counts);
}

void RondoGroup::run_parts_at(const Call& call, std::span<const uint64_t> counts) {
  tensors_.clear();
  uint64_t offset = 0;
  for (uint64_t count : counts) {
    tensors_.push_back({call.input + offset, call.output + offset, count, call.dtype});
    offset += count * dtype_bytes(call.dtype);
  }
  communicator_.all_reduce_many(tensors_, call.op, options_);
}

std::byte* RondoGroup::allocate(uint64_t bytes) {
  if (calls_.buffers == BufferKind::kPlain) return Group::allocate(bytes);
  return static_cast<std::byte*>(communicator_.allocate(bytes));
}

void RondoGroup::deallocate(std::byte* memory) {
  if (memory == nullptr) return;
  if (calls_.buffers == BufferKind::kPlain) return Group::deallocate(memory);
  communicator_.deallocate(memory);
}

std::string RondoGroup::algorithm(const Call& call) const {
  const std::optional<Collective> collective = benchmark_collective(call.benchmark);
  if (!collective) return "p2p";
  if (options_.algorithm != Algorithm::kAuto) return algorithm_name(options_.algorithm);
  const bool registered = calls_.buffers == BufferKind::kRegistered;
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
