// Times Gloo's all_reduce (float32 sum, in place) with rondo-bench's own options, measuring loop, buffers and checks.
// One process a rank, RANK of WORLD_SIZE, as rondo-run starts it; rank 0 writes the rows (--json).
//   PEER_LIBRARY, PEER_TRANSPORT, PEER_SETTING    what the rows are called
//   GLOO_BENCH_STORE       a folder that all ranks see, empty at first
//   GLOO_BENCH_ALGORITHM   ring, ring_chunked, halving_doubling, bcube, new_ring, new_bcube
//   GLOO_BENCH_MODE        epoll; sync: callers read and write sockets themselves; busy: and spin over them
//   GLOO_BENCH_CONGESTION  the congestion control of its sockets

#include <dlfcn.h>
#include <fmt/format.h>
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

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "rondo/error.h"
#include "tests/lab/peers/peer.h"

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

enum class Peer { kRing, kRingChunked, kHalvingDoubling, kBcube, kNewRing, kNewBcube };
const std::vector<std::string> kPeerNames{"ring", "ring_chunked", "halving_doubling", "bcube", "new_ring", "new_bcube"};

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
    if (!bound_ || bound_to_ != std::pair(data, call.count)) {
      bound_.reset();  // it leaves buffers registered until it ends
      bound_ = bind({data}, static_cast<int>(call.count));
      bound_to_ = {data, call.count};
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
  std::pair<float*, uint64_t> bound_to_{};
};

std::shared_ptr<gloo::Context> connect(int rank, int world, const std::string& mode, const std::string& name) {
  gloo::transport::tcp::attr attributes("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  const std::string path = setting("GLOO_BENCH_STORE") + "/" + name;
  std::filesystem::create_directories(path);
  gloo::rendezvous::FileStore store(path);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, world);
  context->setTimeout(kTimeout);
  context->connectFullMesh(store, device);
  for (int peer = 0; peer < world && mode != "epoll"; ++peer) {
    if (peer != rank) context->getPair(peer)->setSync(true, mode == "busy");
  }
  return context;
}

int run(const std::vector<std::string>& args) {
  const Options options = options_of(args);
  check_async(options, {});
  const bool known = options.benchmarks == std::vector{Benchmark::kAllReduce} &&
                     options.placements == std::vector{Placement::kInPlace} &&
                     options.dtypes == std::vector{DType::kFloat32} && options.ops == std::vector{Op::kSum};
  if (!known) throw Exception(ErrorCode::kInvalid, "all_reduce of float32 sums in place only: --placement in");
  const std::string algorithm = setting("GLOO_BENCH_ALGORITHM");
  const auto peer = std::find(kPeerNames.begin(), kPeerNames.end(), algorithm);
  if (peer == kPeerNames.end()) throw Exception(ErrorCode::kInvalid, "GLOO_BENCH_ALGORITHM=" + algorithm);
  const int rank = std::stoi(setting("RANK")), world = std::stoi(setting("WORLD_SIZE"));
  // Barriers and sums outside the clock need a mode that the timed pairs may not be in.
  const auto untimed = connect(rank, world, "epoll", "untimed");
  GlooGroup group(connect(rank, world, setting("GLOO_BENCH_MODE"), "timed"), untimed,
                  static_cast<Peer>(peer - kPeerNames.begin()));
  return run_peer(group, options);
}

}  // namespace
}  // namespace rondo::bench

int main(int argc, char** argv) {
  try {
    return rondo::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "gloo_bench: {}\n", error.what());
    return 1;
  }
}
