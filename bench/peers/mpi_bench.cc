// Times an MPI's collectives with rondo-bench's own options, measuring loop, buffers and checks. Started by the MPI's
// mpiexec, one process a rank; rank 0 writes the rows (--json).
//   PEER_LIBRARY, PEER_TRANSPORT, PEER_SETTING    what the rows are called
//   MPI_BENCH_KEEP_HEAP=1    freed memory stays: page faults of temporaries cost MPI up to half of its time

#include <fmt/format.h>
#include <malloc.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "bench/peers/peer.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

void check(int code) {
  if (code != MPI_SUCCESS) throw Exception(ErrorCode::kSystem, fmt::format("MPI error {}", code));
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return MPI_INT8_T;
    case DType::kUint8:
      return MPI_UINT8_T;
    case DType::kInt16:
      return MPI_INT16_T;
    case DType::kUint16:
      return MPI_UINT16_T;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kUint32:
      return MPI_UINT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
    case DType::kUint64:
      return MPI_UINT64_T;
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kFloat64:
      return MPI_DOUBLE;
    default:
      throw Exception(ErrorCode::kInvalid, fmt::format("MPI has no {}", dtype_name(dtype)));
  }
}

MPI_Op op_of(Op op) {
  switch (op) {
    case Op::kSum:
      return MPI_SUM;
    case Op::kProduct:
      return MPI_PROD;
    case Op::kMin:
      return MPI_MIN;
    case Op::kMax:
      return MPI_MAX;
    default:
      throw Exception(ErrorCode::kInvalid, fmt::format("not measured over MPI: {}", op_name(op)));
  }
}

int count_of(uint64_t count) {
  if (count > static_cast<uint64_t>(std::numeric_limits<int>::max())) {
    throw Exception(ErrorCode::kInvalid, "MPI counts are int");
  }
  return static_cast<int>(count);
}

class MpiGroup : public Group {
 public:
  explicit MpiGroup(bool blocking) : blocking_(blocking) {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string algorithm(const Call&) const override { return setting("PEER_SETTING"); }
  void run(const Call& call) override;
  void barrier() override { check(MPI_Barrier(MPI_COMM_WORLD)); }
  double max(double value) override {
    double result = 0;
    check(MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return result;
  }
  uint64_t sum(uint64_t value) override {
    uint64_t result = 0;
    check(MPI_Allreduce(&value, &result, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    return result;
  }

 private:
  void run_rooted(const Call& call, int count, MPI_Datatype type);
  void sendrecv(const Call& call, int count, MPI_Datatype type);
  void ping_pong(const Call& call, int count, MPI_Datatype type);
  void burst(const Call& call, int count, MPI_Datatype type);

  const bool blocking_;
  int rank_ = 0, size_ = 1;
};

void MpiGroup::run(const Call& call) {
  const int count = count_of(call.count);
  const MPI_Datatype type = type_of(call.dtype);
  const bool in_place = call.input == call.output;
  const void* input = in_place ? MPI_IN_PLACE : call.input;
  switch (call.benchmark) {
    case Benchmark::kAllReduce:
      return check(MPI_Allreduce(input, call.output, count, type, op_of(call.op), MPI_COMM_WORLD));
    case Benchmark::kReduceScatter:
      return check(MPI_Reduce_scatter_block(call.input, call.output, count, type, op_of(call.op), MPI_COMM_WORLD));
    case Benchmark::kAllGather:
      return check(MPI_Allgather(call.input, count, type, call.output, count, type, MPI_COMM_WORLD));
    case Benchmark::kAllToAll:
      return check(MPI_Alltoall(call.input, count, type, call.output, count, type, MPI_COMM_WORLD));
    case Benchmark::kBarrier:
      return check(MPI_Barrier(MPI_COMM_WORLD));
    case Benchmark::kSendRecv:
      return sendrecv(call, count, type);
    case Benchmark::kPingPong:
      return ping_pong(call, count, type);
    case Benchmark::kBurst:
      return burst(call, count, type);
    default:
      return run_rooted(call, count, type);
  }
}

void MpiGroup::run_rooted(const Call& call, int count, MPI_Datatype type) {
  const bool in_place = call.input == call.output && rank_ == call.root;
  switch (call.benchmark) {
    case Benchmark::kBroadcast:
      return check(MPI_Bcast(call.output, count, type, call.root, MPI_COMM_WORLD));
    case Benchmark::kReduce:
      return check(MPI_Reduce(in_place ? MPI_IN_PLACE : call.input, call.output, count, type, op_of(call.op), call.root,
                              MPI_COMM_WORLD));
    case Benchmark::kGather:
      return check(MPI_Gather(call.input, count, type, call.output, count, type, call.root, MPI_COMM_WORLD));
    default:
      return check(MPI_Scatter(call.input, count, type, call.output, count, type, call.root, MPI_COMM_WORLD));
  }
}

void MpiGroup::sendrecv(const Call& call, int count, MPI_Datatype type) {
  const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
  if (blocking_) {
    return check(MPI_Sendrecv(call.input, count, type, next, 0, call.output, count, type, before, 0, MPI_COMM_WORLD,
                              MPI_STATUS_IGNORE));
  }
  MPI_Request requests[2];
  check(MPI_Irecv(call.output, count, type, before, 0, MPI_COMM_WORLD, &requests[0]));
  check(MPI_Isend(call.input, count, type, next, 0, MPI_COMM_WORLD, &requests[1]));
  check(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
}

void MpiGroup::ping_pong(const Call& call, int count, MPI_Datatype type) {
  const int partner = partner_of(rank_);
  const auto send = [&] {
    if (blocking_) return check(MPI_Send(call.input, count, type, partner, 0, MPI_COMM_WORLD));
    MPI_Request request;
    check(MPI_Isend(call.input, count, type, partner, 0, MPI_COMM_WORLD, &request));
    check(MPI_Wait(&request, MPI_STATUS_IGNORE));
  };
  const auto receive = [&] {
    if (blocking_) return check(MPI_Recv(call.output, count, type, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_Request request;
    check(MPI_Irecv(call.output, count, type, partner, 0, MPI_COMM_WORLD, &request));
    check(MPI_Wait(&request, MPI_STATUS_IGNORE));
  };
  if (sends_first(rank_)) send();
  receive();
  if (!sends_first(rank_)) send();
}

void MpiGroup::burst(const Call& call, int count, MPI_Datatype type) {
  const int partner = partner_of(rank_);
  const uint64_t bytes = call.count * dtype_bytes(call.dtype);
  MPI_Request requests[2 * kBurstMessages];
  MPI_Request* request = requests;
  for (uint64_t i = 0; i < kBurstMessages; ++i) {
    check(MPI_Irecv(call.output + i * bytes, count, type, partner, 0, MPI_COMM_WORLD, request++));
  }
  for (uint64_t i = 0; i < kBurstMessages; ++i) {
    check(MPI_Isend(call.input + i * bytes, count, type, partner, 0, MPI_COMM_WORLD, request++));
  }
  check(MPI_Waitall(2 * kBurstMessages, requests, MPI_STATUSES_IGNORE));
}

// In place, MPI's reduce_scatter wants its output elsewhere, and gather and all_gather a mark in place of an input:
// only what is the same in both libraries is compared.
void check_placement(const Options& options) {
  const bool in_place =
      std::find(options.placements.begin(), options.placements.end(), Placement::kInPlace) != options.placements.end();
  for (Benchmark benchmark : options.benchmarks) {
    const bool same = benchmark == Benchmark::kAllReduce || benchmark == Benchmark::kReduce ||
                      !benchmark_has(benchmark, Placement::kInPlace) || benchmark == Benchmark::kBroadcast;
    if (in_place && !same) {
      throw Exception(ErrorCode::kInvalid, fmt::format("{}: --placement out", benchmark_name(benchmark)));
    }
  }
}

int run(const std::vector<std::string>& args) {
  const Options options = options_of(args);
  check_placement(options);
  check_async(options, {Benchmark::kSendRecv, Benchmark::kPingPong, Benchmark::kBurst});
  MpiGroup group(options.blocking);
  return run_peer(group, options);
}

}  // namespace
}  // namespace rondo::bench

int main(int argc, char** argv) {
  if (std::getenv("MPI_BENCH_KEEP_HEAP") != nullptr) {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
  }
  MPI_Init(&argc, &argv);
  int code = 1;
  try {
    code = rondo::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "mpi_bench: {}\n", error.what());
  }
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}
