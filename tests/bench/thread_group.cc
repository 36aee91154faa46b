#include "tests/bench/thread_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "bench/loop/element.h"
#include "bench/loop/pattern.h"
#include "bench/loop/reference.h"

namespace rondo::bench {
namespace {

void fold_element(const Call& call, const std::vector<const std::byte*>& sources, std::byte* out) {
  if (dtype_is_float(call.dtype)) {
    std::vector<double> values;
    for (const std::byte* source : sources) values.push_back(load_value(call.dtype, source));
    store_value(call.dtype, out, fold_floats(call.dtype, call.op, values, kPremulScalar).value);
    return;
  }
  std::vector<uint64_t> values;
  for (const std::byte* source : sources) values.push_back(load_element(call.dtype, source));
  store_element(call.dtype, out, fold_integers(call.dtype, call.op, values));
}

}  // namespace

class ThreadWorld::Member : public Group {
 public:
  Member(ThreadWorld& world, int rank) : world_(world), rank_(static_cast<size_t>(rank)) {}
  int rank() const override { return static_cast<int>(rank_); }
  int size() const override { return world_.world_; }

  void run(const Call& call) override {
    world_.calls_[rank_] = call;
    world_.meet_.arrive_and_wait();
    std::vector<std::byte> result = world_.wanted(rank());
    world_.meet_.arrive_and_wait();
    if (world_.fault_ == Fault::kLostOperation && ++operations_ > 1) result.clear();
    damage(call, result);
    std::copy(result.begin(), result.end(), call.output);
    world_.meet_.arrive_and_wait();
  }
  std::string algorithm(const Call&) const override { return "definition"; }
  void barrier() override {
    operations_ = 0;
    world_.meet_.arrive_and_wait();
  }
  double max(double value) override {
    world_.numbers_[rank_] = value;
    world_.meet_.arrive_and_wait();
    const double most = *std::max_element(world_.numbers_.begin(), world_.numbers_.end());
    world_.meet_.arrive_and_wait();
    return most;
  }
  uint64_t sum(uint64_t value) override {
    world_.counts_[rank_] = value;
    world_.meet_.arrive_and_wait();
    const uint64_t total = std::accumulate(world_.counts_.begin(), world_.counts_.end(), uint64_t{0});
    world_.meet_.arrive_and_wait();
    return total;
  }

 private:
  void damage(const Call& call, std::vector<std::byte>& result) const {
    if (result.empty()) return;
    const auto width = static_cast<std::ptrdiff_t>(dtype_bytes(call.dtype));
    if (world_.fault_ == Fault::kLostBlock) result.resize(result.size() - static_cast<size_t>(width));
    if (world_.fault_ == Fault::kShiftedBlock) std::rotate(result.begin(), result.begin() + width, result.end());
    if (world_.fault_ == Fault::kFlippedBit) result[result.size() / 2] ^= std::byte{1};
  }

  ThreadWorld& world_;
  size_t rank_;
  uint32_t operations_ = 0;
};

ThreadWorld::ThreadWorld(int world, Fault fault)
    : world_(world),
      fault_(fault),
      meet_(world),
      calls_(static_cast<size_t>(world)),
      numbers_(static_cast<size_t>(world)),
      counts_(static_cast<size_t>(world)) {}

void ThreadWorld::run(const std::function<void(Group&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_; ++rank) {
    threads.emplace_back([this, rank, &body] {
      Member member(*this, rank);
      body(member);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What the collective's definition puts into rank's output: all bytes of it, or none.
std::vector<std::byte> ThreadWorld::wanted(int rank) const {
  const Call& own = calls_[static_cast<size_t>(rank)];
  const size_t width = dtype_bytes(own.dtype);
  const uint64_t block = own.count * width;
  const auto ranks = static_cast<uint64_t>(world_);
  const uint64_t me = static_cast<uint64_t>(rank);
  std::vector<std::byte> out;
  const auto append = [&](uint64_t source, uint64_t offset) {
    const std::byte* from = calls_[source].input + offset;
    out.insert(out.end(), from, from + block);
  };
  const auto fold = [&](uint64_t offset) {
    out.resize(block);
    for (uint64_t at = 0; at < block; at += width) {
      std::vector<const std::byte*> sources;
      for (const Call& call : calls_) sources.push_back(call.input + offset + at);
      fold_element(own, sources, out.data() + at);
    }
  };
  const bool at_root = rank == own.root;
  const auto root = static_cast<uint64_t>(own.root);
  switch (own.benchmark) {
    case Benchmark::kAllReduce:
      fold(0);
      break;
    case Benchmark::kReduce:
      if (at_root) fold(0);
      break;
    case Benchmark::kReduceScatter:
      fold(me * block);
      break;
    case Benchmark::kAllGather:
      for (uint64_t source = 0; source < ranks; ++source) append(source, 0);
      break;
    case Benchmark::kGather:
      for (uint64_t source = 0; at_root && source < ranks; ++source) append(source, 0);
      break;
    case Benchmark::kBroadcast:
      append(root, 0);
      break;
    case Benchmark::kScatter:
      append(root, me * block);
      break;
    case Benchmark::kAllToAll:
      for (uint64_t source = 0; source < ranks; ++source) append(source, me * block);
      break;
    case Benchmark::kSendRecv:
      append((me + ranks - 1) % ranks, 0);
      break;
    case Benchmark::kPingPong:
      append(static_cast<uint64_t>(partner_of(rank)), 0);
      break;
    case Benchmark::kBurst:
      for (uint64_t i = 0; i < kBurstMessages; ++i) append(static_cast<uint64_t>(partner_of(rank)), i * block);
      break;
    case Benchmark::kBarrier:
      break;
  }
  return out;
}

}  // namespace rondo::bench
