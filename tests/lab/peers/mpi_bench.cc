// Times an MPI's collectives with rondo-bench's own options, measuring loop, buffers and checks. Started by the MPI's
// mpiexec, one process a rank; rank 0 writes the rows (--json).
//   PEER_LIBRARY, PEER_TRANSPORT, PEER_SETTING    what the rows are called
//   MPI_BENCH_KEEP_HEAP=1    freed memory stays: page faults of temporaries cost MPI up to half of its time

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "tests/lab/peers/mpi_main.h"

namespace rondo::bench {
namespace {

MPI_Datatype type_of(DType dtype) {
  static const std::map<DType, MPI_Datatype> types = {{DType::kInt8, MPI_INT8_T},   {DType::kUint8, MPI_UINT8_T},
                                                      {DType::kInt16, MPI_INT16_T}, {DType::kUint16, MPI_UINT16_T},
                                                      {DType::kInt32, MPI_INT32_T}, {DType::kUint32, MPI_UINT32_T},
                                                      {DType::kInt64, MPI_INT64_T}, {DType::kUint64, MPI_UINT64_T},
                                                      {DType::kFloat32, MPI_FLOAT}, {DType::kFloat64, MPI_DOUBLE}};
  const auto found = types.find(dtype);
  if (found == types.end()) throw Exception(ErrorCode::kInvalid, fmt::format("MPI has no {}", dtype_name(dtype)));
  return found->second;
}

MPI_Op op_of(Op op) {
  static const std::map<Op, MPI_Op> ops = {
      {Op::kSum, MPI_SUM}, {Op::kProduct, MPI_PROD}, {Op::kMin, MPI_MIN}, {Op::kMax, MPI_MAX}};
  const auto found = ops.find(op);
  if (found == ops.end()) throw Exception(ErrorCode::kInvalid, fmt::format("not measured over MPI: {}", op_name(op)));
  return found->second;
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

int main(int argc, char** argv) { return rondo::bench::mpi_main(argc, argv, "mpi_bench", rondo::bench::run); }
