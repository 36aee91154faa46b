// Times oneCCL's collectives on host memory with rondo-bench's own options, measuring loop, buffers and checks. Started
// by Intel MPI's mpiexec, one process a rank; rank 0 writes the rows (--json).
//   PEER_LIBRARY, PEER_TRANSPORT, PEER_SETTING    what the rows are called
//   MPI_BENCH_KEEP_HEAP=1    freed memory stays, as in mpi_bench.cc

#include <fmt/format.h>

#include <map>
#include <oneapi/ccl.hpp>
#include <utility>

#include "tests/lab/peers/mpi_main.h"

namespace rondo::bench {
namespace {

ccl::datatype type_of(DType dtype) {
  static const std::map<DType, ccl::datatype> types = {
      {DType::kInt8, ccl::datatype::int8},       {DType::kUint8, ccl::datatype::uint8},
      {DType::kInt32, ccl::datatype::int32},     {DType::kUint32, ccl::datatype::uint32},
      {DType::kInt64, ccl::datatype::int64},     {DType::kUint64, ccl::datatype::uint64},
      {DType::kFloat16, ccl::datatype::float16}, {DType::kBfloat16, ccl::datatype::bfloat16},
      {DType::kFloat32, ccl::datatype::float32}, {DType::kFloat64, ccl::datatype::float64}};
  const auto found = types.find(dtype);
  if (found == types.end())
    throw Exception(ErrorCode::kInvalid, fmt::format("not measured over oneCCL: {}", dtype_name(dtype)));
  return found->second;
}

ccl::reduction reduction_of(Op op) {
  static const std::map<Op, ccl::reduction> reductions = {{Op::kSum, ccl::reduction::sum},
                                                          {Op::kProduct, ccl::reduction::prod},
                                                          {Op::kMin, ccl::reduction::min},
                                                          {Op::kMax, ccl::reduction::max}};
  const auto found = reductions.find(op);
  if (found == reductions.end())
    throw Exception(ErrorCode::kInvalid, fmt::format("not measured over oneCCL: {}", op_name(op)));
  return found->second;
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

int main(int argc, char** argv) { return rondo::bench::mpi_main(argc, argv, "oneccl_bench", rondo::bench::run); }
