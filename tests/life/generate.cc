#include "tests/life/generate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "rondo/collective.h"
#include "rondo/dtype.h"
#include "rondo/op.h"
#include "rondo/wire_format.h"
#include "tests/support/random.h"

namespace rondo::life {
namespace {

using testing::Random;

constexpr const char* kEven[] = {"all_reduce",     "reduce", "broadcast", "all_gather",
                                 "reduce_scatter", "gather", "scatter",   "all_to_all"};
constexpr const char* kUneven[] = {"all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v"};
// Bytes at which the library changes its way: inline and posted values, where trials begin (16 KiB), the eager limit
// and cards (64, 256 KiB), slices (256 KiB), staging memory (1 MiB); and what small settings make of them.
constexpr uint64_t kThresholds[] = {8,    16,   48,    56,    64,    112,    128,    256,    512,    1024,   2048,
                                    4096, 8192, 16384, 32768, 65536, 131072, 196608, 262144, 524288, 1048576};

template <size_t N>
std::string one_of(Random& random, const char* const (&list)[N]) {
  return list[random.below(N)];
}

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) { life_.seed = seed; }

  Life make() {
    Random& r = random_;
    life_.ranks = r.chance(25) ? Ranks::kThreads : Ranks::kProcesses;
    constexpr int kWorlds[] = {1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6};
    life_.world = kWorlds[r.below(std::size(kWorlds))];
    life_.rounds = r.chance(20) ? 3 : 1;
    life_.doors = {r.chance(30) ? "c" : "cpp"};
    if (life_.ranks == Ranks::kProcesses && r.chance(30)) life_.doors = {"cpp", "c"};
    settings();
    const int threads = r.chance(70) ? 1 : static_cast<int>(r.between(2, 4));
    for (int t = 0; t < threads; ++t) life_.threads.push_back(thread(threads));
    return life_;
  }

 private:
  struct Known {  // a group: its number, and the least members that any part of it has
    int number;
    int members;
  };

  void set(const std::string& name, const std::string& value) {
    life_.settings.push_back("RONDO_" + name + "=" + value);
  }

  // Default settings half of the time, but for the transport.
  void settings() {
    Random& r = random_;
    if (life_.ranks == Ranks::kProcesses && r.chance(35)) set("TRANSPORT", "tcp");
    if (r.chance(50)) return;
    if (r.chance(40)) set("SLICE_BYTES", std::to_string(4096u << r.below(6)));
    if (r.chance(30)) set("SLICES_PER_CHUNK", std::to_string(r.between(1, 8)));
    if (r.chance(30)) set("LANES", std::to_string(r.between(1, 4)));
    if (r.chance(20)) set("CONNECTIONS", std::to_string(r.between(1, 3)));
    if (r.chance(30)) set("STAGING_BYTES", std::to_string(65536u << r.below(4)));
    if (r.chance(20)) set("MAILBOX_BYTES", std::to_string(65536u << r.below(5)));
    if (r.chance(30)) set("EAGER_BYTES", std::to_string(r.chance(30) ? 0 : 64u << r.below(12)));
    if (r.chance(30)) set("BUCKET_BYTES", std::to_string(r.chance(30) ? 0 : 4096u << r.below(8)));
    if (r.chance(30)) set("SPIN_US", std::to_string(r.chance(50) ? 0 : 5000));
    if (r.chance(20)) set("SINGLE_COPY", r.chance(50) ? "on" : "off");
    if (r.chance(20)) set("SHARED_STORES", r.chance(50) ? "cached" : "streamed");
    if (r.chance(10)) set("CHECK", r.chance(50) ? "digest" : "finite");
    if (r.chance(15)) set("CHECKSUM", "on");
    if (r.chance(10)) set("METRICS", "on");
    if (r.chance(10)) set("FOLD", "any");
  }

  std::string dtype() { return dtype_name(static_cast<DType>(random_.below(kDTypes))); }
  uint64_t bytes() {
    const uint64_t at = kThresholds[random_.below(std::size(kThresholds))];
    if (random_.chance(60)) return at + random_.below(3) * 8 - std::min<uint64_t>(at, 8);
    return random_.between(at / 2, at * 3 / 2);
  }
  uint64_t count_for(const std::string& dtype, uint64_t parts) {
    if (random_.chance(5)) return random_.below(parts + 2);
    uint64_t size = 1;
    for (int i = 0; i < kDTypes; ++i) {
      if (dtype == dtype_name(static_cast<DType>(i))) size = dtype_bytes(static_cast<DType>(i));
    }
    return std::max<uint64_t>(1, bytes() / size / parts);
  }
  // Where buffers lie: all plain, all registered, or mixed by rank; misaligned now and then.
  std::string where() {
    const auto one = [&](char kind) {
      return std::string(1, kind) + (random_.chance(50) ? "" : "+" + std::to_string(random_.below(70)));
    };
    const uint64_t draw = random_.below(100);
    if (draw < 35) return one('p');
    if (draw < 75) return one('r');
    if (draw < 85) return one('n');
    std::string list;
    for (int m = 0; m < life_.world; ++m) list += (m == 0 ? "" : ",") + one("prn"[random_.below(3)]);
    return list;
  }
  uint64_t parts(const std::string& verb, int members) {
    return verb == "all_reduce" || verb == "reduce" || verb == "broadcast" ? 1 : static_cast<uint64_t>(members);
  }
  void algorithm(Step& step) {
    constexpr const char* kNamed[] = {"ring", "direct", "tree", "star", "doubling", "halving_doubling", "double_tree"};
    if (random_.chance(80)) return;
    if (step.verb == "all_reduce" && life_.world > 1) step.with("algorithm", one_of(random_, kNamed));
  }

  Step collective(const Known& group) {
    Random& r = random_;
    Step step;
    const uint64_t draw = r.below(100);
    const std::string type = dtype();
    if (draw < 3) return step.verb = "barrier", step.with("group", group.number);
    step.with("group", group.number).with("salt", static_cast<int64_t>(r.below(1000)));
    step.with("in", where()).with("out", where());
    if (r.chance(40)) step.with("place", 1);
    if (draw < 15) return many(step);
    const auto members = static_cast<uint64_t>(life_.world);
    if (draw < 35) {
      step.verb = one_of(r, kUneven);
      std::string counts;
      for (uint64_t m = 0; m < members; ++m) {
        counts += (m == 0 ? "" : ",") + std::to_string(r.chance(20) ? 0 : count_for(type, members));
      }
      step.with("counts", counts);
      if (r.chance(40) && step.verb != "reduce_scatter_v") step.with("gap", static_cast<int64_t>(r.between(1, 9)));
    } else {
      step.verb = one_of(r, kEven);
      step.with("count", static_cast<int64_t>(count_for(type, parts(step.verb, group.members))));
    }
    step.with("dtype", type).with("root", static_cast<int64_t>(r.below(members)));
    if (step.verb == "all_reduce" || step.verb == "reduce" || step.verb.compare(0, 14, "reduce_scatter") == 0)
      fold(step);
    algorithm(step);
    if (step.has("wire")) step.values.erase("algorithm");  // not all carry one
    return step;
  }

  void fold(Step& step) {
    Random& r = random_;
    DType type = DType::kFloat32;
    for (int i = 0; i < kDTypes; ++i) {
      if (step.word("dtype") == dtype_name(static_cast<DType>(i))) type = static_cast<DType>(i);
    }
    Op op = Op::kSum;
    do {
      op = r.chance(40) ? Op::kSum : static_cast<Op>(r.below(kOps));
    } while (!op_supports(op, type));
    step.with("op", op_name(op));
    const bool wide = type == DType::kFloat32 || type == DType::kFloat64 || type == DType::kFloat16;
    if ((op == Op::kSum || op == Op::kAverage) && wide && r.chance(50)) step.with("data", "random");
    const bool even = step.verb == "all_reduce" || step.verb == "reduce_scatter";
    if (!even || type != DType::kFloat32 || (op != Op::kSum && op != Op::kAverage) || r.chance(60)) return;
    step.with("wire", wire_format_name(static_cast<WireFormat>(r.between(1, kWireFormats - 1))));
    if (r.chance(30)) step.with("residual", 1);
    const std::string wire = step.word("wire");
    if ((wire == "int8" || wire == "int4") && r.chance(40)) step.with("stochastic", 1);
  }

  Step many(Step step) {
    step.verb = "all_reduce_many";
    std::string counts, types;
    const uint64_t tensors = random_.between(1, 20);
    for (uint64_t t = 0; t < tensors; ++t) {
      const std::string type = dtype();
      counts += (t == 0 ? "" : ",") + std::to_string(count_for(type, 4));
      types += (t == 0 ? "" : ",") + type;
    }
    return step.with("counts", counts).with("dtype", types).with("op", random_.chance(50) ? "sum" : "max");
  }

  Step exchange(const Known& group) {
    constexpr const char* kModes[] = {"async", "blocking", "late", "defer"};
    constexpr const char* kHow[] = {"exact", "any", "source", "tag", "reverse"};
    Random& r = random_;
    Step step;
    step.verb = "exchange";
    const std::string type = dtype();
    std::string list;
    const uint64_t messages = r.between(1, 8);
    const auto world = static_cast<uint64_t>(life_.world);
    for (uint64_t k = 0; k < messages; ++k) {
      const uint64_t src = r.below(world);
      list += (k == 0 ? "" : ";") + std::to_string(src) + ">" +
              std::to_string((src + 1 + r.below(std::max<uint64_t>(1, world - 1))) % world) + ":" +
              std::to_string(r.below(3)) + ":" + std::to_string(count_for(type, 1));
    }
    step.with("group", group.number).with("dtype", type).with("messages", list).with("mode", one_of(r, kModes));
    step.with("salt", static_cast<int64_t>(r.below(1000))).with("in", where()).with("out", where());
    if (step.word("mode") != "blocking") step.with("recv", one_of(r, kHow));
    if (step.word("mode") == "defer") step.with("name", "d" + std::to_string(r.below(3)));
    return step;
  }

  Step sparse(const Known& group) {
    constexpr const char* kSelects[] = {"topk", "threshold", "sampled"};
    Random& r = random_;
    Step step;
    step.verb = "sparse";
    const uint64_t count = r.between(1, 6000);
    step.with("group", group.number).with("count", static_cast<int64_t>(count)).with("select", one_of(r, kSelects));
    constexpr const char* kParts[] = {"0.001", "0.01", "0.05", "0.3", "1"};
    step.with("spars", step.word("select") == "threshold" ? std::to_string(r.below(600)) : one_of(r, kParts));
    step.with("salt", static_cast<int64_t>(r.below(1000)));
    if (r.chance(60)) step.with("residual", 1);
    if (r.chance(50)) step.with("place", 1);
    if (r.chance(30)) step.with("tensors", std::to_string(count / 3) + "," + std::to_string(count - count / 3));
    return step;
  }

  Step named(const std::string& verb, const std::string& key, int64_t value) {
    Step step;
    step.verb = verb;
    return step.with(key, value);
  }

  Step repeat(std::vector<Step> inner, uint64_t times) {
    Step step = named("repeat", "times", static_cast<int64_t>(times));
    step.inner = std::move(inner);
    return step;
  }

  // A handful of shapes, again and again.
  void training(std::vector<Step>& steps, const Known& group, int threads) {
    std::vector<Step> body;
    const uint64_t shapes = random_.between(1, 5);
    uint64_t cost = 1;
    for (uint64_t i = 0; i < shapes; ++i) {
      body.push_back(collective(group));
      for (uint64_t c : body.back().numbers("counts")) cost += c * 8;
      cost += static_cast<uint64_t>(body.back().number("count")) * 8;
    }
    if (random_.chance(25) && group.members > 1) body.push_back(exchange(group));
    if (random_.chance(15)) body.push_back(sparse(group));
    if (random_.chance(25)) asynchronous(body);
    const uint64_t most = std::max<uint64_t>(3, 60'000'000 / cost / static_cast<uint64_t>(threads));
    steps.push_back(repeat(std::move(body), std::min<uint64_t>(random_.chance(50) ? 40 : 400, most)));
  }

  // Gives some of these calls a slot, and ends them behind.
  void asynchronous(std::vector<Step>& body) {
    constexpr const char* kEnds[] = {"wait", "poll", "drop_work"};
    std::vector<Step> ends;
    int64_t slot = 0;
    for (Step& step : body) {
      if (step.verb == "exchange" || step.verb == "sparse" || random_.chance(30)) continue;
      step.with("slot", ++slot);
      if (random_.chance(30)) step.with("end", 1);
      ends.push_back(named(one_of(random_, kEnds), "slot", slot));
    }
    body.insert(body.end(), ends.begin(), ends.end());
  }

  Step batch(const Known& group) {
    Step step = named("batch", "group", group.number);
    const uint64_t calls = random_.between(1, 6);
    for (uint64_t i = 0; i < calls; ++i) {
      if (group.members > 1 && random_.chance(20)) {
        step.inner.push_back(exchange(group));
        step.inner.back().values.erase("recv");
        step.inner.back().values.erase("mode");
        step.inner.back().values.erase("name");
      } else {
        step.inner.push_back(collective(group));
        for (const char* key : {"wire", "stochastic", "residual"}) step.inner.back().values.erase(key);
      }
    }
    if (random_.chance(40)) step.with("slot", static_cast<int64_t>(random_.between(1, 3)));
    return step;
  }

  Known make_group(std::vector<Step>& steps, const Known& parent) {
    Random& r = random_;
    Step step = named("split", "group", parent.number);
    step.with("as", ++newest_);
    int members = life_.world;
    if (r.chance(50)) {
      std::string colors, keys;
      for (int m = 0; m < life_.world; ++m) {
        colors += (m == 0 ? "" : ",") + std::to_string(r.chance(10) ? -1 : static_cast<int>(r.below(2)));
        keys += (m == 0 ? "" : ",") + std::to_string(r.below(5));
      }
      step.with("color", colors).with("key", keys);
      members = 1;
    } else {
      step.with("color", 0).with("key", 0);
    }
    if (r.chance(30)) {
      step.verb = "new_group";
      step.values.erase("color");
      step.values.erase("key");
      std::string ranks;
      const uint64_t first = r.below(static_cast<uint64_t>(life_.world));
      members = static_cast<int>(r.between(1, static_cast<uint64_t>(life_.world)));
      for (int m = 0; m < members; ++m) {
        ranks += (m == 0 ? "" : ",") +
                 std::to_string((first + static_cast<uint64_t>(m)) % static_cast<uint64_t>(life_.world));
      }
      step.with("ranks", ranks);
    }
    steps.push_back(step);
    return {newest_, members};
  }

  // Groups that come and go: a few calls in each.
  void churn(std::vector<Step>& steps, const Known& parent) {
    std::vector<Step> body;
    const Known group = make_group(body, parent);
    const uint64_t calls = random_.between(1, 3);
    for (uint64_t i = 0; i < calls; ++i) {
      body.push_back(random_.chance(40) && group.members > 1 ? exchange(group) : collective(group));
    }
    body.push_back(named("drop", "group", group.number));
    steps.push_back(repeat(std::move(body), random_.between(2, life_.world > 3 ? 20 : 60)));
  }

  void disagree(std::vector<Step>& steps, const Known& parent) {
    constexpr const char* kOther[] = {"split", "sparse", "call", "call", "attach"};
    const Known group = make_group(steps, parent);
    Step step = named("disagree", "group", group.number);
    step.with("odd", static_cast<int64_t>(random_.below(static_cast<uint64_t>(life_.world))));
    for (int i = 0; i < 2; ++i) {
      const std::string kind = one_of(random_, kOther);
      if (kind == "call") {
        step.inner.push_back(collective(group));
      } else {
        step.inner.push_back(named(kind, "group", group.number));
        if (kind == "sparse") step.inner.back().with("count", static_cast<int64_t>(random_.between(1, 3000)));
      }
    }
    // An all_gather of as many bytes as an exchange of the library's own.
    if (random_.chance(40)) {
      constexpr int kSizes[] = {8, 16, 24, 32, 48};
      Step gather = named("all_gather", "group", group.number);
      gather.with("count", kSizes[random_.below(std::size(kSizes))] / 4).with("dtype", "int32");
      if (random_.chance(50)) gather.with("dtype", "uint8").with("count", gather.number("count") * 4);
      if (random_.chance(30)) gather.with("dtype", "uint64").with("count", static_cast<int64_t>(random_.between(1, 6)));
      step.inner[random_.below(2)] = gather;
    }
    const auto same = [&] {
      return step.inner[0].verb == step.inner[1].verb && step.inner[0].word("count") == step.inner[1].word("count");
    };
    if (!same()) steps.push_back(step);
  }

  void mistake(std::vector<Step>& steps, const Known& group) {
    constexpr const char* kWhat[] = {"sparse_in_batch",
                                     "split_in_batch",
                                     "new_group_in_batch",
                                     "begin_in_batch",
                                     "end",
                                     "spars",
                                     "tensors",
                                     "null",
                                     "op",
                                     "timeout",
                                     "overlap",
                                     "root",
                                     "peer",
                                     "tag",
                                     "counts",
                                     "length"};
    Step step = named("bad", "group", group.number);
    steps.push_back(step.with("what", one_of(random_, kWhat)));
    steps.push_back(collective(group));
  }

  void hostile(std::vector<Step>& steps) {
    constexpr const char* kWhat[] = {"sparse", "memory", "sockets"};
    Step step = named("hostile", "by", static_cast<int64_t>(random_.below(static_cast<uint64_t>(life_.world))));
    step.with("group", 0).with("what", one_of(random_, kWhat)).with("salt", static_cast<int64_t>(random_.below(10000)));
    steps.push_back(step.with("times", static_cast<int64_t>(random_.between(1, 2000))));
  }

  void departure(std::vector<Step>& steps, const Known& parent) {
    const Known group = make_group(steps, parent);
    Step step = named(random_.chance(50) ? "abort" : "leave", "group", group.number);
    steps.push_back(step.with("by", static_cast<int64_t>(random_.below(static_cast<uint64_t>(life_.world)))));
  }

  std::vector<Step> thread(int threads) {
    Random& r = random_;
    std::vector<Step> steps;
    newest_ = 0;
    std::vector<Known> groups = {{0, life_.world}};
    const uint64_t parts = r.between(1, threads > 1 ? 3 : 6);
    for (uint64_t i = 0; i < parts; ++i) {
      const Known group = groups[r.below(groups.size())];
      const uint64_t draw = r.below(100);
      if (draw < 50) {
        training(steps, group, threads);
      } else if (draw < 60) {
        churn(steps, group);
      } else if (draw < 70) {
        groups.push_back(make_group(steps, group));
      } else if (draw < 78) {
        steps.push_back(repeat({batch(group)}, r.between(1, 20)));
      } else if (draw < 84) {
        disagree(steps, group);
      } else if (draw < 88) {
        departure(steps, group);
      } else if (draw < 90) {
        mistake(steps, group);
      } else if (draw < 92) {
        Step step;
        step.verb = "free";
        steps.push_back(step);
      } else {
        Step shift = named("shift", "group", group.number);
        shift.with("by", static_cast<int64_t>(r.below(4))).with("dtype", "int32").with("tag", 7);
        steps.push_back(repeat({shift.with("count", static_cast<int64_t>(bytes() / 4))}, r.between(1, 30)));
        steps.push_back(exchange(group));
        steps.push_back(named("collect", "group", group.number).with("name", "d" + std::to_string(r.below(3))));
      }
    }
    if (threads > 1 || life_.ranks != Ranks::kProcesses || !r.chance(10)) return steps;
    life_.rounds = 1;  // the last step of a life
    if (r.chance(50)) {
      hostile(steps);
    } else {
      steps.push_back(named("kill", "by", static_cast<int64_t>(r.below(static_cast<uint64_t>(life_.world)))));
    }
    return steps;
  }

  Random random_;
  Life life_;
  int newest_ = 0;  // number of the newest group of this thread
};

}  // namespace

Life generate(uint64_t seed) { return Generator(seed).make(); }

}  // namespace rondo::life
