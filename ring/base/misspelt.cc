#include "ring/base/misspelt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace rondo {
namespace {

constexpr std::string_view kPrefix = "RONDO_";

// Names that other parts of Rondo read.
constexpr std::array<std::string_view, 15> kElsewhere = {
    "RONDO_RANK",        "RONDO_WORLD_SIZE", "RONDO_LOCAL_RANK", "RONDO_LOCAL_WORLD_SIZE",
    "RONDO_NODE",        "RONDO_NODES",      "RONDO_RENDEZVOUS", "RONDO_MASTER_PORT",
    "RONDO_JOB_ID",      "RONDO_JOIN",       "RONDO_RUN",        "RONDO_LIBRARY",
    "RONDO_TORCH_CACHE", "RONDO_ENDED",      "RONDO_RAISED"};

}  // namespace

// One row of the usual table: row[j] is the distance of the letters of `from` so far to the first j of `to`.
size_t spelling_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t changed = corner + (from[i - 1] == to[j - 1] ? 0 : 1);
      corner = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[to.size()];
}

std::span<const std::string_view> variables_beside_settings() { return kElsewhere; }

void warn_of_misspelt(std::span<const std::string_view> settings, const Logger& log) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> warned;
  std::vector<std::string_view> names(settings.begin(), settings.end());
  names.insert(names.end(), kElsewhere.begin(), kElsewhere.end());
  std::vector<std::string> lines;
  {
    std::lock_guard lock(mutex);
    for (const char* const* variable = environ; *variable != nullptr; ++variable) {
      std::string_view name(*variable);
      name = name.substr(0, name.find('='));
      if (!name.starts_with(kPrefix) || std::find(names.begin(), names.end(), name) != names.end()) continue;
      const auto nearest = std::min_element(names.begin(), names.end(), [name](std::string_view a, std::string_view b) {
        return spelling_distance(name, a) < spelling_distance(name, b);
      });
      if (2 * spelling_distance(name, *nearest) >= name.size() - kPrefix.size() || !warned.emplace(name).second)
        continue;
      lines.push_back(fmt::format("{} is set, and nothing reads it: did you mean {}?", name, *nearest));
    }
  }
  for (const std::string& line : lines) log.warn(line);  // the program's function, perhaps
}

}  // namespace rondo
