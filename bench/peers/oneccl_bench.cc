// Times oneCCL's collectives on host memory with rondo-bench's own options, measuring loop, buffers and checks. Started
// by Intel MPI's mpiexec, one process a rank; rank 0 writes the rows (--json).
//   PEER_LIBRARY, PEER_TRANSPORT, PEER_SETTING    what the rows are called
//   MPI_BENCH_KEEP_HEAP=1    freed memory stays, as in mpi_bench.cc

#include <fmt/format.h>
#include <malloc.h>
#include <mpi.h>

#include <cstdlib>
#include <oneapi/ccl.hpp>
#include <utility>

#include "bench/peers/peer.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

void check(int code) {
  if (code != MPI_SUCCESS) throw Exception(ErrorCode::kSystem, fmt::format("MPI error {}", code));
}

ccl::datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return ccl::datatype::int8;
    case DType::kUint8:
      return ccl::datatype::uint8;
    case DType::kInt32:
      return ccl::datatype::int32;
    case DType::kUint32:
      return ccl::datatype::uint32;
    case DType::kInt64:
      return ccl::datatype::int64;
    case DType::kUint64:
      return ccl::datatype::uint64;
    case DType::kFloat16:
      return ccl::datatype::float16;
    case DType::kBfloat16:
      return ccl::datatype::bfloat16;
    case DType::kFloat32:
      return ccl::datatype::float32;
    case DType::kFloat64:
      return ccl::datatype::float64;
    default:
      throw Exception(ErrorCode::kInvalid, fmt::format("not measured over oneCCL: {}", dtype_name(dtype)));
  }
}

ccl::reduction reduction_of(Op op) {
  switch (op) {
    case Op::kSum:
      return ccl::reduction::sum;
    case Op::kProduct:
      return ccl::reduction::prod;
    case Op::kMin:
      return ccl::reduction::min;
    case Op::kMax:
      return ccl::reduction::max;
    default:
      throw Exception(ErrorCode::kInvalid, fmt::format("not measured over oneCCL: {}", op_name(op)));
  }
}

struct Place {
  int rank = 0, size = 1;
};

Place place_in_world() {
  Place place;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &place.rank));
  check(MPI_Comm_size(MPI_COMM_WORLD, &place.size));
  return place;
}

// Rank 0's store, whose address the others get by MPI.
ccl::communicator make_communicator(Place place) {
  ccl::init();
  ccl::shared_ptr_class<ccl::kvs> store;
  ccl::kvs::address_type address{};
  if (place.rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  check(MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD));
  if (place.rank != 0) store = ccl::create_kvs(address);
  return ccl::create_communicator(place.size, place.rank, store);
}

class CclGroup : public Group {
 public:
  explicit CclGroup(Place place) : place_(place), comm_(make_communicator(place)) {}
  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  std::string algorithm(const Call&) const override { return setting("PEER_SETTING"); }
  void run(const Call& call) override;
  void barrier() override { ccl::barrier(comm_).wait(); }
  double max(double value) override { return reduced(value, ccl::datatype::float64, ccl::reduction::max); }
  uint64_t sum(uint64_t value) override { return reduced(value, ccl::datatype::uint64, ccl::reduction::sum); }

 private:
  template <typename T>
  T reduced(T value, ccl::datatype type, ccl::reduction reduction) {
    T result{};
    ccl::allreduce(&value, &result, 1, type, reduction, comm_).wait();
    return result;
  }

  const Place place_;
  ccl::communicator comm_;
};

void CclGroup::run(const Call& call) {
  const ccl::datatype type = type_of(call.dtype);
  switch (call.benchmark) {
    case Benchmark::kAllReduce:
      return ccl::allreduce(call.input, call.output, call.count, type, reduction_of(call.op), comm_).wait();
    case Benchmark::kReduceScatter:
      return ccl::reduce_scatter(call.input, call.output, call.count, type, reduction_of(call.op), comm_).wait();
    case Benchmark::kReduce:
      return ccl::reduce(call.input, call.output, call.count, type, reduction_of(call.op), call.root, comm_).wait();
    case Benchmark::kAllGather:
      return ccl::allgather(call.input, call.output, call.count, type, comm_).wait();
    case Benchmark::kAllToAll:
      return ccl::alltoall(call.input, call.output, call.count, type, comm_).wait();
    case Benchmark::kBroadcast:
      return ccl::broadcast(call.output, call.count, type, call.root, comm_).wait();
    case Benchmark::kBarrier:
      return barrier();
    default:
      throw Exception(ErrorCode::kInvalid, fmt::format("not measured over oneCCL: {}", benchmark_name(call.benchmark)));
  }
}

int run(const std::vector<std::string>& args) {
  const Options options = options_of(args);
  check_async(options, {});
  CclGroup group(place_in_world());
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
    fmt::print(stderr, "oneccl_bench: {}\n", error.what());
  }
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}
