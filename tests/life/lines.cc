#include "tests/life/lines.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/life/model.h"

namespace rondo::life {
namespace {

constexpr const char* kEven[] = {"all_reduce", "reduce",  "broadcast",  "all_gather", "reduce_scatter",
                                 "gather",     "scatter", "all_to_all", "scan",       "exscan"};
constexpr const char* kUneven[] = {"all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v"};
// Bytes at which the library changes its way: inline and posted values, where trials begin (16 KiB), the eager limit
// and cards (64, 256 KiB), slices (256 KiB), staging memory (1 MiB); and what small settings make of them.
constexpr uint64_t kThresholds[] = {8,    16,   48,    56,    64,    112,    128,    256,    512,    1024,   2048,
                                    4096, 8192, 16384, 32768, 65536, 131072, 196608, 262144, 524288, 1048576};

bool scans(const Step& step) { return step.verb == "scan" || step.verb == "exscan"; }

bool folds(const Step& step) {
  return step.verb == "all_reduce" || step.verb == "reduce" || step.verb.compare(0, 14, "reduce_scatter") == 0 ||
         scans(step);
}

uint64_t parts(const std::string& verb, int members) {
  const bool one =
      verb == "all_reduce" || verb == "reduce" || verb == "broadcast" || verb == "scan" || verb == "exscan";
  return one ? 1 : static_cast<uint64_t>(members);
}

}  // namespace

std::string Lines::list_of(uint64_t count, const std::function<std::string(uint64_t)>& one, char between) {
  std::string list;
  for (uint64_t i = 0; i < count; ++i) list += (i == 0 ? "" : std::string(1, between)) + one(i);
  return list;
}

Step Lines::named(const std::string& verb, const std::string& key, int64_t value) {
  Step step;
  step.verb = verb;
  return step.with(key, value);
}

bool Lines::one_island() const {
  return life_.ranks == Ranks::kProcesses && life_.hosts.empty() && !life_.has_setting("RONDO_TRANSPORT=tcp");
}

std::string Lines::dtype() { return dtype_name(static_cast<DType>(random_.below(kDTypes))); }

std::string Lines::floats() {
  constexpr const char* kFloats[] = {"float32", "float64", "float16", "bfloat16"};
  return one_of(kFloats);
}

uint64_t Lines::bytes() {
  const uint64_t at = kThresholds[random_.below(std::size(kThresholds))];
  if (random_.chance(60)) return at + random_.below(3) * 8 - std::min<uint64_t>(at, 8);
  return random_.between(at / 2, at * 3 / 2);
}

uint64_t Lines::count_for(const std::string& dtype, uint64_t parts) {
  if (random_.chance(5)) return random_.below(parts + 2);
  return std::max<uint64_t>(1, bytes() / dtype_bytes(dtype_named(dtype)) / parts);
}

// Buffers of these kinds, one for each letter: of all ranks, or by rank; misaligned now and then.
std::string Lines::where(const char* kinds) {
  return list_of(std::string(kinds).size(), [&](uint64_t m) {
    return std::string(1, kinds[m]) + (random_.chance(50) ? "" : "+" + std::to_string(random_.below(70)));
  });
}

// Where buffers lie: all plain, all registered, or mixed by rank.
std::string Lines::where() {
  const uint64_t draw = random_.below(100);
  if (draw < 85) return where(draw < 35 ? "p" : draw < 75 ? "r" : "n");
  std::string kinds;
  for (int m = 0; m < life_.world; ++m) kinds += "prn"[random_.below(3)];
  return where(kinds.c_str());
}

void Lines::algorithm(Step& step) {
  constexpr const char* kNamed[] = {"ring", "direct", "tree", "star", "double_tree", "doubling", "halving_doubling"};
  constexpr size_t kCarryingWires = 5;
  if (random_.chance(80) || step.number("user") == 2) return;  // not all keep the order
  if (step.verb != "all_reduce" || life_.world == 1) return;
  step.with("algorithm", kNamed[random_.below(step.has("wire") ? kCarryingWires : std::size(kNamed))]);
}

Step Lines::collective(const Known& group) {
  testing::Random& r = random_;
  Step step;
  const uint64_t draw = r.below(100);
  const std::string type = dtype();
  if (draw < 3) return named("barrier", "group", group.number);
  step.with("group", group.number).with("salt", salt()).with("in", where()).with("out", where());
  if (r.chance(40)) step.with("place", 1);
  if (draw < 15) return many(step);
  const auto members = static_cast<uint64_t>(life_.world);
  if (draw < 35) {
    step.verb = one_of(kUneven);
    step.with("counts",
              list_of(members, [&](uint64_t) { return std::to_string(r.chance(20) ? 0 : count_for(type, members)); }));
    if (r.chance(40) && step.verb != "reduce_scatter_v") step.with("gap", static_cast<int64_t>(r.between(1, 9)));
  } else {
    step.verb = one_of(kEven);
    step.with("count", static_cast<int64_t>(count_for(type, parts(step.verb, group.members))));
  }
  step.with("dtype", type).with("root", rank());
  if (folds(step)) fold(step);
  const bool packs = step.verb == "broadcast" || step.verb == "all_gather";
  if (packs && (type == "float32" || type == "bfloat16") && r.chance(40)) step.with("wire", "packed");
  algorithm(step);
  return step;
}

void Lines::fold(Step& step) {
  testing::Random& r = random_;
  const DType type = dtype_named(step.word("dtype"));
  Op op = Op::kSum;
  do {
    op = r.chance(40) ? Op::kSum : static_cast<Op>(r.below(kOps));
  } while (!op_supports(op, type) || (scans(step) && op == Op::kAverage));
  step.with("op", op_name(op));
  const bool wide = type == DType::kFloat32 || type == DType::kFloat64 || type == DType::kFloat16;
  const bool by_function = type == DType::kInt64 || type == DType::kFloat64;
  if (by_function && (op == Op::kSum || op == Op::kMax) && r.chance(40)) {
    step.with("user", static_cast<int64_t>(r.between(1, 2)));
    return;
  }
  if ((op == Op::kSum || op == Op::kAverage) && wide && r.chance(50)) step.with("data", "random");
  const bool even = step.verb == "all_reduce" || step.verb == "reduce_scatter";
  const bool codes = type == DType::kFloat32 || type == DType::kFloat16 || type == DType::kBfloat16;
  if (!even || !codes || (op != Op::kSum && op != Op::kAverage) || r.chance(60)) return;
  step.with("wire", wire_format_name(static_cast<WireFormat>(r.between(1, static_cast<uint64_t>(WireFormat::kInt4)))));
  if (r.chance(30)) step.with("residual", 1);
  const std::string wire = step.word("wire");
  if ((wire == "int8" || wire == "int4") && r.chance(40)) step.with("stochastic", 1);
}

Step Lines::many(Step step) {
  step.verb = "all_reduce_many";
  std::string counts, types;
  const uint64_t tensors = random_.between(1, 20);
  for (uint64_t t = 0; t < tensors; ++t) {
    const std::string type = dtype(), between = t == 0 ? "" : ",";
    counts += between + std::to_string(count_for(type, 4));
    types += between + type;
  }
  return step.with("counts", counts).with("dtype", types).with("op", random_.chance(50) ? "sum" : "max");
}

std::vector<Step> Lines::equal_calls(const Known& group) {
  constexpr const char* kVerbs[] = {"all_reduce", "all_reduce", "all_reduce", "reduce", "reduce_scatter"};
  testing::Random& r = random_;
  Step step = named(one_of(kVerbs), "group", group.number);
  const std::string type = floats();
  // Where trials begin, and above.
  const uint64_t bytes = r.between(16 << 10, 32 << 10) << r.below(6), size = dtype_bytes(dtype_named(type));
  step.with("dtype", type).with("count", static_cast<int64_t>(bytes / size / parts(step.verb, life_.world)));
  step.with("op", r.chance(70) ? "sum" : "avg").with("data", "random").with("salt", salt()).with("root", rank());
  std::vector<Step> lines;
  const uint64_t variants = r.between(2, 4);
  for (uint64_t i = 0; i < variants; ++i) {
    Step line = step;
    line.with("in", where(r.chance(50) ? "p" : "r")).with("out", where(r.chance(50) ? "p" : "r"));
    if (r.chance(40)) line.with("place", 1);
    if (r.chance(50) && one_island() && life_.world > 1) line.with("algorithm", "window");
    lines.push_back(line);
  }
  return lines;
}

Step Lines::exchange(const Known& group) {
  constexpr const char* kModes[] = {"async", "blocking", "late", "defer"};
  constexpr const char* kHow[] = {"exact", "any", "source", "tag", "reverse"};
  testing::Random& r = random_;
  const std::string type = dtype();
  const auto world = static_cast<uint64_t>(life_.world);
  const auto message = [&](uint64_t) {
    const uint64_t src = r.below(world), dst = (src + 1 + r.below(std::max<uint64_t>(1, world - 1))) % world;
    return std::to_string(src) + ">" + std::to_string(dst) + ":" + std::to_string(r.below(3)) + ":" +
           std::to_string(count_for(type, 1));
  };
  Step step = named("exchange", "group", group.number);
  step.with("dtype", type).with("messages", list_of(r.between(1, 8), message, ';')).with("mode", one_of(kModes));
  step.with("salt", salt()).with("in", where()).with("out", where());
  if (step.word("mode") != "blocking") step.with("recv", one_of(kHow));
  if (step.word("mode") == "defer") step.with("name", "d" + std::to_string(r.below(3)));
  if (r.chance(20)) step.with("synchronous", 1);
  if (step.word("mode") != "async" && r.chance(30)) step.with("probe", 1);
  return step;
}

Step Lines::loss() {
  constexpr const char* kOps[] = {"sum", "max", "min"};
  Step step = named("lose", "by", rank());
  const std::string type = dtype();
  step.with("dtype", type).with("count", static_cast<int64_t>(count_for(type, 1))).with("op", one_of(kOps));
  step.with("salt", salt())
      .with("in", where())
      .with("out", where())
      .with("after", static_cast<int64_t>(random_.below(4)));
  if (random_.chance(50)) step.with("amid", static_cast<int64_t>(random_.between(1, 20000)));
  if (random_.chance(60)) step.with("place", 1);
  if (random_.chance(60)) step.with("recoverable", 1);
  return step;
}

Step Lines::shift(const Known& group) {
  Step step = named("shift", "group", group.number);
  step.with("by", static_cast<int64_t>(random_.below(4))).with("dtype", "int32").with("tag", 7);
  return step.with("count", static_cast<int64_t>(bytes() / 4));
}

Step Lines::crowd(const Known& group) {
  Step step = shift(group).with("dtype", dtype()).with("by", 1).with("salt", salt());
  step.verb = "crowd";
  step.values.erase("tag");
  step.with("count", static_cast<int64_t>(count_for(step.word("dtype"), 1)));
  return step.with("threads", static_cast<int64_t>(random_.between(2, 4))).with("times", 5 << random_.below(5));
}

Step Lines::sparse(const Known& group) {
  constexpr const char* kSelects[] = {"topk", "threshold"};
  constexpr const char* kParts[] = {"0.001", "0.01", "0.05", "0.3", "1"};
  testing::Random& r = random_;
  const uint64_t count = r.between(1, 6000);
  Step step = named("sparse", "group", group.number);
  step.with("count", static_cast<int64_t>(count)).with("select", one_of(kSelects)).with("salt", salt());
  step.with("spars", step.word("select") == "threshold" ? std::to_string(r.below(600)) : one_of(kParts));
  if (r.chance(60)) step.with("residual", 1);
  if (r.chance(50)) step.with("place", 1);
  if (r.chance(30)) step.with("tensors", std::to_string(count / 3) + "," + std::to_string(count - count / 3));
  return step;
}

Step Lines::dist_opt(const Known& group) {
  constexpr const char* kExchanges[] = {"float32", "float16",   "bfloat16", "int8",
                                        "topk",    "threshold", "partial",  "local"};
  testing::Random& r = random_;
  Step step = named("distopt", "group", group.number);
  step.with("exchange", one_of(kExchanges)).with("steps", static_cast<int64_t>(r.between(1, 12))).with("salt", salt());
  step.with("counts", list_of(r.between(1, 8), [&](uint64_t) { return std::to_string(r.between(1, 3000)); }));
  if (r.chance(50)) step.with("ready", 1);
  if (r.chance(60)) step.with("bucket", static_cast<int64_t>(r.between(1, 20000)));
  if (step.word("exchange") == "local") {
    const uint64_t every = r.between(1, 4);
    step.with("every", static_cast<int64_t>(every)).with("fragments", static_cast<int64_t>(r.between(1, every)));
  }
  if (step.word("exchange") == "threshold") step.with("spars", static_cast<int64_t>(r.below(600)));
  return step;
}

Step Lines::batch(const Known& group) {
  Step step = named("batch", "group", group.number);
  const uint64_t calls = random_.between(1, 6);
  for (uint64_t i = 0; i < calls; ++i) {
    step.inner.push_back(group.members > 1 && random_.chance(20) ? exchange(group) : collective(group));
    for (const char* key : {"recv", "mode", "name", "probe", "wire", "stochastic", "residual"}) {
      step.inner.back().values.erase(key);
    }
  }
  if (random_.chance(40)) step.with("slot", static_cast<int64_t>(random_.between(1, 3)));
  return step;
}

Step Lines::mistake(const Known& group) {
  constexpr const char* kWhat[] = {"sparse_in_batch",
                                   "split_in_batch",
                                   "new_group_in_batch",
                                   "begin_in_batch",
                                   "end",
                                   "spars",
                                   "tensors",
                                   "sparse_timeout",
                                   "threshold",
                                   "not_a_number",
                                   "overlap_residual",
                                   "user",
                                   "user_bytes",
                                   "wire",
                                   "null",
                                   "op",
                                   "timeout",
                                   "overlap",
                                   "root",
                                   "peer",
                                   "tag",
                                   "counts",
                                   "length"};
  return named("bad", "group", group.number).with("what", one_of(kWhat));
}

}  // namespace rondo::life
