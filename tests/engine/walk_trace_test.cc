// The executor and the verifier's machine walk by one class (ring/plan/walk.h), with code of their own round it. Here
// real executors' traces are compared with the machine's.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/run/slicing.h"
#include "ring/plan/build.h"
#include "ring/plan/machine.h"
#include "ring/plan/structure.h"
#include "tests/engine/arguments.h"
#include "tests/engine/cluster.h"
#include "tests/engine/window_cluster.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

// What a rank does with one of its links.
struct Event {
  enum class What : uint8_t { kPost, kSend, kRelease };
  What what = What::kPost;
  int peer = 0;
  uint64_t bytes = 0;
  bool operator==(const Event&) const = default;
};

// One rank. Landings may be posted any time before their slices are combined, so they have an order of
// their own.
struct Trace {
  std::vector<Event> posts, moves;
  std::string violation;

  // Memory that a link still has to send.
  struct Sending {
    const std::byte* begin = nullptr;
    uint64_t bytes = 0;
    const Link* link = nullptr;
    uint64_t until = 0;  // Link::sent()
  };
  std::vector<Sending> sending;
};

// Passes everything on, and writes it down. A slice must not land in memory that is still to be sent.
class RecordingLink : public Link {
 public:
  RecordingLink(Trace& trace, int peer, std::unique_ptr<Link> inner)
      : trace_(trace), peer_(peer), inner_(std::move(inner)) {}

  uint32_t depth() const override { return inner_->depth(); }
  bool can_post() const override { return inner_->can_post(); }
  void post(const SliceTag& tag, std::byte* landing) override {
    trace_.posts.push_back({Event::What::kPost, peer_, tag.bytes});
    landing_bytes_.push_back(tag.bytes);
    if (landing != nullptr) check_free(landing, tag.bytes);
    inner_->post(tag, landing);
  }
  uint32_t unfilled() const override { return inner_->unfilled(); }
  const std::byte* arrived() override { return inner_->arrived(); }
  uint32_t arrived_bytes() const override { return inner_->arrived_bytes(); }
  void release() override {
    trace_.moves.push_back({Event::What::kRelease, peer_, landing_bytes_[released_++]});
    inner_->release();
  }
  bool can_send() const override { return inner_->can_send(); }
  std::byte* reserve(uint32_t bytes) override { return inner_->reserve(bytes); }
  uint64_t commit(const SliceTag& tag) override {
    trace_.moves.push_back({Event::What::kSend, peer_, tag.bytes});
    return inner_->commit(tag);
  }
  uint64_t send(const SliceTag& tag, const std::byte* payload) override {
    trace_.moves.push_back({Event::What::kSend, peer_, tag.bytes});
    const uint64_t until = inner_->send(tag, payload);
    trace_.sending.push_back({payload, tag.bytes, inner_.get(), until});
    return until;
  }
  uint64_t sent() const override { return inner_->sent(); }
  bool pump() override { return inner_->pump(); }
  const Error* error() const override { return inner_->error(); }

 private:
  void check_free(const std::byte* landing, uint64_t bytes) {
    std::erase_if(trace_.sending, [](const auto& sending) { return sending.link->sent() >= sending.until; });
    for (const auto& sending : trace_.sending) {
      if (landing >= sending.begin + sending.bytes || sending.begin >= landing + bytes) continue;
      trace_.violation = fmt::format("{} bytes from rank {} land in memory that is still being sent", bytes, peer_);
    }
  }

  Trace& trace_;
  const int peer_;
  std::unique_ptr<Link> inner_;
  std::vector<uint64_t> landing_bytes_;
  size_t released_ = 0;
};

// The load of a case for the machine, whose bytes are elements.
Load load_of(const CollectiveCase& what, const std::vector<Plan>& plans, const Slicing& slicing) {
  Load load;
  load.slicing = slicing;
  load.block_bytes.resize(lengths_of(plans[0]));
  const auto world = static_cast<size_t>(what.world);
  for (size_t r = 0; r < world; ++r) {
    const CollectiveRank rank(what, static_cast<int>(r));
    const CheckedCall call = check_call(rank.call(), static_cast<int>(r), what.world);
    const Blocks blocks = lay_out_blocks(call, plans[r], slicing);
    for (size_t c = 0; c < plans[r].blocks; ++c) {
      if (what.collective == Collective::kAllToAll && plans[r].blocks == world) {
        load.block_bytes[r * world + c] = blocks.input[c].count;
      } else if (what.collective != Collective::kAllToAll) {
        uint64_t& length = load.block_bytes[c];
        length = std::max({length, blocks.input[c].count, blocks.output[c].count});
      }
    }
  }
  return load;
}

std::vector<Machine::Move> machine_moves(const CollectiveCase& what, const std::vector<Plan>& plans,
                                         const Slicing& slicing) {
  Machine machine(plans, load_of(what, plans, slicing), slicing.slices_per_chunk * plans[0].chunks_in_flight + 1);
  std::vector<Machine::Move> moves;
  machine.record(&moves);
  REQUIRE(machine.run());
  return moves;
}

// What the machine's moves mean for the links of one rank: a slice is sent from a step before its sources are released.
Trace trace_of(const std::vector<Machine::Move>& moves, const Plan& plan, uint64_t element_bytes) {
  Trace trace;
  for (const Machine::Move& move : moves) {
    if (move.rank != plan.rank) continue;
    const Step& step = plan.steps[move.step];
    const Ref* refs = plan.refs.data() + step.first;
    const uint64_t bytes = move.bytes * element_bytes;
    for (uint32_t i = 0; i < step.targets; ++i) {
      const Ref& ref = refs[step.sources + i];
      if (ref.space == Space::kMailbox) trace.moves.push_back({Event::What::kSend, ref.peer, bytes});
    }
    for (uint32_t i = 0; i < step.sources; ++i) {
      if (refs[i].space != Space::kMailbox) continue;
      trace.posts.push_back({Event::What::kPost, refs[i].peer, bytes});
      trace.moves.push_back({Event::What::kRelease, refs[i].peer, bytes});
    }
  }
  return trace;
}

// With bytes to move, and of an operation that every plan takes.
CollectiveCase case_of(Random& random, int world) {
  CollectiveCase what = random_case(random, world);
  what.count = std::max<uint64_t>(1, what.count);
  what.op = Op::kSum;
  return what;
}

void compare_over_links(uint64_t seed) {
  Random random(seed);
  ClusterShape shape;
  shape.world = static_cast<int>(random.between(2, 7));
  shape.config.slice_bytes = 4096;
  shape.config.slices_per_chunk = static_cast<uint32_t>(random.between(1, 4));
  std::map<int, Trace> traces;  // by rank
  shape.wrap = [&](int from, int to, std::unique_ptr<Link> link) -> std::unique_ptr<Link> {
    return std::make_unique<RecordingLink>(traces[from], to, std::move(link));
  };
  Cluster cluster(shape, seed);
  CollectiveCase what = case_of(random, shape.world);
  if (what.collective == Collective::kAllToAll) what.counts.clear();  // a block's length is known to a pair alone
  const Topology topology = two_hosts(shape.world);
  for (int a = 1; a < kAlgorithms; ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    if (!plan_available(what.collective, algorithm, topology)) continue;
    for (auto& [who, trace] : traces) trace = {};
    const std::vector<Plan> plans = cluster.plans_of(what, algorithm);
    INFO("seed " << seed << ": " << what.describe() << " by " << algorithm_name(algorithm));
    REQUIRE_EQ(cluster.run(what, plans, static_cast<uint64_t>(a)), "");
    const Slicing slicing = cluster.slicing_of(what, plans, static_cast<uint64_t>(a));
    const std::vector<Machine::Move> moves = machine_moves(what, plans, slicing);
    for (const Plan& plan : plans) {
      INFO("rank " << plan.rank);
      const Trace expected = trace_of(moves, plan, dtype_bytes(what.dtype));
      const Trace& seen = traces[plan.rank];
      REQUIRE(seen.posts == expected.posts);
      REQUIRE(seen.moves == expected.moves);
      REQUIRE_EQ(seen.violation, "");
    }
  }
}

void compare_over_windows(uint64_t seed) {
  Random random(seed);
  const int world = static_cast<int>(random.between(2, 6));
  CollectiveCase what = case_of(random, world);
  what.counts.clear();
  PlanRequest request;
  request.collective = what.collective;
  request.root = collective_has_root(what.collective) ? what.root : -1;
  request.topology.host.assign(static_cast<size_t>(world), 0);
  request.topology.island = request.topology.host;
  for (const Algorithm algorithm : {Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered}) {
    if (!plan_available(what.collective, algorithm, request.topology)) continue;
    request.algorithm = algorithm;
    std::vector<Plan> plans;
    for (request.rank = 0; request.rank < world; ++request.rank) plans.push_back(build_plan(request));
    INFO("seed " << seed << ": " << what.describe() << " by " << algorithm_name(algorithm));
    WindowCluster cluster(world, seed);
    REQUIRE_EQ(cluster.run(what, plans, seed), "");
    std::vector<uint64_t> arrived(plans.size());
    uint64_t barriers = 0;  // in a round
    for (const Step& step : plans[0].steps) barriers = std::max<uint64_t>(barriers, step.barrier);
    for (const Machine::Move& move : machine_moves(what, plans, cluster.slicing_of(what, plans, seed))) {
      const Step& step = plans[static_cast<size_t>(move.rank)].steps[move.step];
      if (step.barrier == 0 || step.targets == 0) continue;
      arrived[static_cast<size_t>(move.rank)] = move.round * barriers + step.barrier;
    }
    for (int r = 0; r < world; ++r) CHECK_EQ(cluster.barriers(r), arrived[static_cast<size_t>(r)]);
  }
}

}  // namespace

TEST_CASE("executors over links post, send and release what the machine does, in its order") {
  const auto [first, seeds] = seed_range(60);
  for (uint64_t seed = first; seed < first + seeds; ++seed) compare_over_links(seed);
}

TEST_CASE("executors over windows arrive at as many barriers as the machine") {
  const auto [first, seeds] = seed_range(60);
  for (uint64_t seed = first; seed < first + seeds; ++seed) compare_over_windows(seed);
}

}  // namespace rondo::testing
