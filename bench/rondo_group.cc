#include "bench/rondo_group.h"

#include "bench/loop/pattern.h"

namespace rondo::bench {
RondoGroup::RondoGroup(Communicator& communicator, const RondoCalls& calls)
    : communicator_(communicator), calls_(calls) {
  options_.algorithm = calls.algorithm;
  options_.scalar = kPremulScalar;
}

void RondoGroup::run(const Call& c) {
  const std::optional<Collective> collective = benchmark_collective(c.benchmark);
  if (!collective) return run_messages(c);
  const rondo::Call call{.collective = *collective,
                         .input = c.input,
                         .output = c.output,
                         .count = c.count,
                         .dtype = c.dtype,
                         .op = c.op,
                         .root = collective_has_root(*collective) ? c.root : -1,
                         .options = options_};
  if (calls_.blocking) return communicator_.run(call);
  communicator_.start(call).wait();
}

void RondoGroup::run_messages(const Call& c) {
  if (c.benchmark == Benchmark::kSendRecv) return run_send_recv(c);
  return c.benchmark == Benchmark::kPingPong ? run_ping_pong(c) : run_burst(c);
}

// Receives are posted first, so messages land in their buffers. On a stream calls run in order: a rank that received
// first would wait for a message that its neighbor sends only after its own receive.
void RondoGroup::run_send_recv(const Call& c) {
  Communicator& comm = communicator_;
  const int next = (rank() + 1) % size(), before = (rank() + size() - 1) % size();
  if (calls_.blocking) {
    comm.sendrecv(c.input, c.count, next, c.output, c.count, before, c.dtype, 0, options_);
  } else if (options_.stream) {  // in its order: what is sent goes first
    Work sent = comm.send_async(c.input, c.count, c.dtype, next, 0, options_);
    comm.recv_async(c.output, c.count, c.dtype, before, 0, options_).wait();
    sent.wait();
  } else {
    Work received = comm.recv_async(c.output, c.count, c.dtype, before, 0, options_);
    comm.send_async(c.input, c.count, c.dtype, next, 0, options_).wait();
    received.wait();
  }
}

// Two messages, one after the other: who sends first gets an answer.
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

// works_ keeps its capacity between bursts: no allocation is timed.
void RondoGroup::run_burst(const Call& c) {
  const int partner = partner_of(rank());
  const uint64_t bytes = c.count * dtype_bytes(c.dtype);
  const auto receive = [&](uint64_t i) {
    works_.push_back(communicator_.recv_async(c.output + i * bytes, c.count, c.dtype, partner, 0, options_));
  };
  const auto send = [&](uint64_t i) {
    works_.push_back(communicator_.send_async(c.input + i * bytes, c.count, c.dtype, partner, 0, options_));
  };
  works_.clear();
  if (!options_.stream) {
    for (uint64_t i = 0; i < kBurstMessages; ++i) receive(i);
  }
  for (uint64_t i = 0; i < kBurstMessages; ++i) send(i);
  if (options_.stream) {  // in its order: what is sent goes first
    for (uint64_t i = 0; i < kBurstMessages; ++i) receive(i);
  }
  for (Work& work : works_) work.wait();
}

void RondoGroup::run_parts(const Call& call, std::span<const uint64_t> counts) {
  if (!calls_.fused) return Group::run_parts(call, counts);
  run_parts_at(call, counts);
}

// All parts as one list; they lie one after the other.
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

// registered: memory of the communicator's allocate().
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

// Calls of the library under test, outside the clock; with options of their own, so that they never go to a stream.
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
