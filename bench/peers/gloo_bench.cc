// Times Gloo's all_reduce algorithms with rondo-bench's own measuring loop: same buffers, batches, checks and formulas.

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "bench/children.h"
#include "bench/measure.h"
#include "bench/output.h"
#include "bench/sizes.h"
#include "rondo/error.h"

// Gloo has no setting for the congestion control, and where the system's default paces loopback (BBR) that costs it up
// to half of its speed. So that it is compared at its best, its sockets are made here.
extern "C" int socket(int domain, int type, int protocol) {
  using Socket = int (*)(int, int, int);
  static const auto next = reinterpret_cast<Socket>(dlsym(RTLD_NEXT, "socket"));
  const int fd = next(domain, type, protocol);
  const char* congestion = std::getenv("GLOO_BENCH_CONGESTION");
  const bool tcp = (domain == AF_INET || domain == AF_INET6) && (type & SOCK_STREAM) != 0;
  if (fd >= 0 && tcp && congestion != nullptr) {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, static_cast<socklen_t>(std::strlen(congestion)));
  }
  return fd;
}

namespace rondo::bench {
namespace {

constexpr std::chrono::seconds kTimeout{30};
constexpr double kWorldSeconds = 100;

enum class Peer { kRing, kRingChunked, kHalvingDoubling, kBcube, kNewRing, kNewBcube };
const std::vector<std::string> kPeerNames{"ring", "ring_chunked", "halving_doubling", "bcube", "new_ring", "new_bcube"};

struct Wanted {
  int ranks = 2;
  std::string sizes = "8,64K,1M,64M", json, store;
  std::vector<std::string> algorithms = kPeerNames;
  std::vector<std::string> congestion_controls;  // all that are allowed, if none is given
  std::string mode = "epoll";  // sync: callers read and write sockets themselves; busy: and spin over them
  double seconds = 0.25;
  int rank = -1;
  std::string congestion;
};

// float32 sums in place: what all of its algorithms can do.
class GlooGroup : public Group {
 public:
  GlooGroup(std::shared_ptr<gloo::Context> context, std::shared_ptr<gloo::Context> untimed, Peer peer)
      : context_(std::move(context)), untimed_(std::move(untimed)), peer_(peer) {}

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  std::string algorithm(const Call&) const override { return kPeerNames[static_cast<size_t>(peer_)]; }

  void run(const Call& call) override {
    auto* data = reinterpret_cast<float*>(call.output);
    if (peer_ == Peer::kNewRing || peer_ == Peer::kNewBcube) return run_new(data, call.count);
    // The older algorithms are objects bound to their buffer; making one is setting up, and happens in the warm-up.
    if (!bound_ || bound_to_ != data) {
      bound_ = bind({data}, static_cast<int>(call.count));
      bound_to_ = data;
    }
    bound_->run();
  }
  void barrier() override {
    gloo::BarrierOptions options(untimed_);
    gloo::barrier(options);
  }
  double max(double value) override { return reduce<double>(value, gloo::max<double>); }
  uint64_t sum(uint64_t value) override { return reduce<uint64_t>(value, gloo::sum<uint64_t>); }

 private:
  using Reduce = void (*)(void*, const void*, const void*, size_t);

  void run_new(float* data, uint64_t count) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data, count);
    options.setReduceFunction(static_cast<Reduce>(&gloo::sum<float>));
    using Algorithm = gloo::AllreduceOptions::Algorithm;
    options.setAlgorithm(peer_ == Peer::kNewRing ? Algorithm::RING : Algorithm::BCUBE);
    gloo::allreduce(options);
  }
  std::unique_ptr<gloo::Algorithm> bind(const std::vector<float*>& data, int count) {
    switch (peer_) {
      case Peer::kRing:
        return std::make_unique<gloo::AllreduceRing<float>>(context_, data, count);
      case Peer::kRingChunked:
        return std::make_unique<gloo::AllreduceRingChunked<float>>(context_, data, count);
      case Peer::kHalvingDoubling:
        return std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, data, count);
      default:
        return std::make_unique<gloo::AllreduceBcube<float>>(context_, data, count);
    }
  }
  template <typename Value>
  Value reduce(Value value, Reduce function) {
    gloo::AllreduceOptions options(untimed_);
    options.setOutput(&value, 1);
    options.setReduceFunction(function);
    gloo::allreduce(options);
    return value;
  }

  std::shared_ptr<gloo::Context> context_, untimed_;
  Peer peer_;
  std::unique_ptr<gloo::Algorithm> bound_;
  float* bound_to_ = nullptr;
};

std::shared_ptr<gloo::Context> connect(const Wanted& wanted, const std::string& prefix, const std::string& mode) {
  gloo::transport::tcp::attr attributes("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  const std::string path = wanted.store + "/" + prefix + "-" + mode;
  std::filesystem::create_directories(path);
  gloo::rendezvous::FileStore store(path);
  auto context = std::make_shared<gloo::rendezvous::Context>(wanted.rank, wanted.ranks);
  context->setTimeout(kTimeout);
  context->connectFullMesh(store, device);
  for (int peer = 0; peer < wanted.ranks && mode != "epoll"; ++peer) {
    if (peer != wanted.rank) context->getPair(peer)->setSync(true, mode == "busy");
  }
  return context;
}

Row measure_one(const Wanted& wanted, Peer peer, uint64_t bytes) {
  // Contexts of its own: some algorithms leave buffers registered until their object ends. Barriers and sums outside
  // the clock need a mode that the timed pairs may not be in.
  const std::string prefix = fmt::format("{}-{}", kPeerNames[static_cast<size_t>(peer)], bytes);
  const auto untimed = connect(wanted, prefix + "-untimed", "epoll");
  GlooGroup group(connect(wanted, prefix, wanted.mode), untimed, peer);
  const Exercise exercise{Benchmark::kAllReduce, Placement::kInPlace, DType::kFloat32, Op::kSum, wanted.ranks, 0, {}};
  Effort effort;
  effort.seconds = wanted.seconds;
  const Extent extent = extent_of(exercise.benchmark, bytes, exercise.dtype, wanted.ranks);
  const Measurement measured = measure(group, exercise, extent, effort);
  Row row;
  row.library = wanted.mode == "epoll" ? "gloo" : "gloo-" + wanted.mode;
  row.collective = benchmark_name(exercise.benchmark);
  row.transport = "tcp@" + wanted.congestion;
  row.algorithm = group.algorithm({});
  row.dtype = dtype_name(exercise.dtype);
  row.op = op_name(exercise.op);
  row.world = wanted.ranks;
  row.bytes = extent.bytes;
  row.in_place = true;
  const double bus = bus_factor(exercise.benchmark, wanted.ranks);
  fill_times(row, measured.batch_us, bus);
  fill_cpu(row, measured.cpu_us, bus);
  row.wrong = measured.wrong;
  return row;
}

int run_rank(const Wanted& wanted) {
  std::vector<Row> rows;
  const auto sizes = parse_size_list(wanted.sizes);
  for (uint64_t bytes : sizes.value()) {
    for (const std::string& algorithm : wanted.algorithms) {
      const auto peer =
          static_cast<Peer>(std::find(kPeerNames.begin(), kPeerNames.end(), algorithm) - kPeerNames.begin());
      // The newer interface cannot do without the event loop.
      if (wanted.mode != "epoll" && (peer == Peer::kNewRing || peer == Peer::kNewBcube)) continue;
      rows.push_back(measure_one(wanted, peer, bytes));
    }
  }
  if (wanted.rank == 0) write_json(wanted.json, this_machine(), {}, rows);
  return 0;
}

// All ranks under one congestion control.
std::vector<Row> run_world(const Wanted& wanted, const std::string& congestion) {
  const PrivateDirectory directory;
  const std::string json = directory.path() + "/rows.json";
  Children children;
  for (int rank = 0; rank < wanted.ranks; ++rank) {
    Children::Program program{own_program(),
                              {"--ranks", std::to_string(wanted.ranks), "--sizes", wanted.sizes, "--json", json,
                               "--rank", std::to_string(rank), "--store", directory.path(), "--congestion", congestion,
                               "--mode", wanted.mode, "--seconds", fmt::format("{}", wanted.seconds), "--algorithms",
                               fmt::format("{}", fmt::join(wanted.algorithms, ","))},
                              {{"GLOO_BENCH_CONGESTION", congestion}},
                              ""};
    children.start(program);
  }
  if (children.wait(kWorldSeconds) != 0) throw Exception(ErrorCode::kSystem, "a rank of gloo_bench failed");
  return read_rows(json);
}

int run(const Wanted& wanted) {
  if (!parse_size_list(wanted.sizes)) throw Exception(ErrorCode::kInvalid, "--sizes: lists look like 8,64K,1M");
  if (wanted.rank >= 0) return run_rank(wanted);
  const Machine machine = this_machine();
  std::vector<Row> all;
  const std::vector<std::string> congestions =
      wanted.congestion_controls.empty() ? machine.congestion_controls : wanted.congestion_controls;
  for (const std::string& congestion : congestions) {
    const std::vector<Row> rows = run_world(wanted, congestion);
    for (const Row& row : rows) {
      fmt::print("{:>10} {:<12} {:<18} {:>12.2f} us {:>8.3f} GB/s {} wrong\n", size_text(row.bytes), row.transport,
                 row.algorithm, row.time_us, row.busbw_gbps, *row.wrong);
    }
    all.insert(all.end(), rows.begin(), rows.end());
  }
  if (!wanted.json.empty()) write_json(wanted.json, machine, {}, all);
  return 0;
}

}  // namespace
}  // namespace rondo::bench

int main(int argc, char** argv) {
  rondo::bench::Wanted wanted;
  CLI::App app("Times Gloo's all_reduce (float32 sum, in place) over TCP.");
  app.add_option("--ranks", wanted.ranks, "processes (2)")->check(CLI::Range(2, 64));
  app.add_option("--sizes", wanted.sizes, "8,64K,1M,64M");
  app.add_option("--algorithms", wanted.algorithms,
                 "a list of ring, ring_chunked, halving_doubling, bcube, new_ring, new_bcube")
      ->delimiter(',')
      ->check(CLI::IsMember(rondo::bench::kPeerNames));
  app.add_option("--json", wanted.json, "write machine, limits (none) and rows to this file");
  app.add_option("--congestion-controls", wanted.congestion_controls, "a list (all that are allowed)")->delimiter(',');
  app.add_option("--mode", wanted.mode, "epoll, sync or busy")->check(CLI::IsMember({"epoll", "sync", "busy"}));
  app.add_option("--seconds", wanted.seconds, "of timed operations a size (0.25)");
  app.add_option("--rank", wanted.rank, "")->group("");
  app.add_option("--store", wanted.store, "")->group("");
  app.add_option("--congestion", wanted.congestion, "")->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return rondo::bench::run(wanted);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gloo_bench: {}\n", error.what());
    return 1;
  }
}
