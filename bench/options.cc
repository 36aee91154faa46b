#include "bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <sstream>

#include "bench/loop/sizes.h"
#include "bench/loop/tensors.h"
#include "rondo/rondo.h"

namespace rondo::bench {
namespace {

// The options as they are typed; resolve() makes values of them.
struct Typed {
  std::string min_bytes, max_bytes, step_bytes, sizes;
  uint64_t step_factor = 0;
  std::string collectives = "all_reduce", dtypes = "float", ops = "sum", algorithm = "auto";
  std::string placement = "both", buffers = "plain", device = "none", root = "0";
  uint32_t check = 1;
  int blocking = 1;
  bool no_limit = false;
  std::optional<double> timeout_s = {};
};

// The limit of Communicator::inproc().
constexpr int kMaxRanks = 1024;

// Becomes Stop{2} in parse_options(), with the text as it is.
[[noreturn]] void reject(const std::string& why) { throw CLI::ValidationError(why, CLI::ExitCodes::ValidationError); }

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string name; std::getline(in, name, ',');) out.push_back(name);
  return out;
}

// "all", or names that `by_name` knows; the error lists what there is.
template <typename Value>
std::vector<Value> resolve_names(const char* option, const std::string& text, int values, const char* (*name_of)(Value),
                                 std::optional<Value> (*by_name)(std::string_view)) {
  std::vector<Value> out, all;
  for (int i = 0; i < values; ++i) all.push_back(static_cast<Value>(i));
  if (text == "all") return all;
  for (const std::string& name : split_list(text)) {
    const std::optional<Value> value = by_name(name);
    if (!value) {
      std::vector<std::string> known;
      for (Value v : all) known.push_back(name_of(v));
      reject(fmt::format("{}: '{}' is none of: {}, all", option, name, fmt::join(known, ", ")));
    }
    out.push_back(*value);
  }
  if (out.empty()) reject(fmt::format("{}: an empty list", option));
  return out;
}

// otherwise: where the option was not given.
uint64_t resolve_size(const char* option, const std::string& text, uint64_t otherwise) {
  if (text.empty()) return otherwise;
  const std::optional<uint64_t> size = parse_size(text);
  if (!size) reject(fmt::format("{}: '{}' is not a size; sizes look like 8, 64K, 1.5M, 2G", option, text));
  return *size;
}

// Without any option: 8 B to 64 MiB by factor 4, ending with 64 MiB itself.
std::vector<uint64_t> resolve_sizes(const Typed& typed) {
  const bool range =
      !typed.min_bytes.empty() || !typed.max_bytes.empty() || !typed.step_bytes.empty() || typed.step_factor != 0;
  if (!typed.sizes.empty()) {
    if (range) reject("--sizes: cannot be combined with -b, -e, -f or -i");
    if (tensors_by_name(typed.sizes)) return {};
    const auto sizes = parse_size_list(typed.sizes);
    if (!sizes)
      reject(fmt::format("--sizes: '{}' is not a list of sizes; lists look like 8,64K,1M, or are resnet50 or gpt2",
                         typed.sizes));
    if (*std::min_element(sizes->begin(), sizes->end()) == 0) reject("--sizes: sizes start at 1 byte");
    return *sizes;
  }
  const uint64_t first = resolve_size("-b", typed.min_bytes, 8);
  const uint64_t last = resolve_size("-e", typed.max_bytes, std::max<uint64_t>(first, 64u << 20));
  const uint64_t step = resolve_size("-i", typed.step_bytes, 0);
  if (first == 0) reject("-b: sizes start at 1 byte");
  if (last < first) reject(fmt::format("-e: {} is less than -b: {}", size_text(last), size_text(first)));
  if (step > 0 && typed.step_factor > 0) reject("-i: a step cannot be combined with -f, a factor");
  if (typed.step_factor == 1) reject("-f: a factor of 1 never ends; at least 2");
  std::vector<uint64_t> sizes = size_range(first, last, typed.step_factor == 0 ? 4 : typed.step_factor, step);
  if (!range && sizes.back() != last) sizes.push_back(last);
  return sizes;
}

Algorithm resolve_algorithm(const std::string& name) {
  std::vector<std::string> known;
  for (int i = 0; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (name == algorithm_name(algorithm)) return algorithm;
    known.push_back(algorithm_name(algorithm));
  }
  reject(fmt::format("--algorithm: '{}' is none of: {}", name, fmt::join(known, ", ")));
}

std::vector<Placement> resolve_placements(const std::string& name) {
  if (name == "both") return {Placement::kOutOfPlace, Placement::kInPlace};
  if (name == "in") return {Placement::kInPlace};
  if (name == "out") return {Placement::kOutOfPlace};
  reject(fmt::format("--placement: '{}' is none of: both, in, out", name));
}

BufferKind resolve_buffers(const std::string& name) {
  if (name == "plain") return BufferKind::kPlain;
  if (name == "registered") return BufferKind::kRegistered;
  reject(fmt::format("--buffers: '{}' is none of: plain, registered", name));
}

bool resolve_device(const std::string& name) {
  if (name != "none" && name != "cuda") reject(fmt::format("--device: '{}' is none of: none, cuda", name));
  return name == "cuda";
}

// A list of tensors is about training: all_reduce of one type.
void check_list(const Options& options) {
  if (options.fused && options.list.empty()) reject("--fused: needs a list of tensors: --sizes resnet50 or gpt2");
  const bool all_reduce = options.benchmarks == std::vector{Benchmark::kAllReduce};
  if (options.list.empty() || (all_reduce && options.dtypes.size() == 1 && options.ops.size() == 1)) return;
  reject(fmt::format("--sizes {}: for all_reduce of one type and one operation", options.list));
}

// -1: every rank in turn. ranks: 0 where the number is not known yet; then cases_of() refuses a root that does not
// exist.
int resolve_root(const std::string& text, int ranks) {
  if (text == "all" || text == "-1") return -1;
  int root = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), root);
  if (error != std::errc() || end != text.data() + text.size() || root < 0 || root >= kMaxRanks) {
    reject(fmt::format("-r: '{}' is no rank; give a number, or all", text));
  }
  if (ranks > 0 && root >= ranks) reject(fmt::format("-r: root {} does not exist among {} ranks", root, ranks));
  return root;
}

// Several operations in one call are a list of tensors.
void check_aggregate(const Options& options) {
  if (options.aggregate == 1) return;
  if (!options.list.empty()) reject("-m: not with --sizes of a model; --fused makes one call of its tensors");
  if (options.benchmarks != std::vector{Benchmark::kAllReduce}) reject("-m: for all_reduce only");
  if (!options.blocking) reject("-m: not with -z 0");
}

// Checks what needs several options together. What it rejects ends with exit code 2.
void resolve(const Typed& typed, Options& options) {
  options.sizes = resolve_sizes(typed);
  if (options.sizes.empty()) options.list = typed.sizes;
  options.placements = resolve_placements(typed.placement);
  options.buffers = resolve_buffers(typed.buffers);
  options.on_device = resolve_device(typed.device);
  options.benchmarks =
      resolve_names<Benchmark>("--collective", typed.collectives, kBenchmarks, benchmark_name, benchmark_by_name);
  options.all_benchmarks = typed.collectives == "all";
  options.dtypes = resolve_names<DType>("-d", typed.dtypes, kDTypes, dtype_name, dtype_by_name);
  options.ops = resolve_names<Op>("-o", typed.ops, kOps, op_name, op_by_name);
  check_list(options);
  options.algorithm = resolve_algorithm(typed.algorithm);
  options.effort.check = typed.check != 0;
  options.blocking = typed.blocking != 0;
  if (typed.timeout_s) {
    options.timeout_ms = static_cast<int64_t>(*typed.timeout_s * 1000);
    options.start_timeout_ms = options.timeout_ms;
  }
  options.limit = !typed.no_limit;
  options.root = resolve_root(typed.root, options.ranks);
  if (options.inproc && options.ranks == 0) options.ranks = 2;
  check_aggregate(options);
  if (options.on_device) options.limit = false;
  const bool fixed = options.dtypes.size() == 1 && options.ops.size() == 1;
  const bool reduces = std::any_of(options.benchmarks.begin(), options.benchmarks.end(), benchmark_reduces);
  if (fixed && reduces && !op_supports(options.ops[0], options.dtypes[0])) {
    reject(fmt::format("-o: {} is not defined for {}", op_name(options.ops[0]), dtype_name(options.dtypes[0])));
  }
}

// The names of nccl-tests where it has the option; the text ends with the default in parentheses.
void add_what(CLI::App& app, Typed& typed, Options& options) {
  app.add_option("-b,--minbytes", typed.min_bytes, "smallest size, with K, M or G (8)");
  app.add_option("-e,--maxbytes", typed.max_bytes, "largest size (64M)");
  app.add_option("-f,--stepfactor", typed.step_factor, "each size is the one before times this (4)");
  app.add_option("-i,--stepbytes", typed.step_bytes, "instead: each size is the one before plus this");
  app.add_option("--sizes", typed.sizes, "instead: a list, 8,64K,1M; or all gradients of a model: resnet50, gpt2");
  app.add_flag("--fused", options.fused, "of those: one call for all of them (without: one for each)");
  app.add_option("--collective", typed.collectives,
                 "all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all, barrier, "
                 "sendrecv, pingpong, burst; a list, or all (all_reduce)");
  app.add_option("-o,--op", typed.ops, "sum, product, min, max, avg, mulsum, ...; a list, or all (sum)");
  app.add_option("-d,--datatype", typed.dtypes, "float, double, half, bfloat16, int32, ...; a list, or all (float)");
  app.add_option("--placement", typed.placement, "in, out or both: where input and output lie (both)");
  app.add_option("--buffers", typed.buffers, "plain, or registered: memory that the library gives (plain)");
  app.add_option("-r,--root", typed.root, "where a collective has one; all: every rank in turn (0)");
}

void add_effort(CLI::App& app, Typed& typed, Options& options) {
  app.add_option("-n,--iters", options.effort.iterations, "timed operations a size (as many as fit into --seconds)")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("-w,--warmup_iters", options.effort.warmup,
                 "untimed operations before them (256, in which algorithms are tried, or as many as fit into 8 times "
                 "--seconds)")
      ->check(CLI::Range(0, 10'000'000));
  app.add_option("-c,--check", typed.check, "0: no check; more: every timed batch is checked (1)");
  app.add_option("-m,--agg_iters", options.aggregate, "all_reduces that one call carries; times are of one of them (1)")
      ->check(CLI::Range(1, 65'536));
  app.add_option("-z,--blocking", typed.blocking, "0: operations are started, then waited for; 1: blocking calls (1)")
      ->check(CLI::Range(0, 1));
  app.add_option("--seconds", options.effort.seconds, "of timed operations a size, without -n (0.25)")
      ->check(CLI::Range(0.001, 3600.0));
}

void add_where(CLI::App& app, Typed& typed, Options& options) {
  app.add_option("--ranks", options.ranks, "start N processes here (2, unless a launcher has started this one)")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_flag("--inproc", options.inproc, "ranks are threads of one process");
  app.add_option("--device", typed.device, "cuda: buffers in GPU memory, calls on a stream; rank % GPUs (none)");
  app.add_option("--transport", options.transport, "as RONDO_TRANSPORT");
  app.add_option("--algorithm", typed.algorithm, "auto, or a name that RONDO_ALGORITHM takes (auto)");
  app.add_option("--timeout", typed.timeout_s,
                 "seconds for one operation (60), and for joining (RONDO_START_TIMEOUT_MS)")
      ->check(CLI::Range(0.1, 86'400.0));
}

void add_output(CLI::App& app, Typed& typed, Options& options) {
  app.add_option("--json", options.json, "write machine, limits and rows to this file");
  app.add_flag("--verbose", options.verbose, "show p50, p99, min and max");
  app.add_flag("--no-limit", typed.no_limit, "with --transport tcp: do not measure raw TCP to compare with");
  // Hidden: start_ranks() gives it to the ranks.
  app.add_option("--load-average", options.load_average, "")->group("");
}

}  // namespace

std::variant<Options, Stop> parse_options(std::vector<std::string> args) {
  Options options;
  Typed typed;
  CLI::App app("Times Rondo's collectives, and checks what it times.", "rondo-bench");
  app.set_help_flag("-h,--help", "this text");
  app.set_version_flag("--version", "rondo-bench " RONDO_VERSION);
  add_what(app, typed, options);
  add_effort(app, typed, options);
  add_where(app, typed, options);
  add_output(app, typed, options);
  try {
    std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
    app.parse(args);
    resolve(typed, options);
  } catch (const CLI::CallForHelp&) {
    return Stop{0, app.help()};
  } catch (const CLI::CallForVersion& version) {
    return Stop{0, fmt::format("{}\n", version.what())};
  } catch (const CLI::ParseError& error) {
    return Stop{2, fmt::format("rondo-bench: {}\nrondo-bench --help lists the options\n", error.what())};
  }
  return options;
}

}  // namespace rondo::bench
