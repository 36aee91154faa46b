// plan_dump: prints plans, so that a person can read them and a program can draw them.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "ring/plan/describe.h"
#include "ring/plan/simulate.h"
#include "ring/plan/verify.h"
#include "rondo/error.h"
#include "tools/plan/plan_options.h"
#include "tools/plan/plan_run.h"

namespace {

using namespace rondo;

// Worlds past this print more than anybody reads.
constexpr int kMostRanks = 1024;

struct Options {
  PlanOptions plan;
  int rank = -1, values = 0;
  bool run = false, verify = false;
  uint64_t bytes = 0;
};

void declare(CLI::App& app, Options& options) {
  declare_plan_options(app, options.plan, kMostRanks);
  app.add_option("--rank", options.rank, "Only the steps of this rank; else of all, and a picture")
      ->check(CLI::Range(0, kMostRanks - 1));
  auto* run =
      app.add_flag("--run", options.run, "What happens when the plans run, as one JSON object (what rondo-view draws)");
  app.add_flag("--values{2}", options.values, "With --run: real numbers, 2 elements, or --values=N")->needs(run);
  app.add_flag("--verify", options.verify, "Prove the plans; the exit code is 1 if that fails");
  app.add_option("--bytes", options.bytes, "Simulate a call of N bytes by the default cost model");
}

// One step in a few letters: what it folds, stores and sends. Scratch and windows do not show.
std::string cell(const Plan& plan, const Step& step) {
  std::string sends, stores;
  uint32_t block = 0;
  for (uint32_t i = 0; i < uint32_t{step.sources} + step.targets; ++i) {
    const Ref& ref = plan.refs[step.first + i];
    if (ref.space != Space::kMailbox) block = ref.block % plan.blocks;
    if (i < step.sources) continue;
    if (ref.space == Space::kMailbox) sends += (sends.empty() ? ">" : ",") + std::to_string(ref.peer);
    if (ref.space == Space::kOutput) stores = (step.flags & kFinish) != 0 ? "=" : ".";
  }
  if (step.sources == 0) return "signal" + sends;
  if (step.targets == 0) return "wait";
  return std::string(step.sources > 1 ? "+" : "") + stores + "c" + std::to_string(block) + sends;
}

// Who sends which block to whom at which step: a row a step, a column a rank. "c2>3" sends block 2 to rank 3;
// "+" before it: folded with this rank's own first; "=" stores the complete block, "." stores what came.
std::string picture(std::span<const Plan> plans) {
  std::vector<std::vector<std::string>> columns;
  size_t rows = 0, width = 6;
  for (const Plan& plan : plans) {
    std::vector<std::string> column;
    for (const Step& step : plan.steps) {
      column.push_back(cell(plan, step));
      width = std::max(width, column.back().size());
    }
    rows = std::max(rows, column.size());
    columns.push_back(std::move(column));
  }
  const auto padded = [&](std::string text) {
    text.resize(std::max(width + 2, text.size()), ' ');
    return text;
  };
  std::string text = padded("step");
  for (size_t r = 0; r < plans.size(); ++r) text += padded("rank " + std::to_string(r));
  while (text.back() == ' ') text.pop_back();
  text += "\n";
  for (size_t row = 0; row < rows; ++row) {
    text += padded(std::to_string(row));
    for (const std::vector<std::string>& column : columns) text += padded(row < column.size() ? column[row] : "");
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  return text;
}

void print(const Options& options, const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    if (options.rank >= 0 && plan.rank != options.rank) continue;
    fmt::print("{}", describe(plan));
  }
  if (options.rank < 0) fmt::print("\n{}", picture(plans));
}

// The plan goes to standard output, what is said about it to standard error.
int dump(const Options& options) {
  const PlanRequest request = request_of(options.plan, kMostRanks);
  if (options.rank >= request.topology.world()) {
    throw Exception(ErrorCode::kInvalid, fmt::format("no rank {} in this world", options.rank));
  }
  const std::vector<Plan> plans = plans_of_all(request);
  if (options.run) {
    const uint64_t bytes = options.bytes > 0 ? options.bytes : PlanRunOptions{}.bytes;
    fmt::print("{}\n", plan_run_json(request, {bytes, options.values}).dump());
  } else {
    print(options, plans);
  }
  if (options.bytes > 0 && !options.run) {
    const SimulationRequest simulated = simulation_of(plans, request.topology, options.bytes);
    fmt::print(stderr, "simulated: {:.1f} us for {} bytes\n", simulate(plans, simulated).time_us, options.bytes);
  }
  if (!options.verify) return 0;
  const Verdict verdict = verify(plans);
  fmt::print(stderr, "{}\n", verdict.ok ? "proven" : verdict.failure);
  return verdict.ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kUsageError = 2;
  Options options;
  CLI::App app("Prints the plans of a collective.", "plan_dump");
  declare(app, options);
  try {
    app.parse(argc, argv);
    return dump(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  } catch (const Exception& error) {
    fmt::print(stderr, "plan_dump: {}\nTry 'plan_dump --help'.\n", error.what());
    return kUsageError;
  }
}
