// plan_dump: prints plans, so that a person can read them and a program can draw them.

#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ring/plan/build.h"
#include "ring/plan/describe.h"
#include "ring/plan/simulate.h"
#include "ring/plan/verify.h"
#include "rondo/error.h"
#include "tools/plan/picture.h"

namespace {

using namespace rondo;

constexpr const char* kUsage =
    "usage: plan_dump --collective NAME --algorithm NAME --world N [options]\n"
    "  --collective  all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all barrier\n"
    "  --algorithm   ring direct doubling tree hierarchical star halving_doubling double_tree pat swing\n"
    "  --rank R      that rank's steps only (default: all ranks and a picture)\n"
    "  --root R      where the collective has one (default 0)\n"
    "  --ahead N     chunks that a link may hold at once, 1 .. 64 (default 4)\n"
    "  --lanes N     1 .. 16 (default 1)\n"
    "  --hosts A,B   ranks on each host, in order (default: all on one)\n"
    "  --scale-at-source\n"
    "  --json        one JSON object a line and rank, instead of words\n"
    "  --verify      prove the plans (exit 1 if they fail)\n"
    "  --bytes M     simulate a call of M bytes, by the default cost model\n";

// Worlds past this print more than anybody reads.
constexpr int kMostRanks = 1024;

struct Options {
  PlanRequest request;
  int world = 0, root = 0, rank = -1;
  std::vector<int> hosts;
  bool json = false, verify = false;
  uint64_t bytes = 0;
};

[[noreturn]] void refuse(const std::string& why) { throw Exception(ErrorCode::kInvalid, why); }

uint64_t number(std::string_view option, std::string_view text, uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) {
    refuse(std::string(option) + " wants a number up to " + std::to_string(most) + ", not '" + std::string(text) + "'");
  }
  return value;
}

template <typename Enum, typename Name>
Enum named(std::string_view option, std::string_view text, int count, Name name) {
  for (int i = 0; i < count; ++i) {
    if (text == name(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  refuse(std::string(option) + " has no '" + std::string(text) + "'");
}

std::vector<int> host_sizes(std::string_view text) {
  std::vector<int> sizes;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    sizes.push_back(static_cast<int>(number("--hosts", text.substr(0, comma), kMostRanks)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return sizes;
}

void set(Options& options, std::string_view option, std::string_view value) {
  const auto small = [&](uint64_t most) { return static_cast<int>(number(option, value, most)); };
  if (option == "--collective") {
    options.request.collective = named<Collective>(option, value, kCollectives, collective_name);
  } else if (option == "--algorithm") {
    options.request.algorithm = named<Algorithm>(option, value, kAlgorithms, algorithm_name);
  } else if (option == "--world") {
    options.world = small(kMostRanks);
  } else if (option == "--rank") {
    options.rank = small(kMostRanks);
  } else if (option == "--root") {
    options.root = small(kMostRanks);
  } else if (option == "--lanes") {
    options.request.lanes = small(16);
  } else if (option == "--ahead") {
    options.request.ahead = small(64);
  } else if (option == "--hosts") {
    options.hosts = host_sizes(value);
  } else if (option == "--bytes") {
    options.bytes = number(option, value, uint64_t{1} << 50);
  } else {
    refuse("no option " + std::string(option));
  }
}

Options parse(int argc, char** argv) {
  Options options;
  options.request.ahead = 4;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--json") {
      options.json = true;
    } else if (option == "--verify") {
      options.verify = true;
    } else if (option == "--scale-at-source") {
      options.request.scale_at_source = true;
    } else if (i + 1 < argc) {
      set(options, option, argv[++i]);
    } else {
      refuse(std::string(option) + " wants a value, or is no option");
    }
  }
  for (size_t h = 0; h < options.hosts.size(); ++h) {
    options.request.topology.host.insert(options.request.topology.host.end(), static_cast<size_t>(options.hosts[h]),
                                         static_cast<int>(h));
  }
  if (options.hosts.empty()) options.request.topology.host.assign(static_cast<size_t>(options.world), 0);
  if (options.world != 0 && options.world != options.request.topology.world())
    refuse("--hosts do not add up to --world");
  if (options.request.topology.world() > kMostRanks) refuse("more than 1024 ranks");
  if (options.rank >= options.request.topology.world()) refuse("--rank is not below --world");
  options.request.root = collective_has_root(options.request.collective) ? options.root : -1;
  return options;
}

std::vector<Plan> build_all(PlanRequest request) {
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank == 0 || request.rank < request.topology.world(); ++request.rank) {
    plans.push_back(build_plan(request));
  }
  return plans;
}

int dump(const Options& options) {
  const std::vector<Plan> plans = build_all(options.request);
  for (const Plan& plan : plans) {
    if (options.rank >= 0 && plan.rank != options.rank) continue;
    std::printf("%s%s", options.json ? to_json(plan).c_str() : describe(plan).c_str(), options.json ? "\n" : "");
  }
  if (options.rank < 0 && !options.json) std::printf("\n%s", picture(plans).c_str());
  if (options.bytes > 0) {
    SimulationRequest request;
    request.bytes = options.bytes;
    request.slices_per_chunk = std::max(1u, request.slices_per_chunk / plans[0].ahead);
    std::fprintf(stderr, "simulated: %.1f us for %llu bytes\n", simulate(plans, request).time_us,
                 static_cast<unsigned long long>(options.bytes));
  }
  if (!options.verify) return 0;
  const Verdict verdict = verify(plans, options.request.scale_at_source ? Scaling::kAtSource : Scaling::kAtFold);
  std::fprintf(stderr, "%s\n", verdict.ok ? "proven" : verdict.failure.c_str());
  return verdict.ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) == "--help") {
    std::fputs(kUsage, argc < 2 ? stderr : stdout);
    return argc < 2 ? 2 : 0;
  }
  try {
    return dump(parse(argc, argv));
  } catch (const Exception& e) {
    std::fprintf(stderr, "plan_dump: %s\n%s", e.what(), kUsage);
    return 2;
  }
}
