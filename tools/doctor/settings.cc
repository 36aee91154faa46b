#include <fmt/format.h>

#include <unistd.h>
#include <algorithm>
#include <iterator>

#include "ring/base/misspelt.h"
#include "ring/engine/observe/metrics_output.h"
#include "rondo/error.h"
#include "tools/doctor/checks.h"
#include "transport/rendezvous/launch.h"

namespace rondo::doctor {
namespace {

constexpr const char* kTopic = "settings";

// What launchers set.
constexpr const char* kLaunchers[] = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
// A name of so few letters is near too many others.
constexpr size_t kShortest = 8;

bool ours(const std::string& name) { return name.starts_with("RONDO_"); }

// Nothing reads it, so it is no failure.
Finding unknown(const std::string& name, const std::string& meant) {
  return {Level::kNote, kTopic, fmt::format("{} is set, and nothing reads it", name),
          meant.empty() ? "unset it; docs/environment.md has the names" : fmt::format("did you mean {}?", meant)};
}

}  // namespace

// Config describes itself, so a new setting is known here at once.
std::vector<std::string> known_variables() {
  std::vector<std::string> names(std::begin(kLaunchers), std::end(kLaunchers));
  for (const std::string_view name : variables_beside_settings()) names.emplace_back(name);
  const std::string settings = Config{}.describe();  // a line "RONDO_X=value" for each
  for (size_t at = 0; at < settings.size();) {
    const size_t end = std::min(settings.find('\n', at), settings.size());
    const std::string line = settings.substr(at, end - at);
    names.push_back(line.substr(0, line.find('=')));
    at = end + 1;
  }
  return names;
}

// By the number of letters to change. Names of other programs are held to fewer changes than those that begin with
// RONDO_.
std::string meant_by(const std::string& name) {
  if (name.size() < kShortest) return "";
  std::string nearest;
  size_t least = ours(name) ? 4 : 3;  // fewer changes than that; others' names are near by chance
  for (const std::string& known : known_variables()) {
    const size_t changes = spelling_distance(name, known);
    if (changes == 0) return "";
    if (changes < least) least = changes, nearest = known;
  }
  return nearest;
}

Findings check_settings(const Environment& environment) {
  Findings findings;
  const std::vector<std::string> known = known_variables();
  std::string set;
  for (const auto& [name, value] : environment.all()) {
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    // A unique id has the job's secret in it.
    const std::string shown = value.starts_with("unique:") ? "a unique id" : value;
    if (is_known && ours(name)) set += fmt::format("{}{}={}", set.empty() ? "" : ", ", name, shown);
    const std::string meant = is_known ? "" : meant_by(name);
    if (!is_known && (ours(name) || !meant.empty())) findings.push_back(unknown(name, meant));
  }
  try {
    Config::from_environment();
    findings.push_back({Level::kFine, kTopic, set.empty() ? "no variable RONDO_* is set" : set, ""});
  } catch (const Exception& refusal) {
    findings.push_back({Level::kWrong, kTopic, refusal.what(), "unset it, or set one of these"});
  }
  return findings;
}

Findings check_outputs(const Job& job) {
  const Config& config = job.config;
  if (config.trace_folder.empty() && config.metrics.empty()) return {};
  try {
    rondo::check_outputs(config);
    return {{Level::kFine, "outputs",
             fmt::format("traces: {}; metrics: {}", config.trace_folder.empty() ? "none" : config.trace_folder,
                         config.metrics.empty() ? "none" : config.metrics),
             ""}};
  } catch (const Exception& refusal) {
    return {{Level::kWrong, "outputs", refusal.what(), ""}};
  }
}

Findings check_launch(const Environment& environment) {
  try {
    const Launch launch = find_launch_in({}, environment);
    if (launch.place.world == 1) return {{Level::kFine, "launch", "no launcher: a program here is rank 0 of 1", ""}};
    return {{Level::kFine, "launch",
             fmt::format("{}: rank {} of {}, meeting at {}", launch.launcher, launch.place.rank, launch.place.world,
                         launch.rendezvous.starts_with("unique:") ? "a unique id" : launch.rendezvous),
             ""}};
  } catch (const Exception& refusal) {
    return {{Level::kWrong, "launch", refusal.what(), ""}};
  }
}

}  // namespace rondo::doctor
