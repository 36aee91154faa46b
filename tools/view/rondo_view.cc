// rondo-view: writes a page that shows how a plan runs. The page needs no server and fetches nothing.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "ring/base/whole_file.h"
#include "rondo/error.h"
#include "rondo/rondo.h"
#include "tools/plan/plan_options.h"
#include "tools/plan/plan_run.h"
#include "tools/view/page.h"

namespace {

using namespace rondo;

// What the verifier proves, and about what a screen can show.
constexpr int kMostRanks = 64;
constexpr size_t kMostPlans = 4;

struct Options {
  PlanOptions plan;
  std::vector<std::string> compare;
  uint64_t bytes = 1 << 20;
  int values = 0;
  std::string out;
};

void declare(CLI::App& app, Options& options) {
  app.set_version_flag("--version", "rondo-view " RONDO_VERSION);
  declare_plan_options(app, options.plan, kMostRanks);
  app.add_option("--compare", options.compare, "Algorithms side by side, instead of --algorithm: ring,star,direct")
      ->delimiter(',')
      ->excludes("--algorithm");
  app.add_option("--bytes", options.bytes, "Of the whole buffer, with K, M or G; for times and bytes on links (1M)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  app.add_flag("--values{2}", options.values, "Show real numbers: 2 elements a rank, or --values=N")
      ->check(CLI::Range(1, kMostValues));
  app.add_option("-o,--output", options.out, "The page; - is the standard output")->required();
}

// Throws Exception(kInvalid).
std::vector<std::string> algorithms_of(const Options& options) {
  if (options.compare.size() > kMostPlans) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("--compare has {} algorithms: at most {}", options.compare.size(), kMostPlans));
  }
  return options.compare.empty() ? std::vector<std::string>{options.plan.algorithm} : options.compare;
}

// A file appears whole or not at all (replace_file()).
void write(const std::string& path, const std::string& text) {
  if (path != "-") return replace_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw Exception(ErrorCode::kSystem, "cannot write the page");
}

void view(Options options) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const std::string& algorithm : algorithms_of(options)) {
    options.plan.algorithm = algorithm;
    runs.push_back(plan_run_json(request_of(options.plan, kMostRanks), {options.bytes, options.values}));
  }
  write(options.out, page(runs));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kUsageError = 2;
  Options options;
  CLI::App app("Writes a page that shows how the plans of a collective run.", "rondo-view");
  declare(app, options);
  try {
    app.parse(argc, argv);
    view(options);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  } catch (const Exception& error) {
    fmt::print(stderr, "rondo-view: {}\nTry 'rondo-view --help'.\n", error.what());
    return error.code() == ErrorCode::kSystem ? 1 : kUsageError;
  }
}
