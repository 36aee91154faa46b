#include "bench/options.h"

#include <doctest/doctest.h>

#include <sstream>

namespace rondo::bench {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

Options accepted(const std::string& text) {
  const auto parsed = parse_options(words(text));
  if (const auto* stop = std::get_if<Stop>(&parsed)) FAIL(stop->text);
  return std::get<Options>(parsed);
}

std::string rejected(const std::string& text) {
  const auto parsed = parse_options(words(text));
  REQUIRE(std::holds_alternative<Stop>(parsed));
  CHECK(std::get<Stop>(parsed).code == 2);
  return std::get<Stop>(parsed).text;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("without options: all_reduce float32 sum, 8 B to 64 MiB by factor 4, checked, with the limit") {
  const Options o = accepted("");
  CHECK(o.benchmarks == std::vector{Benchmark::kAllReduce});
  CHECK(o.dtypes == std::vector{DType::kFloat32});
  CHECK(o.ops == std::vector{Op::kSum});
  CHECK(o.sizes.front() == 8);
  CHECK(o.sizes[1] == 32);
  CHECK(o.sizes.back() == 64u << 20);
  CHECK(o.effort.check);
  CHECK_FALSE(o.effort.warmup.has_value());
  CHECK(o.effort.iterations == 0);
  CHECK(o.limit);
  CHECK(o.ranks == 0);
}

TEST_CASE("nccl-tests' options, short and long") {
  const Options o = accepted("-b 1K -e 4K -f 2 -n 30 -w 3 -o max -d half -r 1 -c 0 --ranks 2");
  CHECK(o.sizes == std::vector<uint64_t>{1024, 2048, 4096});
  CHECK(o.effort.iterations == 30);
  CHECK(o.effort.warmup == 3);
  CHECK(o.ops == std::vector{Op::kMax});
  CHECK(o.dtypes == std::vector{DType::kFloat16});
  CHECK(o.root == 1);
  CHECK_FALSE(o.effort.check);
  const Options long_names = accepted(
      "--minbytes 1K --maxbytes 4K --stepfactor 2 --iters 30 --warmup_iters 3 --op max --datatype half --root 1 "
      "--check 0 --ranks 2");
  CHECK(long_names.sizes == o.sizes);
  CHECK(accepted("-b 10 -e 40 -i 10").sizes == std::vector<uint64_t>{10, 20, 30, 40});
  CHECK(accepted("--sizes 1M,8").sizes == std::vector<uint64_t>{1 << 20, 8});
  CHECK(accepted("-r -1").root == -1);
  CHECK(accepted("-r all").root == -1);
  CHECK(accepted("-o mulsum").ops == std::vector{Op::kPremulSum});
  CHECK(accepted("-c 20").effort.check);
  CHECK(accepted("-m 4 -z 1").aggregate == 4);
  CHECK_FALSE(accepted("-z 0").blocking);
}

TEST_CASE("a model in the place of sizes, and where buffers lie") {
  CHECK(accepted("--sizes resnet50").list == "resnet50");
  CHECK(accepted("--sizes resnet50").sizes.empty());
  CHECK(accepted("--sizes 8").list.empty());
  CHECK(accepted("--sizes gpt2 --fused").fused);
  CHECK_FALSE(accepted("--sizes gpt2").fused);
  CHECK(accepted("--placement in").placements == std::vector{Placement::kInPlace});
  CHECK(accepted("--buffers registered").buffers == BufferKind::kRegistered);
  CHECK(accepted("--device cuda").on_device);
  CHECK_FALSE(accepted("--device cuda").limit);
  CHECK_FALSE(accepted("--device none").on_device);
}

TEST_CASE("lists and all") {
  CHECK(accepted("--collective all").benchmarks.size() == kBenchmarks);
  CHECK(accepted("--collective all").all_benchmarks);
  CHECK_FALSE(accepted("--collective sendrecv,barrier").all_benchmarks);
  CHECK(accepted("--collective pingpong,burst").benchmarks == std::vector{Benchmark::kPingPong, Benchmark::kBurst});
  CHECK(accepted("--collective sendrecv,barrier").benchmarks == std::vector{Benchmark::kSendRecv, Benchmark::kBarrier});
  CHECK(accepted("-d all -o all").dtypes.size() == kDTypes);
}

TEST_CASE("every bad option is named and ends in code 2") {
  CHECK(contains(rejected("--colective all"), "--colective"));
  CHECK(contains(rejected("--sizes 8 --fused"), "--fused: needs a list"));
  CHECK(contains(rejected("--collective all_reduc"), "'all_reduc' is none of: all_reduce"));
  CHECK(contains(rejected("--collective ping"), "sendrecv, pingpong, burst, all"));
  CHECK(contains(rejected("-m 4 --collective pingpong"), "-m: for all_reduce only"));
  CHECK(contains(rejected("-d float8"), "-d: 'float8'"));
  CHECK(contains(rejected("-o plus"), "-o: 'plus'"));
  CHECK(contains(rejected("-o band"), "band is not defined for float32"));
  CHECK(contains(rejected("-b 64X"), "-b: '64X'"));
  CHECK(contains(rejected("-b 64M -e 8"), "-e: 8 B is less than -b: 64 MiB"));
  CHECK(contains(rejected("-b 0"), "-b: sizes start at 1"));
  CHECK(contains(rejected("-f 1"), "-f: a factor of 1"));
  CHECK(contains(rejected("-f 2 -i 8"), "-i: a step"));
  CHECK(contains(rejected("--sizes 8,,16"), "--sizes: '8,,16'"));
  CHECK(contains(rejected("--sizes 8 -b 8"), "cannot be combined"));
  CHECK(contains(rejected("--algorithm rings"), "--algorithm: 'rings'"));
  CHECK(contains(rejected("-r first"), "-r: 'first' is no rank"));
  CHECK(contains(rejected("-m 4 --collective broadcast"), "-m: for all_reduce only"));
  CHECK(contains(rejected("-m 4 -z 0"), "-m: not with -z 0"));
  CHECK(contains(rejected("--ranks 2 -r 2"), "root 2 does not exist"));
  CHECK(contains(rejected("--ranks 0"), "--ranks"));
  CHECK(contains(rejected("-n 0"), "--iters"));
  CHECK(contains(rejected("-n x"), "--iters"));
  CHECK(contains(rejected("-n"), "--iters"));
  CHECK(contains(rejected("--placement inside"), "--placement: 'inside'"));
  CHECK(contains(rejected("--buffers none"), "--buffers: 'none'"));
  CHECK(contains(rejected("--device gpu"), "--device: 'gpu' is none of: none, cuda"));
  CHECK(contains(rejected("--sizes gpt2 --collective all"), "--sizes gpt2"));
  CHECK(contains(rejected("extra"), "extra"));
}

TEST_CASE("help is no failure and names every public option") {
  const auto parsed = parse_options({"--help"});
  REQUIRE(std::holds_alternative<Stop>(parsed));
  const Stop& stop = std::get<Stop>(parsed);
  CHECK(stop.code == 0);
  for (const char* name : {"-b", "--sizes", "--collective", "--ranks", "--inproc", "--json", "--no-limit", "--timeout",
                           "--agg_iters", "--blocking", "sendrecv, pingpong, burst"}) {
    INFO(name);
    CHECK(contains(stop.text, name));
  }
  CHECK_FALSE(contains(stop.text, "--load-average"));
}

}  // namespace
}  // namespace rondo::bench
